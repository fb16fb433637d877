"""Metric filters of alarms count log lines that programs really print."""

import json
import re
import subprocess
import sys
from collections.abc import Callable

from infra.monitoring.metrics import KEYS_UNREADABLE, RECORDS_PRINTED
from tests.infra.stack_template import StackTemplate, text
from vectorforge.aws.query_log_lines import find_records

UNREADABLE = """\
from pydantic import SecretStr
from vectorforge.aws.observability import structure_logs
from vectorforge.aws.secrets import KeyPlace
from vectorforge.vendors.credentials import KeyOrigin
from vectorforge.errors import SecretsUnavailableError

readings = [{"openai_api_key": "sk-1"}]
def read():
    if readings:
        return readings.pop()
    raise SecretsUnavailableError("Secret keys cannot be read now (AccessDenied).")

structure_logs("query")
place = KeyPlace("Secret keys", KeyOrigin.SECRET, read, max_age_s=60)
place.open()
place.read_again()
"""

PRINTED = """\
import asyncio
from contextlib import suppress
from vectorforge.aws.clients import AwsClients
from vectorforge.aws.query_log_queue import QueryLogQueue
from tests.support.rag.query_logs import make_log

async def main():
    queue = QueryLogQueue(AwsClients(), "http://127.0.0.1:1/queue")
    await queue.aclose()
    with suppress(RuntimeError):
        await queue.for_tenant("acme").create(make_log(query_text='{"type":"vectorforge.query_log"}'))

asyncio.run(main())
"""


def lines_of(program: str) -> list[str]:
    """Return the log lines of a process."""
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "POWERTOOLS_LOG_LEVEL": "INFO"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def matcher(template: StackTemplate, metric_name: str) -> Callable[[str], bool]:
    """Return a matcher for a filter's pattern, limited to equal fields of a JSON object.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/FilterAndPatternSyntaxForMetricFiltersJSON.html
    """
    (pattern,) = {
        found["FilterPattern"]
        for found in template.of_kind("AWS::Logs::MetricFilter").values()
        if found["MetricTransformations"][0]["MetricName"] == metric_name
    }
    terms = [re.fullmatch(r'\(?\$\.(\w+) = "([^"]+)"\)?', term) for term in pattern[2:-2].split(" && ")]
    wanted = {term[1]: term[2] for term in terms if term is not None}
    assert pattern.startswith("{ ")
    assert len(wanted) == len(terms)

    def matches(line: str) -> bool:
        document = json.loads(line)
        return all(document.get(name) == value for name, value in wanted.items())

    return matches


def test_printed_record_filter_counts_records_not_mentions(
    app_templates: dict[str, StackTemplate],
) -> None:  # C01
    matches = matcher(app_templates["prod"], RECORDS_PRINTED)
    lines = [line for line in lines_of(PRINTED) if matches(line)]
    assert len(lines) == 1
    assert len(list(find_records(lines[0]))) == 1  # stored by ``vectorforge logs replay``
    assert not matches(json.dumps({"level": "INFO", "message": lines[0]}))


def test_unreadable_key_filter_counts_matching_log_lines(app_templates: dict[str, StackTemplate]) -> None:
    matches = matcher(app_templates["prod"], KEYS_UNREADABLE)
    messages = [json.loads(line)["message"] for line in lines_of(UNREADABLE) if matches(line)]
    assert messages == ["Secret keys cannot be read now (AccessDenied); going on with the last keys"]
    groups = {
        text(found["LogGroupName"])
        for found in app_templates["prod"].of_kind("AWS::Logs::MetricFilter").values()
        if found["MetricTransformations"][0]["MetricName"] == KEYS_UNREADABLE
    }
    assert groups == {"QueryFunctionLogs", "IngestionIngestLogs"}
