"""Operating system account of the embedded PostgreSQL."""

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vectorforge.errors import ConfigurationError

ACCOUNTS = ("postgres", "vectorforge")
"""Accounts for a server started by root: the first that exists; the last is created if none does."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group id."""

    uid: int
    gid: int

    @property
    def is_other(self) -> bool:
        """True if it differs from the account of this process."""
        return self.uid != os.geteuid()

    def own(self, directory: Path) -> None:
        """Make this account the owner of a directory, without access for others."""
        directory.chmod(0o700)
        if self.is_other:
            os.chown(directory, self.uid, self.gid, follow_symlinks=False)

    def run_as(self) -> dict[str, Any]:
        """Keywords for ``subprocess``."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_other else {}


def account_for(data_dir: Path) -> Account:
    """Return the account for a server: that of this process; for root, an unprivileged one.

    Raises:
        ConfigurationError: There is no unprivileged account for root.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if data_dir.exists():
        status = data_dir.stat()
        if status.st_uid != 0:
            return Account(status.st_uid, status.st_gid)
    return _lesser_account()


def make_folder(folder: Path, account: Account) -> None:
    """Create a folder and its parents so that an account may pass them; existing ones are not changed.

    Raises:
        OSError: It cannot be created.
    """
    missing = [directory for directory in (folder, *folder.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
        if account.is_other:
            directory.chmod(0o711)  # to pass, not to list


def closed_above(path: Path, account: Account | None = None) -> Path | None:
    """Return the topmost parent directory that an account (None: any other user) cannot pass, if any."""
    directories = {*path.absolute().parents, *path.resolve().parents}
    for directory in sorted(directories, key=lambda parent: len(parent.parts)):
        if directory.exists() and not _passes(directory.stat(), account):
            return directory
    return None


def _passes(status: os.stat_result, account: Account | None) -> bool:
    if account is not None and account.uid in (0, status.st_uid):
        return account.uid == 0 or bool(status.st_mode & stat.S_IXUSR)
    if account is not None and account.gid == status.st_gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


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
