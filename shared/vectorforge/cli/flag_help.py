"""Help that shows flags without a type: ``--json``, not ``--json <bool>``."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption


def _hide_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_bool_flag:
            param.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_flag_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_flag_types(super().get_params(ctx))


def hide_flag_types(app: typer.Typer) -> None:
    """Let the app's help, and that of all its commands, show flags without a type."""
    app.info.cls = _Group
    for command in app.registered_commands:
        command.cls = _Command
    for group in app.registered_groups:
        group.cls = _Group
        if group.typer_instance is not None:
            hide_flag_types(group.typer_instance)
