"""What the exit code of a command says; scripts rely on it."""

from enum import IntEnum

from vectorforge.errors import (
    DatabaseError,
    DeadlineExceededError,
    EmbeddingError,
    LimitExceededError,
    LLMError,
    MigrationError,
    RetrievalError,
    SecretsUnavailableError,
    UnsafeRoleError,
    VectorForgeError,
)


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    INCOMPLETE = 1
    """Ran to its end, but not all is well."""
    USAGE = 2
    """The command line or a setting is wrong; trying again changes nothing."""
    UNAVAILABLE = 3
    """A service did not do its part; trying again may help."""
    BUG = 4
    """Something nobody expected."""
    INTERRUPTED = 130


EXIT_CODE_HELP = (
    "[bold]Exit codes:[/bold] "
    "[bold]0[/bold] done · "
    "[bold]1[/bold] done, but something is not well (a document failed, nothing was found, a check failed, "
    "migrations are pending, an evaluation found a regression) · "
    "[bold]2[/bold] the command line or a setting is wrong · "
    "[bold]3[/bold] the database or a model is unavailable · "
    "[bold]4[/bold] a bug · "
    "[bold]130[/bold] interrupted"
)

_UNAVAILABLE = (
    DatabaseError,
    DeadlineExceededError,
    EmbeddingError,
    LimitExceededError,
    LLMError,
    RetrievalError,
    SecretsUnavailableError,
)


def exit_code_for(error: VectorForgeError) -> ExitCode:
    """The exit code of a command that ended with this error."""
    if isinstance(error, (MigrationError, UnsafeRoleError)):
        return ExitCode.USAGE  # somebody has to change the setup; waiting does not help
    return ExitCode.UNAVAILABLE if isinstance(error, _UNAVAILABLE) else ExitCode.USAGE
