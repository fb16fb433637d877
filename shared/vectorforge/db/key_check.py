"""Keys that a request was let in with from memory: its first transaction asks whether they are still good."""

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING

from vectorforge.errors import AuthenticationError

if TYPE_CHECKING:
    from vectorforge.db.wire import Call

WRONG_KEY = "The API key is not valid."
"""The same for every key that is none, so that nobody learns which ones there were."""

KEY_CHECK: ContextVar["KeyCheck | None"] = ContextVar("key_check", default=None)
"""Of the request that is being answered; None: nothing was taken from memory."""


_CHECK_KEYS = ", vectorforge.check_keys(%s::text[])"
"""Goes on with a statement that enters: of a list of results, those to the left are computed first."""


class KeyCheck:
    """Asked for by the first transaction of a request, in the statement that enters its tenant.

    Until one has passed, every one asks, so that no step that goes on without the database goes past it.

    Args:
        keys: Their ids, all of one tenant.
        forget: Told the id of each key when one is refused.
    """

    __slots__ = ("_forget", "is_due", "keys")

    def __init__(self, keys: frozenset[str], forget: Callable[[str], None]) -> None:
        self.keys = sorted(keys)
        self._forget = forget
        self.is_due = True

    def beside(self, enter: "Call") -> "Call":
        """The statement that enters the tenant of the keys, and checks them."""
        query, params = enter
        return query + _CHECK_KEYS, (*params, self.keys)

    def __enter__(self) -> None:
        """The statement is run in here."""

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is None:
            self.is_due = False
        elif isinstance(exc, AuthenticationError):
            for key_id in self.keys:
                self._forget(key_id)  # who comes next with one of them is looked up


def due_check() -> KeyCheck | None:
    """The running request's, if nobody has asked yet."""
    check = KEY_CHECK.get()
    return check if check is not None and check.is_due else None
