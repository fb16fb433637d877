"""One line for each request of a known caller: which credential did what, and which answer it got."""

import logging
import time

from starlette.types import Scope

from vectorforge.principal import Principal

logger = logging.getLogger(__name__)


def log_access(scope: Scope) -> None:
    """Say who asked for what, at INFO; nothing where nobody was recognised, which anybody can bring about.

    The route's template stands for the path, the credential's name for the credential. The id is the one of
    the query log, if the request was a question.
    """
    state = scope["state"]
    principal = state.get("principal")
    if not isinstance(principal, Principal) or not logger.isEnabledFor(logging.INFO):
        return
    logger.info(
        "%s %s: %s in %.0f ms, by %s of %r",
        scope["method"],
        getattr(scope.get("route"), "path", "unmatched"),
        state.get("status", "no answer"),
        (time.monotonic() - state["arrived"]) * 1000,
        principal.credential,
        principal.tenant,
        extra={"credential": principal.credential, "query_id": str(state["query_id"])},
    )
