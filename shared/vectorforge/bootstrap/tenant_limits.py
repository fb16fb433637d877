"""What holds one tenant, and one of its requests, to the limits."""

from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from vectorforge.db.connection import TenantDatabase
from vectorforge.limits.admission import Admission, charge
from vectorforge.limits.settings import Claim
from vectorforge.pipeline.prices import PriceList
from vectorforge.pipeline.types import QueryConfig

if TYPE_CHECKING:
    from vectorforge.bootstrap.application import Application
    from vectorforge.limits.settings import TenantLimits

_LATEST_END_S = 30.0
"""After a question's deadline: by then it has settled what it used, or its process is gone."""


class LimitServices:
    """The limits of one tenant, and the way of one of its requests past them.

    Args:
        application: Has the settings, and what this process remembers of limits.
        db: Of the tenant.
        request_id: Made by this server for the request; None: the services are for the operator, or for work
            that was let in before, and nothing asks for admission.
    """

    def __init__(self, application: "Application", db: TenantDatabase, request_id: UUID | None) -> None:
        self._application = application
        self._db = db
        hold_s = application.config.query.query_timeout_s + _LATEST_END_S
        self.admission: Admission | None = None
        if request_id is not None:
            self.admission = Admission(db, application.limit_gate, request_id, hold_s=hold_s)

    @cached_property
    def own(self) -> "TenantLimits":
        """The tenant's own limits."""
        from vectorforge.limits.settings import TenantLimits

        return TenantLimits(self._db)

    async def admit(self, claim: Claim = Claim()) -> None:  # noqa: B008 - immutable
        """Hold the request to the tenant's limits, before it costs anything. Only the first call asks.

        Raises:
            As ``Admission.admit``.
        """
        if self.admission is not None:
            await self.admission.admit(lambda: claim)

    def note_used(self, tokens: int) -> None:
        """Have the end of the request settle these tokens in place of what was claimed."""
        if self.admission is not None:
            self.admission.settling(tokens, None)

    async def charge(self, tokens: int) -> None:
        """Count tokens that are about to be used in the background.

        Raises:
            LimitExceededError: They do not fit into the tenant's day.
            InvalidInputError: They would not fit into any day.
        """
        await charge(self._db, self._application.limit_gate, tokens)

    def claim(self, query: str, config: QueryConfig, *, is_stream: bool) -> Claim:
        """Return the most that a query may use."""
        from vectorforge.pipeline.prices import query_claim  # where there may be a limit

        settings = self._application.config
        return query_claim(
            query,
            config,
            is_stream=is_stream,
            settings=settings,
            registry=self._application.llm_registry,
            prices=PriceList(settings.llm.model_prices),
        )
