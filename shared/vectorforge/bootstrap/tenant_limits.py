"""Limits of one tenant, and the admission of one of its requests."""

from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.limits.admission import Admission, charge
from vectorforge.limits.settings import Claim
from vectorforge.pipeline.prices import PriceList
from vectorforge.pipeline.types import QueryConfig

if TYPE_CHECKING:
    from vectorforge.bootstrap.shared import Shared
    from vectorforge.limits.settings import TenantLimits

_LATEST_END_S = 30.0
"""After a query's deadline: by then it is settled, or its process is gone."""


class LimitServices:
    """Limits of one tenant, and the admission of one of its requests.

    Args:
        application: Settings, and the limits known to this process.
        db: Database of the tenant.
        request_id: Id made by this server for the request; None: the services are for the operator or for
            background work, which need no admission.
    """

    def __init__(self, application: "Shared", db: TenantDatabase, request_id: UUID | None) -> None:
        self._application = application
        self._db = db
        hold_s = application.config.query.query_timeout_s + _LATEST_END_S
        self.admission: Admission | None = None
        if request_id is not None:
            self.admission = Admission(db, application.limit_gate, request_id, hold_s=hold_s)

    @cached_property
    def own(self) -> "TenantLimits":
        """Limits in the database."""
        from vectorforge.limits.settings import TenantLimits

        return TenantLimits(self._db)

    async def admit(self, claim: Claim = Claim()) -> None:  # noqa: B008 - immutable
        """Admit the request before it costs anything; raises as ``Admission.admit``."""
        if self.admission is not None:
            await self.admission.admit(lambda: claim)

    def note_used(self, tokens: int) -> None:
        """Note the tokens that the end of the request settles."""
        if self.admission is not None:
            self.admission.settling(tokens, None)

    async def charge(self, tokens: int) -> None:
        """Count tokens of background work before they are used; raises as ``limits.admission.charge``."""
        await charge(self._db, self._application.limit_gate, tokens)

    def claim(self, query: str, config: QueryConfig, *, is_stream: bool) -> Claim:
        """Return the most that a query may use."""
        from vectorforge.pipeline.prices import query_claim  # only if there may be a limit

        settings = self._application.config
        return query_claim(
            query,
            config,
            is_stream=is_stream,
            settings=settings,
            registry=self._application.llm_registry,
            prices=PriceList(settings.llm.model_prices),
        )
