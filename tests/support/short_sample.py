"""The package as a wheel installs it, with a sample that is embedded in two seconds instead of fifty."""

import shutil
from pathlib import Path

import vectorforge

_PACKAGE = Path(vectorforge.__file__).parent
_CHECKOUT = _PACKAGE.parents[1]
_PAGES = ("README.md", "docs/design/tenants.md", "docs/use/page.md", "docs/use/reranking.md")


def install(folder: Path) -> dict[str, str]:
    """Copy the package with the README and three pages into a folder; return variables that select the copy.

    A wheel has all pages at the same place (tests/infra/test_wheel.py).
    """
    copy = folder / _PACKAGE.name
    shutil.copytree(_PACKAGE, copy)  # with compiled modules: the times of their sources are copied, too
    for page in _PAGES:
        target = copy / "sample" / page
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(_CHECKOUT / page, target)
    return {"PYTHONPATH": str(folder)}
