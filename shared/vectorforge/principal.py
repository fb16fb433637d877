"""Who a request comes from, and what they may do."""

from dataclasses import dataclass, field
from enum import StrEnum


class Scope(StrEnum):
    """What a credential may do within its tenant; each includes those before it."""

    READ = "read"
    """Ask, search, and see collections and documents."""
    WRITE = "write"
    """Add, change and delete documents, profiles and collections."""
    ADMIN = "admin"
    """Keys, everybody's questions and costs, changes of the embedding model."""

    @property
    def included(self) -> "frozenset[Scope]":
        """This scope and those that it includes."""
        ordered = list(Scope)
        return frozenset(ordered[: ordered.index(self) + 1])


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a credential stands for. No field is a secret."""

    tenant: str
    """The tenant: 1 to 128 bytes."""
    scopes: frozenset[Scope]
    """What it may do; a scope that includes others stands beside these. May be empty."""
    credential: str
    """Names the credential in logs: a key's id, a role's name, the hash of a token's subject."""
    remembered_keys: frozenset[str] = field(default=frozenset(), compare=False)
    """Ids of keys that were taken from memory: whether they are still good is to be asked."""

    def allows(self, scope: Scope) -> bool:
        """Whether it may do what needs this scope."""
        return scope in self.scopes
