"""AWS WAF before the REST API: addresses of bad reputation, and floods from one address."""

from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_wafv2 as wafv2
from constructs import Construct

from infra.stage_settings import StageSettings

_WINDOW_S = 300


class WebAcl(Construct):
    """Two rules that look at addresses only.

    AWS's rules for bodies are left out: they reject bodies over 8 KB, and queries that quote HTML or SQL.
    https://docs.aws.amazon.com/waf/latest/developerguide/aws-managed-rule-groups-baseline.html

    Args:
        stage: The stage's settings. One address may send twice the rate of all tenants.
        api_stage: Stage behind it.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, api_stage: apigateway.Stage
    ) -> None:
        super().__init__(scope, construct_id)
        flood = 2 * stage.requests_per_second * len(stage.tenants) * _WINDOW_S
        reputation = wafv2.CfnWebACL.RuleProperty(
            name="addresses-of-ill-repute",
            priority=0,
            override_action=wafv2.CfnWebACL.OverrideActionProperty(none={}),
            statement=wafv2.CfnWebACL.StatementProperty(
                managed_rule_group_statement=wafv2.CfnWebACL.ManagedRuleGroupStatementProperty(
                    vendor_name="AWS", name="AWSManagedRulesAmazonIpReputationList"
                )
            ),
            visibility_config=_counted(f"{stage.prefix}-addresses-of-ill-repute"),
        )
        floods = wafv2.CfnWebACL.RuleProperty(
            name="floods",
            priority=1,
            action=wafv2.CfnWebACL.RuleActionProperty(block={}),
            statement=wafv2.CfnWebACL.StatementProperty(
                rate_based_statement=wafv2.CfnWebACL.RateBasedStatementProperty(
                    limit=flood, evaluation_window_sec=_WINDOW_S, aggregate_key_type="IP"
                )
            ),
            visibility_config=_counted(f"{stage.prefix}-floods"),
        )
        acl = wafv2.CfnWebACL(
            self,
            "Acl",
            name=stage.prefix,
            scope="REGIONAL",
            default_action=wafv2.CfnWebACL.DefaultActionProperty(allow={}),
            rules=[reputation, floods],
            visibility_config=_counted(stage.prefix),
        )
        wafv2.CfnWebACLAssociation(
            self, "Association", resource_arn=api_stage.stage_arn, web_acl_arn=acl.attr_arn
        )


def _counted(name: str) -> wafv2.CfnWebACL.VisibilityConfigProperty:
    """Return metrics without samples, which would show headers with keys."""
    return wafv2.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
    )
