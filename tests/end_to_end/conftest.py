"""Pages opened in a browser, as a reader would."""

import shutil

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRAWN = """[...document.querySelectorAll('svg')].map(svg => {
  const box = svg.getBoundingClientRect(), ink = svg.getBBox();
  return [box.width, box.height, ink.width, ink.height] })"""
CLIPPED = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();
    return b.left < box.left - 2 || b.right > box.right + 2 }).map(t => t.textContent) })"""


@pytest.fixture
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium is installed, so the pages cannot be opened")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def figures():
    """Of an open page: sizes [figure, 4] of figures and their ink; words that stand beyond them."""
    return lambda page: (page.evaluate(DRAWN), page.evaluate(CLIPPED))
