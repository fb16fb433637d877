"""ARNs by name, for what comes before a resource, or must not refer to it."""

from aws_cdk import ArnFormat, Stack
from constructs import Construct


def named_arn(scope: Construct, service: str, resource: str, name: str) -> str:
    """Return the ARN that ends in ``<resource>:<name>``, in account and region of a construct's stack."""
    return Stack.of(scope).format_arn(
        service=service, resource=resource, resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
    )
