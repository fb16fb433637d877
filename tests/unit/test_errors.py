"""Properties of errors that alarms rely on."""

import pytest

from vectorforge import errors
from vectorforge.api.problems import STATUS_OF
from vectorforge.errors import VectorForgeError

CLASSES = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, VectorForgeError)
]


@pytest.mark.parametrize("cls", CLASSES)
def test_a_fault_is_what_no_caller_can_mend(cls: type[VectorForgeError]) -> None:
    status = next(STATUS_OF[base] for base in cls.__mro__ if base in STATUS_OF)
    # Other 429s come of a vendor that limits us: the caller has done nothing wrong.
    limited_by_us = issubclass(cls, errors.LimitExceededError)
    assert cls.is_fault == (status >= 500 or (status == 429 and not limited_by_us))
