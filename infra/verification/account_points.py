"""Points that operators see: configuration of functions and the database, egress, deployments."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from infra.bundling.database_certificates import RDS_ROOTS_SHA256, RDS_ROOTS_URL
from infra.constructs.python_function import ALIAS
from infra.data.data_stack import CLIENTS
from infra.doctor.machine import addresses
from infra.vendor_addresses import vendor_hosts
from infra.verification.points import AwsPoint, Point, PointSkippedError, require, wait_for
from infra.verification.stage import DeployedStage
from infra.verification.temporary_collection import ask, ingest, temporary_collection

_DEFAULT_ROUTES: Final = {
    "dual_stack": frozenset({"IPv6 outwards"}),
    "nat": frozenset({"IPv4 by NAT"}),
    "none": frozenset[str](),
}
"""Default routes of the functions' subnets, by egress."""
_AT_A_TIME: Final = 10
_METRIC_WITHIN_S: Final = 240


def migrated(stage: DeployedStage) -> str:
    """Have the migrate function log in and compare the schema with its migrations."""
    answer = _migrate(stage, "check")
    require(answer == {"pending": []}, f"pending: {answer.get('pending')}")
    return "no migration is pending"


def _migrate(stage: DeployedStage, action: str) -> dict[str, Any]:
    invoked = stage.aws("lambda").invoke(
        FunctionName=f"{stage.name('migrate')}:{ALIAS}", Payload=json.dumps({"action": action}).encode()
    )
    answer: dict[str, Any] = json.loads(invoked["Payload"].read())
    require("FunctionError" not in invoked, f"the migrate function failed: {answer.get('errorType')}")
    return answer


def _index(stage: DeployedStage) -> str:
    """Build missing indexes, as the hourly rule does."""
    rule = stage.aws("events").describe_rule(Name=stage.name("index"))
    hourly = (rule["State"], rule["ScheduleExpression"])
    require(hourly == ("ENABLED", "rate(1 hour)"), f"the rule is {' '.join(hourly)}")
    answer = _migrate(stage, "index")
    require("built" in answer, f"the migrate function answered {sorted(answer)}")
    return f"built: {', '.join(answer['built']) or 'none was missing'}; the rule is {' '.join(hourly)}"


def _database(stage: DeployedStage) -> str:
    rds, name, settings = stage.aws("rds"), stage.settings.prefix, stage.settings.database
    exports = {"postgresql"}
    if settings.engine == "aurora":
        [found] = rds.describe_db_clusters(DBClusterIdentifier=name)["DBClusters"]
    else:
        [found] = rds.describe_db_instances(DBInstanceIdentifier=name)["DBInstances"]
        exports |= {"iam-db-auth-error"}
    version = found["EngineVersion"]
    require(version.partition(".")[0] == "17", f"PostgreSQL {version}")
    wanted = {
        "StorageEncrypted": True,
        "IAMDatabaseAuthenticationEnabled": True,
        "DeletionProtection": settings.deletion_protection,
        "BackupRetentionPeriod": settings.backup_days,
    }
    other = {key: found.get(key) for key, value in wanted.items() if found.get(key) != value}
    require(not other, f"{other} in place of {wanted}")
    missing = exports - set(found.get("EnabledCloudwatchLogsExports", ()))
    require(not missing, f"not exported: {', '.join(sorted(missing))}")
    return f"PostgreSQL {version}, exports {', '.join(sorted(exports))}, {wanted}"


def _event_sources(stage: DeployedStage) -> str:
    seen = []
    for function, settings in (("log_writer", stage.settings.log_writer), ("ingest", stage.settings.ingest)):
        qualified = f"{stage.name(function)}:{ALIAS}"
        listed = stage.aws("lambda").list_event_source_mappings(FunctionName=qualified)
        mappings = listed["EventSourceMappings"]
        require(len(mappings) == 1, f"{qualified} has {len(mappings)} event sources, not 1")
        limit = mappings[0].get("ScalingConfig", {}).get("MaximumConcurrency")
        require(limit == settings.max_concurrency, f"{qualified}: MaximumConcurrency {limit}")
        seen.append(f"{qualified}: at most {limit} at once")
    return "; ".join(seen)


def _recursion(stage: DeployedStage) -> str:
    functions = stage.aws("lambda")
    name = stage.name("ingest")
    allowed = functions.get_function_recursion_config(FunctionName=name)["RecursiveLoop"]
    require(allowed == "Allow", f"{name}: {allowed}")
    other = functions.get_function_recursion_config(FunctionName=stage.name("query"))["RecursiveLoop"]
    require(other == "Terminate", f"{stage.name('query')}: {other}")
    return "Allow for the ingest function, Terminate for the query function"


def _runtime_updates(stage: DeployedStage) -> str:
    found = stage.aws("lambda").get_runtime_management_config(FunctionName=stage.name("query"))
    mode: str = found["UpdateRuntimeOn"]
    require(mode == "FunctionUpdate", f"UpdateRuntimeOn is {mode}")
    return mode


