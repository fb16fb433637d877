"""A few runs of the state machines; ``make fuzz`` has hundreds."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fuzz.api_server import ApiServer
from tests.fuzz.document_machines import MACHINES, machine_for

pytestmark = pytest.mark.slow


# security 8; the goal of atomic replacement
@pytest.mark.parametrize("name", MACHINES)
def test_document_state_machine_matches_dictionary_model(name: str, server: ApiServer) -> None:
    machine, counts = machine_for(name, server)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=6,
            stateful_step_count=6,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert counts.compared
