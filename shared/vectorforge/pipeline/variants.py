"""Variants: named overlays on the immutable query configuration, chosen by a request or by a stable split."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID

from vectorforge.config import QuerySettings
from vectorforge.errors import ConfigurationError, InvalidInputError


@dataclass(frozen=True, slots=True)
class Variant:
    """Immutable overlay between a preset's defaults and the values of a request."""

    name: str
    overlay: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Fields of ``QueryConfig``."""


BUILT_IN: Mapping[str, Variant] = MappingProxyType(
    {
        variant.name: variant
        for variant in (
            Variant("default"),
            Variant("precise", MappingProxyType({"temperature": 0.1, "max_tokens": 500})),
            Variant("comprehensive", MappingProxyType({"temperature": 0.3, "max_tokens": 1000})),
        )
    }
)
"""Variants of every deployment."""


class VariantCatalogue:
    """All variants of a deployment, and their split among requests. Immutable.

    Args:
        settings: Variants in addition to ``BUILT_IN``, and the split.
        llm_providers: Names of the configured providers.
        embedding_providers: Names of the configured providers.

    Raises:
        ConfigurationError: A variant has the name of a built-in one, exceeds a limit of the settings or names
            an unknown provider, or the split names an unknown variant or has no weight.
    """

    def __init__(
        self,
        settings: QuerySettings,
        *,
        llm_providers: Iterable[str] = (),
        embedding_providers: Iterable[str] = (),
    ) -> None:
        self._limits = {"top_k": settings.max_top_k, "max_tokens": settings.max_answer_tokens}
        self._choices = {
            "llm_provider": tuple(llm_providers),
            "embedding_provider": tuple(embedding_providers),
        }
        own = {name: self._checked(name, overlay.fields) for name, overlay in settings.variants.items()}
        self._variants: Mapping[str, Variant] = MappingProxyType({**BUILT_IN, **own})
        self._split_by: Literal["tenant", "conversation"] = settings.variant_split_by
        self._weights = self._checked_split(settings.variant_split)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all variants, the built-in ones first."""
        return tuple(self._variants)

    def find(self, name: str) -> Variant:
        """Return the variant of this name.

        Raises:
            InvalidInputError: It does not exist; the message lists the variants.
        """
        try:
            return self._variants[name]
        except (KeyError, TypeError):
            raise InvalidInputError(
                f"There is no such variant; there are: {', '.join(self._variants)}.", field="variant"
            ) from None

    def choose(
        self, name: str | None, conversation_id: UUID | None = None, *, tenant_id: str
    ) -> Variant | None:
        """Return the variant of a request: the one it names, else that of the split, else None.

        Args:
            name: Variant of the request; None for the split.
            conversation_id: Stored conversation of the request.
            tenant_id: Has the same variant each time, unless the split is by conversation and there is one.

        Raises:
            InvalidInputError: The request names an unknown variant.
        """
        if name is not None:
            return self.find(name)
        if not self._weights:
            return None
        by_conversation = self._split_by == "conversation" and conversation_id is not None
        key = f"{tenant_id}\0{conversation_id}" if by_conversation else tenant_id
        return self._variants[split(key, self._weights)]

    def _checked(self, name: str, overlay: Mapping[str, Any]) -> Variant:
        if name in BUILT_IN:
            raise _refused(name, "is built in; give yours another name")
        for limited, limit in self._limits.items():
            if overlay.get(limited, 0) > limit:
                raise _refused(f"{name}.{limited}", f"must be at most {limit}")
        for chosen, available in self._choices.items():
            if overlay.get(chosen) not in (None, *available):
                names = ", ".join(available) or "none"
                raise _refused(f"{name}.{chosen}", f"there is no such provider; there are: {names}")
        return Variant(name, MappingProxyType(dict(overlay)))

    def _checked_split(self, weights: Mapping[str, float]) -> Mapping[str, float]:
        setting = "VECTORFORGE_VARIANT_SPLIT"
        if unknown := [name for name in weights if name not in self._variants]:
            raise ConfigurationError(
                f"{setting}: there is no variant {unknown[0]}; there are: {', '.join(self._variants)}."
            )
        if weights and not any(weights.values()):
            raise ConfigurationError(f"{setting}: at least one weight must be above 0.")
        return MappingProxyType({name: weight for name, weight in weights.items() if weight > 0})


def split(key: str, weights: Mapping[str, float]) -> str:
    """Return one of the names, the same for the same key, in proportion to the weights.

    Weighted rendezvous hashing: a changed weight moves keys to or from that name only, and the order of the
    names does not matter (Schindelhauer and Schomaker 2005, "Weighted Distributed Hash Tables";
    https://en.wikipedia.org/wiki/Rendezvous_hashing#Weighted_rendezvous_hash).

    Args:
        key: Key of the choice.
        weights: Name -> weight above 0, at least one.
    """
    return max(weights, key=lambda name: (weights[name] / -math.log(_uniform(f"{key}\0{name}")), name))


def _uniform(text: str) -> float:
    """Return a number in the open interval (0, 1), from 52 bits of a hash."""
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]) >> 12
    return (number + 0.5) / 2**52


def _refused(place: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"VECTORFORGE_VARIANTS.{place}: {why}.")
