"""Request parameters that a model refused, remembered so that each costs one refusal only."""

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_MAX_MODELS = 256
"""Model names come from callers."""

_ABOUT_THE_PARAMETER = re.compile(
    r"unsupported|n[o']t support|deprecated|no longer|unknown|unrecogni[sz]ed|unexpected|extraneous|"
    r"(extra|additional) (inputs|fields|properties|parameters)|(cannot|can't|can not|may not)\b.{0,40}\bbe "
    r"(used|set|specified|combined)",
    re.IGNORECASE,
)
"""Texts and codes that say that the model does not take a parameter. Others complain about its value:
left out, the parameter would not be sent again, whatever its value."""
_ABOUT_THE_VALUE = re.compile(r"invalid_(value|type)|(above_max|below_min)_(value|length)")
"""Error codes that complain about a parameter's value, not about the parameter."""


class RefusedParameters:
    """What each model of a provider refused, for the life of the process; the latest 256 models."""

    def __init__(self) -> None:
        self._by_model: OrderedDict[str, frozenset[str]] = OrderedDict()

    def of(self, model: str) -> frozenset[str]:
        """Names that this model has refused."""
        return self._by_model.get(model, frozenset())

    async def send(
        self,
        model: str,
        attempt: Callable[[frozenset[str]], Awaitable[T]],
        refused_name: Callable[[Exception], str | None],
    ) -> tuple[T, frozenset[str]]:
        """Send a request, again without each parameter that the model turns out to refuse.

        Args:
            model: Whose refusals to remember. They are, once a request without them is accepted.
            attempt: Sends the request without the given parameters.
            refused_name: Which parameter an exception refuses; None lets the exception pass.

        Returns:
            What ``attempt`` returned, and the parameters it went without.
        """
        refused = self.of(model)
        while True:
            try:
                result = await attempt(refused)
            except Exception as exc:
                name = refused_name(exc)
                if name is None or name in refused:
                    raise
                refused |= {name}
            else:
                self._remember(model, refused)
                return result, refused

    def _remember(self, model: str, refused: frozenset[str]) -> None:
        if not refused:
            return
        self._by_model[model] = refused
        self._by_model.move_to_end(model)
        if len(self._by_model) > _MAX_MODELS:
            self._by_model.popitem(last=False)


def named_parameter(
    candidates: Iterable[str], *, message: str, param: str | None = None, code: str | None = None
) -> str | None:
    """The first of ``candidates`` that a vendor says the model does not take, whatever its value.

    Args:
        candidates: Parameters that may be left out.
        message: The vendor's text; searched only when the vendor names no ``param``.
        param: The parameter that the vendor names.
        code: The vendor's error code.
    """
    if code and _ABOUT_THE_VALUE.search(code):
        return None
    if not _ABOUT_THE_PARAMETER.search(f"{code} {message}"):
        return None
    for name in candidates:
        if name == param or (not param and re.search(rf"\b{re.escape(name)}\b", message)):
            return name
    return None
