"""What is written instead of a formula that cannot be read."""

import pytest

from sgld.regression.columns import meant

COLUMNS = ["y", "x", "body mass", "body mass index", "a-b", "class", "price.usd", "größe", "town"]
MEANT = {
    "y = x": "y ~ x",
    "y == x + town": "y ~ x + town",
    "y <- x": "y ~ x",
    "y = C(town, contr.treatment(base='a'))": "y ~ C(town, contr.treatment(base='a'))",
    "C(town, levels=['a', 'b']) = x": "C(town, levels=['a', 'b']) ~ x",
    "y ~ body mass index + body mass": "y ~ `body mass index` + `body mass`",
    "y ~ `body mass` + a-b": "y ~ `body mass` + `a-b`",
    "y ~ log(class) + C(price.usd)": "y ~ log(`class`) + C(`price.usd`)",
    "y = x, body mass": "y ~ x + `body mass`",
    "y ~ as.factor(town) + ln(x)": "y ~ C(town) + log(x)",
    "y ~ poly(x, 2), factor(town)": "y ~ poly(x, 2) + C(town)",
}


@pytest.mark.parametrize("written", MEANT)
def test_what_was_meant_is_written_out(written):
    assert meant(written, COLUMNS).startswith(f" Write {MEANT[written]!r}: ")


@pytest.mark.parametrize(
    "formula", ["y ~ x + C(town)", "y ~ größe", "y ~ x*town - 1", "y ~ (x + town)**2", "y"]
)
def test_nothing_is_said_where_nothing_is_known(formula):
    assert meant(formula, COLUMNS) == ""


@pytest.mark.parametrize("formula", ["y ~ ", "y ~ x + ", "y ~ + x", "y ~ x:", "y ~ log(x + )"])
def test_what_the_shell_took_is_missing(formula):
    assert "single quotes" in meant(formula, COLUMNS)


def test_groups_have_another_door():
    assert "NumPyro" in meant("y ~ x + (1 | town)", COLUMNS)
