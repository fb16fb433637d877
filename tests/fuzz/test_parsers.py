"""A few hundred mutated inputs for each parser of foreign bytes; ``make fuzz`` is guided by coverage."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.parser_inputs import FOUND, inputs, spoiled
from tests.fuzz.parsers import PARSERS

pytestmark = pytest.mark.slow

_SLOW = {"docx": 20, "pdf": 40, "html": 60, "mail": 60, "pptx": 40, "workbook": 60, "epub": 60}
"""Number of inputs of parsers that take milliseconds each."""


@pytest.mark.parametrize("name", PARSERS)
def test_seed_inputs_are_parsed(name: str) -> None:
    for content in [*inputs(name), *FOUND.get(name, ())]:
        PARSERS[name](content)


# security 24: for any input, an error of ours or a valid result
@pytest.mark.parametrize("name", PARSERS)
def test_corrupted_inputs_are_rejected_or_parsed(name: str) -> None:
    @settings(max_examples=_SLOW.get(name, 150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(data=st.data())
    def read(data: st.DataObject) -> None:
        PARSERS[name](data.draw(spoiled(name)))

    read()
