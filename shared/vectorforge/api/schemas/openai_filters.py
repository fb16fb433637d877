"""OpenAI's attribute filters (https://developers.openai.com/api/docs/guides/retrieval), in our own words."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from vectorforge.vectorstore.filters import MAX_CONDITIONS, MAX_KEY_LENGTH, MAX_LIST_LENGTH

_COMPOUND = ("and", "or")
_OF_LISTS = ("in", "nin")


class AttributeFilter(BaseModel):
    """``{"type": "eq", "key": "year", "value": 2024}``, or several such in ``and`` and ``or``."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "and", "or"]
    key: Annotated[str, Field(min_length=1, max_length=MAX_KEY_LENGTH)] | None = Field(
        default=None, description="Of a comparison: the attribute; a dot leads into a nested object."
    )
    value: Any = Field(
        default=None, description="Of a comparison: string, number or boolean; of in and nin, a list of them."
    )
    filters: Annotated[list["AttributeFilter"], Field(min_length=1, max_length=MAX_CONDITIONS)] | None = (
        Field(default=None, description="Of and, or: the conditions.")
    )

    @model_validator(mode="after")
    def _usable(self) -> "AttributeFilter":
        if self.type in _COMPOUND:
            if self.filters is None or not {"key", "value"}.isdisjoint(self.model_fields_set):
                raise ValueError(f"{self.type} has filters, and neither key nor value")
            return self
        if self.key is None or self.filters is not None:
            raise ValueError(f"{self.type} has key and value, and no filters")
        if self.key.startswith("$"):
            raise ValueError("key must not begin with $")
        if self.type in _OF_LISTS:
            if not isinstance(self.value, list) or len(self.value) > MAX_LIST_LENGTH:
                raise ValueError(f"{self.type} takes a list of at most {MAX_LIST_LENGTH} values")
        elif not isinstance(self.value, str | int | float):
            raise ValueError(f"{self.type} takes a string, a number or a boolean")
        return self

    def translated(self) -> dict[str, Any]:
        """The same condition as our own filter; ``vectorstore.filters`` checks the values of lists."""
        if self.filters is not None:
            return {f"${self.type}": [part.translated() for part in self.filters]}
        return {str(self.key): {f"${self.type}": self.value}}
