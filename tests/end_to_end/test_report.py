"""The page of a real run, opened in a browser, as a reader would."""

import numpy as np
import pytest

import sgld


@pytest.fixture(scope="module")
def page_of_run(tmp_path_factory):
    pytest.importorskip("matplotlib", reason="the report extra is not installed")
    from sgld.report.page import write_report

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
