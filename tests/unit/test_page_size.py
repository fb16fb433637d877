"""Size of the pages' JavaScript, as served: neither bundled nor minified."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "shared" / "vectorforge" / "api" / "page"
MOST_BYTES = {"index": 93_100, "source": 30_000, "statistics": 23_000, "explorer": 15_800}
MOST_BYTES_IN_ALL = 117_900


@pytest.mark.parametrize(("page", "most"), MOST_BYTES.items())
def test_page_loads_at_most_so_much_javascript(page: str, most: int) -> None:
    scripts = re.findall(r'src="([\w/]+\.js)"', (PAGE / f"{page}.html").read_text(encoding="utf-8"))
    assert scripts
    assert sum((PAGE / script).stat().st_size for script in scripts) <= most


def test_javascript_of_all_pages_is_at_most_so_much() -> None:
    assert sum(path.stat().st_size for path in PAGE.rglob("*.js")) <= MOST_BYTES_IN_ALL
