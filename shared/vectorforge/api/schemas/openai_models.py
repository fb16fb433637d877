"""Bodies of ``/v1/models``: https://platform.openai.com/docs/api-reference/models."""

from typing import Literal, Self

from pydantic import BaseModel, Field

from vectorforge.types import Collection


class ModelBody(BaseModel):
    """A preset that answers from a collection."""

    id: str = Field(description="What `model` of a question says.")
    object: Literal["model"] = "model"
    created: int = Field(description="When the collection was made; Unix time in seconds.")
    owned_by: Literal["vectorforge"] = "vectorforge"

    @classmethod
    def of(cls, name: str, collection: Collection) -> Self:
        """The body of the model of this name."""
        made = collection.created_at
        return cls(id=name, created=int(made.timestamp()) if made else 0)


class ModelList(BaseModel):
    """Every model of the tenant."""

    object: Literal["list"] = "list"
    data: list[ModelBody]