def _pinned(stage: DeployedStage) -> str:
    if not stage.settings.database.proxy:
        raise PointSkippedError("the stage has no RDS Proxy")
    pinned = "DatabaseConnectionsCurrentlySessionPinned"
    points = list(_last_hour(stage, "AWS/RDS", pinned, "Maximum", ProxyName=stage.settings.prefix))
    if not points:
        raise PointSkippedError("the proxy has not reported in the last hour: query, wait, and repeat")
    worst = max(points)
    require(worst == 0, f"up to {worst:g} pinned sessions in the last hour")
    return f"0 pinned sessions at {len(points)} points of the last hour"


def _last_hour(
    stage: DeployedStage, namespace: str, metric: str, statistic: str, **dimensions: str
) -> Iterator[float]:
    """Yield a metric's values of the last hour, one a minute, in no order."""
    began = datetime.now(UTC) - timedelta(hours=1)
    yield from _hour_from(began, stage, namespace, metric, statistic, **dimensions)


def _hour_from(
    began: datetime, stage: DeployedStage, namespace: str, metric: str, statistic: str, **dimensions: str
) -> Iterator[float]:
    found = stage.aws("cloudwatch").get_metric_statistics(
        Namespace=namespace,
        MetricName=metric,
        Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
        StartTime=began,
        EndTime=began + timedelta(hours=1),
        Period=60,
        Statistics=[statistic],
    )
    yield from (point[statistic] for point in found["Datapoints"])


def _connections(stage: DeployedStage) -> str:
    """Send queries at a time to an instance without a proxy, and read the connections of the minutes after.

    Processes that are frozen after a query keep theirs for ``infra.connection_budget.IDLE_S``.
    """
    database = stage.settings.database
    if database.proxy:
        raise PointSkippedError("the stage has RDS Proxy")
    with stage.http() as api, temporary_collection(api) as collection:
        ingest(api, collection)
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            list(threads.map(lambda _: ask(api, collection), range(_AT_A_TIME)))
    named = {"DBInstanceIdentifier": stage.settings.prefix}
    next_minute = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)

    def most() -> float | None:
        values = _hour_from(next_minute, stage, "AWS/RDS", "DatabaseConnections", "Maximum", **named)
        return max(values, default=None)

    used = wait_for(most, what="a value of DatabaseConnections", seconds=_METRIC_WITHIN_S)
    described = f"at most {used:g} of {database.max_connections} connections after them"
    require(used < 0.8 * database.max_connections, described)
    return f"{_AT_A_TIME} queries at a time answered, {described}"


def _readers(stage: DeployedStage) -> str:
    """Read whether the readers answered the searches, and how far they are behind."""
    number = stage.settings.database.readers
    if not number:
        raise PointSkippedError("the stage has no readers")
    namespace, metric = stage.settings.metrics_namespace, "database.reader.searches"
    listed = stage.aws("cloudwatch").list_metrics(Namespace=namespace, MetricName=metric)["Metrics"]
    searches: Counter[str] = Counter()
    for one in listed:
        dimensions = {dimension["Name"]: dimension["Value"] for dimension in one["Dimensions"]}
        searches[dimensions["outcome"]] += int(sum(_last_hour(stage, namespace, metric, "Sum", **dimensions)))
    if not (total := searches.total()):
        raise PointSkippedError("no search in the last hour: query, wait, and repeat")
    described = f"readers answered {searches['answered']} of {total} searches of the last hour"
    require(2 * searches["answered"] > total, described)
    lags = [
        lag
        for reader in range(1, number + 1)
        for lag in _last_hour(
            stage, "AWS/RDS", "AuroraReplicaLag", "Maximum",
            DBInstanceIdentifier=f"{stage.settings.prefix}-reader{reader}",
        )
    ]  # fmt: skip
    return f"{described}, at most {max(lags, default=0):.0f} ms behind"


def _vendor_names(stage: DeployedStage) -> str:
    if stage.settings.network.egress != "dual_stack":
        raise PointSkippedError("the stage's egress is not IPv6 alone")
    hosts = vendor_hosts(stage.variables("query"))
    without = [host for host in hosts if addresses(host) != "ipv6"]
    require(not without, f"without an IPv6 address: {', '.join(without)}")
    return f"{', '.join(hosts) or 'no vendor'}: IPv6 addresses"


