"""A few generated requests of each kind of the OpenAPI document; ``make fuzz`` sends 10,000."""

from pathlib import Path

import pytest

from tests.fuzz.api_requests import ApiFindings, fuzz_api
from tests.fuzz.api_server import ApiServer

pytestmark = pytest.mark.slow


def explained(findings: ApiFindings, server_log: Path) -> str:
    shown = [f"{what}\n{example}" for what, example in findings.problems.items()]
    return "\n\n".join([*shown, server_log.read_text()[-3000:]])


# security 24: no 500, and no status, content type or body outside the document
async def test_fuzzed_operations_respond_as_documented(server: ApiServer, server_log: Path) -> None:
    findings = await fuzz_api(server, cases=140, seed_number=7)
    assert not findings.problems, explained(findings, server_log)
    assert len(findings.statuses) > 65
    assert findings.total[200] > 30  # accepted requests, too
