"""The bundled query function: without the packages of the local embedding model."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from vectorforge.embedding.registry import _LOCAL_PACKAGES


class BundlePathFinder(PathFinder):
    """Import finder limited to a bundle's packages."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _LOCAL_PACKAGES:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = BundlePathFinder

from functions.query.handler import handler  # noqa: E402

__all__ = ["handler"]
