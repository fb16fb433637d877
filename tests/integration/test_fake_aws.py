"""The fake AWS of the tests."""

from tests.support.aws.fake_aws import FakeAws


def test_fake_aws_starts_empty() -> None:
    with FakeAws() as first:
        first.create_bucket("left-behind")
    with FakeAws() as second:
        assert second.client("s3").list_buckets()["Buckets"] == []
        second.create_bucket("left-behind")
