"""The page of a real run, opened in a browser, as a reader would."""

import numpy as np
import pytest

import sgld


@pytest.fixture(scope="module")
def page_of_run(tmp_path_factory):
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    from sgld.interfaces.report.page import write_report

    def log_prior(t):
        return -0.5 * (t / 10) ** 2

    def log_likelihood(t, x):
        return -0.5 * (x - t) ** 2

    path = tmp_path_factory.mktemp("runs") / "mean"
    rows = np.random.default_rng(0).normal(1, 1, 400).astype(np.float32)
    sgld.sample(sgld.Posterior(log_prior, log_likelihood), rows, 0.0, path=path, progress=False)
    return write_report(path)


PAPER = "getComputedStyle(document.body).backgroundColor"


def test_the_page_is_drawn_wide_and_narrow_light_and_dark(page_of_run, browser, figures):
    papers = set()
    for width, scheme in ((1200, "light"), (400, "dark")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        asked, wrong = [], []
        page.on("request", lambda request: asked.append(request.url))  # noqa: B023
        page.on("console", lambda message: wrong.append(message.text))  # noqa: B023
        page.goto(page_of_run.as_uri())
        assert page.locator("#verdict .word").inner_text() == "trusted"
        assert page.title().startswith("trusted")
        boxes, clipped = figures(page)
        assert len(boxes) == 5 and np.min(boxes) > 20  # interval, marginal, trace, h, alpha
        assert clipped == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("table").is_visible()
        papers.add(page.evaluate(PAPER))
        assert len(asked) == 1 and wrong == []  # nothing but the page itself was fetched
        page.close()
    assert len(papers) == 2


LONG = (
    "age",
    "C(region)[T.South East and Anglia]",
    "C(region)[T.South East and Anglia]:smoker[T.yes]",
)
CROSSED = """[...document.querySelectorAll('svg')].filter(svg => /^Intervals/.test(svg.ariaLabel)).flatMap(svg => {
  const zero = svg.querySelector('path[style*="dasharray"]').getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();
    return b.left < zero.left && zero.right < b.right && b.top < zero.bottom - 5 }).map(t => t.textContent) })"""
LAST = """(() => { const box = document.querySelector('.scroll'); box.scrollLeft = 1e6;
  const edge = box.getBoundingClientRect().right;
  return [edge - box.querySelector('tbody td:last-child').getBoundingClientRect().right,
          box.scrollWidth - box.clientWidth] })()"""


@pytest.fixture(scope="module")
def page_of_long_names(tmp_path_factory):
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    from sgld.interfaces.report.page import report_of
    from sgld.results.verdict import Verdict

    values = 1e-3 * np.random.default_rng(0).normal(1, 0.5, (4, 300, len(LONG)))
    draws = sgld.Draws.of({"x": values}, names=LONG)
    ones = np.ones(len(LONG))
    verdict = Verdict(
        "trusted", ("sd within 3%.",), sd_ratio=ones, sd_ratio_se=0.01 * ones, r2=ones,
        mean_corrected=1e-3 * ones, sd_corrected=5e-4 * ones,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("pages") / "long.html"
    return report_of(draws.with_verdict(verdict), path, {})


@pytest.mark.parametrize("width", [1200, 400])
def test_long_names_leave_room_for_the_last_column_and_the_figures(
    page_of_long_names, browser, figures, width
):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(page_of_long_names.as_uri())
    assert figures(page)[1] == [] and page.evaluate(CROSSED) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    room, hidden = page.evaluate(LAST)
    assert room >= -1  # the last column can be reached, and is in sight where there is room
    assert (hidden > 0) == page.locator("p.narrow").is_visible() == (width == 400)