def _ipv6(stage: DeployedStage) -> str:
    """Compare functions, subnets and default routes with the stage's egress."""
    if stage.settings.network.existing is not None:
        raise PointSkippedError("the VPC is not the stack's")
    egress = stage.settings.network.egress
    subnets: set[str] = set()
    for function in CLIENTS:
        found = stage.aws("lambda").get_function_configuration(
            FunctionName=stage.name(function), Qualifier=ALIAS
        )["VpcConfig"]
        has_ipv6 = bool(found.get("Ipv6AllowedForDualStack"))
        require(has_ipv6 == (egress == "dual_stack"), f"{stage.name(function)}: IPv6 {has_ipv6}")
        subnets |= set(found["SubnetIds"])
    ec2 = stage.aws("ec2")
    for subnet in ec2.describe_subnets(SubnetIds=sorted(subnets))["Subnets"]:
        has_ipv6 = bool(subnet.get("Ipv6CidrBlockAssociationSet"))
        require(has_ipv6 == (egress == "dual_stack"), f"a subnet of functions: IPv6 block {has_ipv6}")
    filters = [{"Name": "association.subnet-id", "Values": sorted(subnets)}]
    tables = ec2.describe_route_tables(Filters=filters)["RouteTables"]
    require(tables, "the functions' subnets have no route table of their own")
    for table in tables:
        kinds = _default_routes(table)
        require(kinds == _DEFAULT_ROUTES[egress], f"{egress}: the default routes are {sorted(kinds)}")
    routes = " and ".join(sorted(_DEFAULT_ROUTES[egress])) or "no default route"
    return f'egress "{egress}": {len(CLIENTS)} functions in {len(subnets)} subnets, {routes}'


def _default_routes(table: dict[str, Any]) -> frozenset[str]:
    kinds = set()
    for route in table["Routes"]:
        if route.get("DestinationCidrBlock") == "0.0.0.0/0":
            kinds.add("IPv4 by NAT" if route.get("NatGatewayId") else "IPv4")
        if route.get("DestinationIpv6CidrBlock") == "::/0":
            kinds.add("IPv6 outwards" if route.get("EgressOnlyInternetGatewayId") else "IPv6")
    return frozenset(kinds)


def _canary(stage: DeployedStage) -> str:
    """Read CodeDeploy's last deployment, and whether it invoked the probe before it moved traffic."""
    if not stage.settings.canary:
        raise PointSkippedError("the stage has no canary")
    deploy, name = stage.aws("codedeploy"), stage.name("query")
    pages = deploy.get_paginator("list_deployments").paginate(applicationName=name, deploymentGroupName=name)
    found = [
        deploy.get_deployment(deploymentId=one)["deploymentInfo"] for one in pages.search("deployments[]")
    ]
    if not found:
        raise PointSkippedError("no second version yet: change something, and deploy again")
    last = max(found, key=lambda one: one["createTime"])
    described = f"the deployment of {last['createTime']:%Y-%m-%d %H:%M} is {last['status']}"
    if last["status"] in ("Created", "Queued", "InProgress", "Baking", "Ready"):
        raise PointSkippedError(f"{described}: repeat later")
    require(last["status"] == "Succeeded", described)
    if stage.settings.probe is None:
        return f"{described}; the stage has no probe"
    identity = last["deploymentId"]
    [target] = deploy.list_deployment_targets(deploymentId=identity)["targetIds"]
    events = deploy.get_deployment_target(deploymentId=identity, targetId=target)["deploymentTarget"][
        "lambdaTarget"
    ]["lifecycleEvents"]
    hook = {event["lifecycleEventName"]: event["status"] for event in events}.get("BeforeAllowTraffic")
    require(hook == "Succeeded", f"{described}, and its hook BeforeAllowTraffic is {hook}")
    return f"{described}, after the probe"


def published_roots(_: DeployedStage, url: str = RDS_ROOTS_URL) -> str:
    """Compare the committed root certificates of RDS with those that AWS publishes."""
    import httpx2

    answer = httpx2.get(url, timeout=30.0)
    require(answer.status_code == 200, f"{url}: {answer.status_code}")
    digest = hashlib.sha256(answer.content).hexdigest()
    require(
        digest == RDS_ROOTS_SHA256, f"AWS publishes {digest[:12]}..., committed is {RDS_ROOTS_SHA256[:12]}..."
    )
    return f"{digest[:12]}... as committed"


ACCOUNT_POINTS: Final = (
    Point("migrated", "the schema is that of the deployed code", migrated),
    Point("index", "missing indexes are built, and hourly", _index),
    AwsPoint("database", "version, encryption, logins and exports of the database", _database),
    Point("event-sources", "queues feed the alias, at their maximum concurrency", _event_sources),
    AwsPoint("recursion", "only the ingest function may wake itself", _recursion),
    AwsPoint("runtime-updates", "Lambda does not change the runtime of a version", _runtime_updates),
    AwsPoint("ipv6", "functions have IPv6 in stages with that egress only", _ipv6),
    AwsPoint("vendor-names", "configured vendors have IPv6 addresses", _vendor_names),
    AwsPoint("canary", "CodeDeploy moved to the last version, after the probe", _canary),
    AwsPoint("rds-roots", "the committed roots of RDS are those that AWS publishes", published_roots),
    AwsPoint("pinned", "no statement pins a connection of RDS Proxy", _pinned),
    AwsPoint("connections", "without a proxy, connections suffice for ten queries at a time", _connections),
    AwsPoint("readers", "readers of Aurora answer searches, and their lag is known", _readers),
)
