"""The report of an evaluation in a browser: offline, on a phone, and in dark mode."""

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from vectorforge.evaluation.comparison import summarize
from vectorforge.evaluation.metrics import Bootstrap, measures_at
from vectorforge.evaluation.questions import Question, QuestionSet, Relevant
from vectorforge.evaluation.report import write_report
from vectorforge.evaluation.run import Outcome, Plan, Run
from vectorforge.evaluation.scoring import Scored, ShownChunk

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LONG = "a-very-long-name-without-a-place-to-break-" * 5


@pytest.fixture
def report(tmp_path: Path) -> Path:
    questions = tuple(
        Question(str(n), f"Question {n} of {LONG}?", (Relevant(source=f"{LONG}{n}.md"),), ("x",))
        for n in range(60)
    )

    def score(question: Question, recall: float) -> Scored:
        values = {"recall": recall, "ndcg": recall * 0.9, "mrr": recall * 0.8, "failed": 0.0}
        values["latency_ms"] = 100.0 + int(question.id)
        found = ShownChunk(f"{LONG}.md", "Heading", "A passage. " * 20, 0.5, relevant=recall > 0)
        return Scored(question, values, (found,), answer="An answer. " * 20)

    runs = [
        Run(LONG, [score(q, 1.0 if int(q.id) % 3 else 0.5) for q in questions]),
        Run("worse", [score(q, 0.2 if int(q.id) % 4 else 0.9) for q in questions]),
    ]
    plan = Plan(QuestionSet("questions", questions), [run.variant for run in runs])
    path = tmp_path / "report.html"
    write_report(path, Outcome(plan, "handbook", runs), summarize(runs, measures_at(10), Bootstrap(200)))
    return path


@pytest_asyncio.fixture(loop_scope="session")
async def pages(browser: Browser) -> Any:
    """Open files in a new context without network; any error fails the test."""
    opened: list[Page] = []
    findings: list[str] = []

    async def open_file(path: Path, **options: Any) -> Page:
        context = await browser.new_context(**options)
        page = await context.new_page()
        opened.append(page)
        page.on("console", lambda message: findings.append(message.text))
        page.on("pageerror", lambda error: findings.append(str(error)))
        page.on(
            "request", lambda request: findings.append(request.url) if request.url != path.as_uri() else None
        )
        await page.goto(path.as_uri())
        return page

    yield open_file
    for page in opened:
        await page.context.close()
    assert findings == []


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.slow)])
async def test_report_fits_the_screen_width(report: Path, pages: Any, width: int) -> None:
    page = await pages(report, viewport={"width": width, "height": 800})
    for details in await page.locator("details").all():
        await details.evaluate("node => { node.open = true }")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await page.get_by_role("img").count() == 9  # 5 bars, 3 differences, 1 of queries
    # Labels in plots stay readable: no smaller than 10 pixels in height.
    heights = await page.eval_on_selector_all(
        "svg text", "all => all.map(t => t.getBoundingClientRect().height)"
    )
    assert min(heights) >= 10


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
async def test_report_text_contrast_is_readable_in_both_schemes(
    report: Path, pages: Any, scheme: str
) -> None:
    page = await pages(report, color_scheme=scheme)
    contrasts: dict[str, float] = await page.evaluate(CONTRASTS)
    assert contrasts.keys() == {"body", ".quiet", ".bad-text", "svg text"}
    assert min(contrasts.values()) >= 4.5, contrasts  # https://www.w3.org/TR/WCAG22/#contrast-minimum


async def test_report_opens_worst_regression_first(report: Path, pages: Any) -> None:
    page = await pages(report)
    await page.get_by_text("regressions", exact=False).first.wait_for()
    first = page.locator("details").first
    assert not await first.get_by_text("Expected").is_visible()
    await first.locator("summary").click()
    assert await first.get_by_text("Expected").is_visible()
    assert await first.get_by_text("Answered").is_visible()
    label = await page.get_by_role("img").first.get_attribute("aria-label")
    assert label is not None
    assert label.startswith("recall@10: ")


CONTRASTS = """
() => {
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = colour => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  };
  const back = node => {
    for (let n = node; n; n = n.parentElement) {
      const colour = getComputedStyle(n).backgroundColor;
      if (!colour.endsWith(", 0)")) return light(colour);
    }
  };
  return Object.fromEntries(["body", ".quiet", ".bad-text", "svg text"].map(selector => {
    const node = document.querySelector(selector), style = getComputedStyle(node);
    const front = light(selector === "svg text" ? style.fill : style.color), behind = back(node);
    return [selector, (Math.max(front, behind) + 0.05) / (Math.min(front, behind) + 0.05)];
  }));
}
"""
