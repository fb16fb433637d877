"""A custom domain of the REST API, with its certificate and its DNS entries in Route 53."""

from typing import cast

from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_route53_targets as targets
from constructs import Construct

from infra.setting_types import DomainSettings


class ApiDomain(Construct):
    """Maps the root of a domain to a stage of the API; the stage's integrations stream as at its own host.

    Args:
        settings: Name, hosted zone and certificate.
        api: The API, whose deployment stage it maps.
        security_policy: Security policy of API Gateway, as of the API.

    Attributes:
        url: Base URL, without a slash at the end.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: DomainSettings,
        api: apigateway.RestApi,
        security_policy: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self.url = f"https://{settings.name}"
        zone = route53.HostedZone.from_hosted_zone_attributes(
            self, "Zone", hosted_zone_id=settings.hosted_zone_id, zone_name=settings.zone_name
        )
        domain = apigateway.DomainName(
            self,
            "Domain",
            domain_name=settings.name,
            certificate=self._certificate(settings, zone),
            endpoint_type=apigateway.EndpointType.REGIONAL,
        )
        resource = cast("apigateway.CfnDomainName", domain.node.default_child)
        resource.security_policy = security_policy
        resource.endpoint_access_mode = "STRICT"
        # Without it the AAAA record would lead to a host that has no IPv6 address.
        resource.add_property_override("EndpointConfiguration.IpAddressType", "dualstack")
        domain.add_base_path_mapping(api, stage=api.deployment_stage)
        target = route53.RecordTarget.from_alias(targets.ApiGatewayDomain(domain))
        for record, kind in (("Ipv4", route53.ARecord), ("Ipv6", route53.AaaaRecord)):
            kind(self, record, zone=zone, record_name=f"{settings.name}.", target=target)

    def _certificate(self, settings: DomainSettings, zone: route53.IHostedZone) -> acm.ICertificate:
        if settings.certificate_arn is not None:
            return acm.Certificate.from_certificate_arn(self, "Certificate", settings.certificate_arn)
        return acm.Certificate(
            self,
            "Certificate",
            domain_name=settings.name,
            validation=acm.CertificateValidation.from_dns(zone),
        )
