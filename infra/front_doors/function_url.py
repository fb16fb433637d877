"""A function URL with IAM authentication, and CloudFront, which signs for callers without IAM identity."""

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.python_function import PythonFunction
from infra.front_doors.rest_api import EXAMPLE_BODY
from infra.stage_settings import StageSettings

_SILENCE_S = 120
"""Longest wait of CloudFront for the next byte by default; a silent stream sends one every 15 s.

https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/cloudfront-limits.html
"""


class QueryUrl(Construct):
    """Streams answers to IAM identities of ``iam_tenants`` and, through CloudFront, to holders of keys.

    CloudFront's signature replaces ``Authorization``, so keys come in ``X-Api-Key``. It signs no bodies, so a
    client sends the SHA-256 of a body in ``X-Amz-Content-Sha256``.
    https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/private-content-restricting-access-to-lambda.html

    Args:
        function: The query function.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, function: PythonFunction
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self._url = lambda_.FunctionUrl(
            self,
            "Url",
            function=function.alias,
            auth_type=lambda_.FunctionUrlAuthType.AWS_IAM,
            invoke_mode=lambda_.InvokeMode.RESPONSE_STREAM,
        )
        self._distribution = self._make_distribution()
        distribution = iam.ServicePrincipal("cloudfront.amazonaws.com")
        _allow(function, "CloudFront", distribution, source_arn=self._distribution.distribution_arn)
        for number, arn in enumerate(stage.iam_tenants):
            _allow(function, f"Caller{number}", iam.ArnPrincipal(arn))
        self._tell_where()

    def _make_distribution(self) -> cloudfront.Distribution:
        access = cloudfront.FunctionUrlOriginAccessControl(
            self,
            "AccessControl",
            # CloudFront is one for all regions.
            origin_access_control_name=f"{self._stage.prefix}-{Stack.of(self).region}",
            signing=cloudfront.Signing.SIGV4_ALWAYS,
        )
        origin = origins.FunctionUrlOrigin(
            self._url,
            origin_access_control_id=access.origin_access_control_id,
            read_timeout=Duration.seconds(_SILENCE_S),
        )
        behaviour = cloudfront.BehaviorOptions(
            origin=origin,
            allowed_methods=cloudfront.AllowedMethods.ALLOW_ALL,
            cache_policy=cloudfront.CachePolicy.CACHING_DISABLED,
            # The URL's host is part of its signature.
            origin_request_policy=cloudfront.OriginRequestPolicy.ALL_VIEWER_EXCEPT_HOST_HEADER,
            # Adds Strict-Transport-Security; the application's own headers stay as they are.
            response_headers_policy=cloudfront.ResponseHeadersPolicy.SECURITY_HEADERS,
            viewer_protocol_policy=cloudfront.ViewerProtocolPolicy.HTTPS_ONLY,
            compress=False,  # it would hold back what it compresses
        )
        domain = self._stage.cloudfront_domain
        return cloudfront.Distribution(
            self,
            "Distribution",
            comment=f"VectorForge ({self._stage.stage})",
            default_behavior=behaviour,
            http_version=cloudfront.HttpVersion.HTTP2_AND_3,
            # CloudFront's own domain takes TLS 1.0 and 1.1, too; only with another can they be refused.
            domain_names=[domain.name] if domain else None,
            certificate=acm.Certificate.from_certificate_arn(self, "Certificate", domain.certificate_arn)
            if domain
            else None,
            minimum_protocol_version=cloudfront.SecurityPolicyProtocol.TLS_V1_2_2021 if domain else None,
        )

    def _tell_where(self) -> None:
        stack, domain = Stack.of(self), self._stage.cloudfront_domain
        viewer_url = f"https://{domain.name if domain else self._distribution.distribution_domain_name}"
        json_type = "-H 'content-type: application/json'"
        CfnOutput(stack, "CloudFrontUrl", description="CloudFront before the function", value=viewer_url)
        CfnOutput(
            stack,
            "CloudFrontExample",
            description="Queries the API with a key of VECTORFORGE_API_KEYS in the shell's variable KEY",
            value=(
                f"BODY='{EXAMPLE_BODY}'; "
                f'curl -N {viewer_url}/v1/rag/query -H "x-api-key: $KEY" {json_type} '
                '-H "x-amz-content-sha256: $(printf %s "$BODY" | sha256sum | cut -d\' \' -f1)" -d "$BODY"'
            ),
        )
        CfnOutput(stack, "FunctionUrl", description="The function URL", value=self._url.url)
        CfnOutput(
            stack,
            "FunctionUrlExample",
            description="Queries the API as an identity of iam_tenants, with the credentials of the shell",
            value=(
                f"curl -N {self._url.url}v1/rag/query --aws-sigv4 aws:amz:{stack.region}:lambda "
                '--user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" '
                # Without a token curl would sign an empty header and not send it.
                '${AWS_SESSION_TOKEN:+"-Hx-amz-security-token: $AWS_SESSION_TOKEN"} '
                f"{json_type} -d '{EXAMPLE_BODY}'"
            ),
        )


def _allow(
    function: PythonFunction, name: str, principal: iam.IPrincipal, source_arn: str | None = None
) -> None:
    """Add both permissions, the second one for calls through the URL only.

    A caller that invokes the function directly writes the whole event, and could pose as any tenant.
    https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html
    """
    function.alias.add_permission(
        f"{name}Url",
        principal=principal,
        action="lambda:InvokeFunctionUrl",
        function_url_auth_type=lambda_.FunctionUrlAuthType.AWS_IAM,
        source_arn=source_arn,
    )
    function.alias.add_permission(
        f"{name}Function",
        principal=principal,
        action="lambda:InvokeFunction",
        invoked_via_function_url=True,
        source_arn=source_arn,
    )
