"""``/v1/stats``: numbers about the tenant's queries, and ``/statistics``: the page that draws them."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from vectorforge.api.dependencies import Tenant
from vectorforge.api.pages import page_response
from vectorforge.api.responses import problems
from vectorforge.api.schemas.query_filter import RangeParameters
from vectorforge.api.schemas.statistics import StatisticsBody, UsageList
from vectorforge.db.repositories.statistics_types import Bucket

router = APIRouter(tags=["statistics"])


class StatisticsParameters(RangeParameters):
    """Of ``/v1/stats``."""

    bucket: Bucket | None = None


@router.get("/v1/stats", responses=problems())
async def show_statistics(
    tenant: Tenant, parameters: Annotated[StatisticsParameters, Query()]
) -> StatisticsBody:
    """Queries, outcomes, latency, tokens, cost and quality of a range of time.

    Without `until` it ends now; without `since` it is seven days long, at most it is 400. `bucket` is the
    length of the intervals in `series`: hours for up to two days, else days, unless said otherwise (hours: 31
    days at most).
    """
    found = await tenant.statistics.collect(parameters.matching(), parameters.bucket)
    return StatisticsBody.model_validate(found)


@router.get("/v1/stats/usage", responses=problems())
async def list_usage(tenant: Tenant, parameters: Annotated[RangeParameters, Query()]) -> UsageList:
    """Tokens and cost by day, provider and model; the range as in `/v1/stats`."""
    return UsageList.model_validate({"usage": await tenant.statistics.usage(parameters.matching())})


@router.head("/statistics", include_in_schema=False)
@router.get("/statistics", include_in_schema=False)
async def statistics_page() -> HTMLResponse:
    """The page; it holds no data and asks for a key itself."""
    return page_response("statistics.html")
