"""Sessions of boto3 share what they have parsed."""

import boto3


def test_sessions_share_parsed_service_models() -> None:
    first, second = (boto3.session.Session("a", "b", region_name="eu-central-1") for _ in range(2))
    loaders = [session._session.get_component("data_loader") for session in (first, second)]
    assert loaders[0] is loaders[1]
