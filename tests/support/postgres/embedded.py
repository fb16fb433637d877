"""Statements on an embedded server, and its abrupt end."""

import os
import signal
from pathlib import Path

import psutil
import psycopg

from vectorforge.local.postgres import EmbeddedPostgres


def run(server: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.migrator_url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def kill(server: EmbeddedPostgres) -> None:
    """Kill the server's main process with SIGKILL, as the kernel does when memory runs out."""
    os.kill(server.pid, signal.SIGKILL)


def kill_below(directory: Path) -> None:
    for process in psutil.process_iter():
        try:
            if process.name() == "postgres" and Path(process.cwd()).is_relative_to(directory):
                process.kill()
        except psutil.Error:
            pass  # ended meanwhile, or owned by another user
