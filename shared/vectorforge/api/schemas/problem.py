"""RFC 9457 problem documents (https://www.rfc-editor.org/rfc/rfc9457)."""

from pydantic import BaseModel, Field


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str = Field(description="Name of the field as the caller wrote it; nested names joined by dots.")
    message: str
    limit: int | float | None = Field(default=None, description="The bound that was crossed.")


class Problem(BaseModel):
    """An error, as ``application/problem+json``."""

    type: str = Field(description="URN that names the kind of problem.")
    title: str = Field(description="The kind of problem in words; the same for every occurrence.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What happened this time.")
    code: str = Field(description="Stable identifier for programs.")
    request_id: str = Field(description="Names the request in the server's log; also in X-Request-Id.")
    errors: list[FieldProblem] | None = Field(default=None, description="The fields at fault, at most 20.")
