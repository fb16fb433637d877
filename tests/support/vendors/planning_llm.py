"""A scripted model that answers planning calls with scripted plans."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.errors import LLMError
from vectorforge.llm.types import Completion, LLMRequestConfig, Message, ProviderCall
from vectorforge.pipeline.planning.planner import PLANNING_PROMPT


class PlanningLLM(ScriptedLLM):
    """Returns ``plans`` one after the other, and the pieces of ``ScriptedLLM`` to every other call.

    Args:
        plans: Texts of plans, or errors to raise; without one left, an empty plan.
        plan_delay_s: Seconds before each plan.
        **options: See ``ScriptedLLM``.
    """

    def __init__(self, plans: Sequence[str | LLMError], *, plan_delay_s: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self._plans = list(plans)
        self._plan_delay_s = plan_delay_s
        self.planning: list[tuple[list[Message], LLMRequestConfig]] = []
        """Messages and settings of each planning call."""
        self.planned = asyncio.Event()
        """Set when the first planning call begins."""

    async def _call_api(self, call: ProviderCall) -> Completion:
        if not call.messages[0]["content"].startswith(PLANNING_PROMPT):
            return await super()._call_api(call)
        self.planning.append((list(call.messages), call.config))
        self.planned.set()
        await asyncio.sleep(self._plan_delay_s)
        plan = self._plans.pop(0) if self._plans else '{"queries": [], "read": 0}'
        if isinstance(plan, LLMError):
            raise plan
        return self._completion(call, plan)
