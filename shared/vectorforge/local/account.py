"""The operating system's account that the embedded PostgreSQL runs as."""

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vectorforge.errors import ConfigurationError

ACCOUNTS = ("postgres", "vectorforge")
"""Accounts for a server started by root: the first that exists; the last is made if none does."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group id."""

    uid: int
    gid: int

    @property
    def is_other(self) -> bool:
        """Whether it differs from the account of this process."""
        return self.uid != os.geteuid()

    def own(self, directory: Path) -> None:
        """Give this account a directory of its own, closed to everybody else."""
        directory.chmod(0o700)
        if self.is_other:
            os.chown(directory, self.uid, self.gid, follow_symlinks=False)

    def run_as(self) -> dict[str, Any]:
        """Keywords for ``subprocess``."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_other else {}


def account_for(data_dir: Path) -> Account:
    """The account for a server over this directory: this process's own, or, for root, a lesser one.

    Raises:
        ConfigurationError: Root has no account to give it to.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if data_dir.exists():
        found = data_dir.stat()
        if found.st_uid != 0:
            return Account(found.st_uid, found.st_gid)
    return _lesser_account()


def let_through(path: Path) -> None:
    """Let other accounts pass (not list) the directories above this one; only root needs that.

    An account other than root cannot otherwise reach a server or data below root's home.
    """
    for directory in path.parents:
        mode = stat.S_IMODE(directory.stat().st_mode)
        if not mode & stat.S_IXOTH:
            directory.chmod(mode | stat.S_IXOTH)


def _lesser_account() -> Account:
    import pwd

    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    useradd = shutil.which("useradd")
    if useradd is None:
        raise ConfigurationError("PostgreSQL does not run as root; use an ordinary account.")
    command = [useradd, "--system", "--user-group", "--no-create-home", ACCOUNTS[-1]]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - fixed arguments, no shell
    if done.returncode != 0:
        raise ConfigurationError(f"PostgreSQL does not run as root, and account {ACCOUNTS[-1]} was not made.")
    entry = pwd.getpwnam(ACCOUNTS[-1])
    return Account(entry.pw_uid, entry.pw_gid)
