"""``model`` in OpenAI's words: a preset of ours and, after a slash, a collection."""

from dataclasses import dataclass

from vectorforge.api.schemas.base import MAX_NAME_CHARS
from vectorforge.errors import AnsweringModelNotFoundError
from vectorforge.pipeline.presets import DOCRAG, RAG_QUERY, VECTORFORGE, Preset

ASKABLE = {preset.name: preset for preset in (VECTORFORGE, RAG_QUERY, DOCRAG)}
"""Presets that a model's name may begin with; profiles need a number and have a door of their own."""


@dataclass(frozen=True, slots=True)
class AskedModel:
    """What a model's name asks for."""

    name: str
    """As it was asked for, to be said again in the answer."""
    preset: Preset
    collection: str | None
    """Name or id; None: the default collection."""

    @classmethod
    def parse(cls, name: str) -> "AskedModel":
        """``vectorforge``, ``vectorforge/handbook``, ``docrag/handbook`` and so on.

        Raises:
            AnsweringModelNotFoundError: It begins with no preset, or no collection can
                have the name that follows.
        """
        prefix, slash, collection = name.partition("/")
        preset = ASKABLE.get(prefix)
        if preset is None or (slash and not collection) or len(collection) > MAX_NAME_CHARS:
            raise AnsweringModelNotFoundError
        return cls(name, preset, collection or None)


def model_name(preset: str, collection: str | None = None) -> str:
    """The name of the model that answers from this collection."""
    return f"{preset}/{collection}" if collection else preset
