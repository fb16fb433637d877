"""The function URL and CloudFront in front of it."""

from tests.infra.front_door_templates import ALIAS
from tests.infra.stack_template import StackTemplate, text


def test_function_url_with_iam_admits_cloudfront_and_named_callers(
    url: StackTemplate, app_templates: dict[str, StackTemplate]
) -> None:
    assert url.of_kind("AWS::Lambda::Url")["QueryUrl"]["AuthType"] == "AWS_IAM"
    assert url.of_kind("AWS::Lambda::Url")["QueryUrl"]["InvokeMode"] == "RESPONSE_STREAM"
    distribution = "arn:AWS::Partition:cloudfront::AWS::AccountId:distribution/QueryUrlDistribution"
    callers = {("cloudfront.amazonaws.com", distribution)}
    if url is app_templates["both"]:
        callers.add(("arn:aws:iam::123456789012:role/teams/acme-reader", ""))
    permissions = [
        p for p in url.of_kind("AWS::Lambda::Permission").values() if text(p["FunctionName"]) == ALIAS
    ]
    for action, condition in (
        ("lambda:InvokeFunctionUrl", ("FunctionUrlAuthType", "AWS_IAM")),
        ("lambda:InvokeFunction", ("InvokedViaFunctionUrl", True)),
    ):  # both are needed: https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html
        found = [p for p in permissions if p["Action"] == action and p.get(condition[0]) == condition[1]]
        assert {(p["Principal"], text(p.get("SourceArn", ""))) for p in found} == callers


def test_cloudfront_signs_and_neither_caches_nor_buffers(url: StackTemplate) -> None:
    config = url.of_kind("AWS::CloudFront::Distribution")["QueryUrlDistribution"]["DistributionConfig"]
    behaviour, [origin] = config["DefaultCacheBehavior"], config["Origins"]
    assert behaviour["CachePolicyId"] == "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"  # CachingDisabled
    assert (
        behaviour["OriginRequestPolicyId"] == "b689b0a8-53d0-40ab-baf2-68738e2966ac"
    )  # AllViewerExceptHostHeader
    assert behaviour["Compress"] is False
    assert behaviour["ViewerProtocolPolicy"] == "https-only"
    assert {"GET", "POST", "DELETE"} <= set(behaviour["AllowedMethods"])
    assert text(origin["OriginAccessControlId"]) == "QueryUrlAccessControl.Id"
    # CloudFront's maximum, and much more than the 15 s between two pings of a silent stream.
    assert origin["CustomOriginConfig"]["OriginReadTimeout"] == 120
    signing = url.of_kind("AWS::CloudFront::OriginAccessControl")["QueryUrlAccessControl"][
        "OriginAccessControlConfig"
    ]
    assert (signing["OriginAccessControlOriginType"], signing["SigningBehavior"]) == ("lambda", "always")
    if "ViewerCertificate" in config:
        assert config["ViewerCertificate"]["MinimumProtocolVersion"] == "TLSv1.2_2021"


def test_cloudfront_forwards_preflights_and_origins(url: StackTemplate) -> None:
    config = url.of_kind("AWS::CloudFront::Distribution")["QueryUrlDistribution"]["DistributionConfig"]
    behaviour = config["DefaultCacheBehavior"]
    assert "OPTIONS" in behaviour["AllowedMethods"]
    assert "OPTIONS" not in behaviour.get("CachedMethods", [])
    # AllViewerExceptHostHeader: Origin and Access-Control-Request-* reach the application.
    assert behaviour["OriginRequestPolicyId"] == "b689b0a8-53d0-40ab-baf2-68738e2966ac"
    # SecurityHeadersPolicy has no CORS headers, and neither has the URL: the application's are the only ones.
    assert behaviour["ResponseHeadersPolicyId"] == "67f7725c-6f97-4210-82d7-5512b31e9d03"
    assert "Cors" not in url.of_kind("AWS::Lambda::Url")["QueryUrl"]
