"""Errors of what stores and finds: database, buckets, queues."""

from vectorforge.errors.base import VectorForgeError


class ObjectStoreError(VectorForgeError):
    """The object could not be read."""

    code = "object_store_error"
    retryable = True


class QueueError(VectorForgeError):
    """The queue did not take the message."""

    code = "queue_error"
    retryable = True


class RetrievalError(VectorForgeError):
    """The search failed."""

    code = "retrieval_error"


class DatabaseError(VectorForgeError):
    """The database refused a statement."""

    code = "database_error"


class DatabaseUnavailableError(DatabaseError):
    """The database cannot be reached."""

    code = "database_unavailable"
    retryable = True


class DatabaseLoginError(DatabaseUnavailableError):
    """The database refused the role or its password."""


class UntrustedDatabaseError(DatabaseUnavailableError):
    """The database's TLS certificate cannot be trusted."""


class RefusedRowError(DatabaseError):
    """The database does not take a value or a row: its type, range or a constraint forbids it."""


class MigrationError(DatabaseError):
    """The database schema cannot be brought up to date."""

    code = "migration_error"


class UnsafeRoleError(DatabaseError):
    """The database role bypasses row-level security."""

    code = "unsafe_role"
