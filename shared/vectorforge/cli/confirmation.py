"""Asking before something is lost, or costs."""

import sys

import typer

from vectorforge.errors import InvalidInputError


def confirm(question: str, *, yes: bool) -> None:
    """Go on only when the user agrees.

    Raises:
        typer.Abort: The user said no.
        InvalidInputError: Nobody is there to be asked, and ``--yes`` was not given.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInputError("Nobody can be asked here; give --yes to go on.", field="--yes")
    typer.confirm(question, abort=True, err=True)
