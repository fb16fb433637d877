"""Replacement of ``/var/runtime/bootstrap.py`` of a managed Python runtime; ``exec_wrapper`` starts it.

Like the original it orders ``sys.path`` first: otherwise packages in layers would be missing, and the
runtime's own copies would precede those in the bundle.
"""

import os
import site
import sys
from collections.abc import MutableMapping
from pathlib import Path


def set_up_path(bootstrap: str, environment: MutableMapping[str, str], layers: str = "/opt/python") -> None:
    """Order ``sys.path`` as the managed runtime does (observed in the images of Python 3.10 and 3.11).

    Task root; unless ``PYTHONPATH`` is set, the layers and the interpreter's packages; the runtime's folder;
    then what the interpreter had. ``.pth`` files of the same folders are read.

    Args:
        bootstrap: Path of the replaced ``bootstrap.py``.
        environment: Has ``LAMBDA_TASK_ROOT``; gets ``PYTHONPATH``, for processes that the function starts.
        layers: Where layers put their packages.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    layer_folders = [f"{layers}/lib/{version}/site-packages", layers]
    task_root, runtime = environment["LAMBDA_TASK_ROOT"], str(Path(bootstrap).parent)
    path = [task_root, runtime]  # the first entry was this file's folder: its names would hide the function's
    site_folders = [task_root]
    if "PYTHONPATH" not in environment:
        path[1:1] = [*layer_folders, *site.getsitepackages()[:1]]
        site_folders += layer_folders
        environment["PYTHONPATH"] = runtime
    sys.path[:1] = path
    for folder in site_folders:
        site.addsitedir(folder)


if __name__ == "__main__":
    set_up_path(sys.argv[1], os.environ)
    from vectorforge.runtime.process import main

    main(sys.argv[:1])
