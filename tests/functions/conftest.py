"""What several tests of functions need."""

from collections.abc import Iterator

import pytest

from tests.functions.migrate_process import Stack, running


@pytest.fixture
def stack() -> Iterator[Stack]:
    waiting = Stack()
    with running(waiting.server):
        yield waiting
