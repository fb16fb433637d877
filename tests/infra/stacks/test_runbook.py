"""The runbook has a chapter for every alarm, and its queries use fields that log lines have."""

import re

import pytest

from infra.bundling.bundle import ROOT
from infra.monitoring.alarms import RUNBOOK
from infra.monitoring.backup_notices import NOTICES
from infra.settings import PROD
from tests.infra.conftest import VARIANTS
from tests.infra.stack_template import StackTemplate, text
from vectorforge.telemetry import METRICS

TEXT = (ROOT / RUNBOOK).read_text()
CHAPTERS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))


def test_alarms_and_runbook_chapters_match(
    app_templates: dict[str, StackTemplate],
) -> None:
    names = {
        alarm["AlarmName"].removeprefix(f"{stage.prefix}-")
        for stage in VARIANTS
        for alarm in app_templates[stage.stage].of_kind("AWS::CloudWatch::Alarm").values()
    }
    assert set(CHAPTERS) == names | {"service-down", *NOTICES}


@pytest.mark.parametrize("alarm", CHAPTERS)
def test_alarm_chapter_has_meaning_diagnosis_and_fix(alarm: str) -> None:
    assert re.findall(r"^\*\*(\w+)\.\*\*", CHAPTERS[alarm], re.MULTILINE) == ["Meaning", "Diagnose", "Fix"]


def test_runbook_links_resolve_to_headings() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= headings


def test_runbook_log_groups_exist_in_templates(
    app_templates: dict[str, StackTemplate], data_templates: dict[str, StackTemplate]
) -> None:
    made = {
        text(group["LogGroupName"])
        for templates in (app_templates, data_templates)
        for group in templates["prod"].of_kind("AWS::Logs::LogGroup").values()
        if "LogGroupName" in group
    }
    named = {name.replace("$P", PROD.prefix) for name in re.findall(r"/aws/[\w/-]*\$P[\w/-]*", TEXT)}
    assert len(named) >= 7
    assert named <= made


FIELDS = (
    # fields of our log lines
    "level message name service correlation_id @message @timestamp message_id query_id credential "
    "error_code reason "
    # fields of API Gateway's access log
    "apiKeyId error integrationStatus path responseBytes status"
)
LANGUAGE = "filter stats count sum pct as by sort desc fields limit like in and or ispresent bin m"
OWN_NAMES = "lines answers p95 requests bytes"


def test_runbook_queries_use_known_fields() -> None:
    tags = {tag for spec in METRICS.values() for tag in spec.tags}
    known = {*FIELDS.split(), *LANGUAGE.split(), *OWN_NAMES.split(), *tags}
    queries = re.findall(r"^    (?:filter|stats) (?:.|\n(?=    ))*", TEXT, re.MULTILINE)
    assert len(queries) >= 10
    for query in queries:
        without_texts = re.sub(r'"[^"]*"|/[^/]*/', "", query)
        for word in re.findall(r"@?[A-Za-z][\w.]*", without_texts):
            measured = re.sub(r"\.0$", "", word)
            assert word in known or measured in METRICS, (word, query)
