"""Formulas of strangers are data: nothing but arithmetic on columns is ever evaluated."""

import numpy as np
import pytest

from sgld.errors import SGLDError
from sgld.regression import design
from sgld.regression.design import learn
from sgld.regression.expression import check_expression
from sgld.regression.formula import FormulaModel

pyarrow = pytest.importorskip("pyarrow")
RNG = np.random.default_rng(0)
TABLE = pyarrow.table({
    "y": RNG.normal(size=60), "x": RNG.uniform(1, 3, 60), "z": RNG.normal(size=60), "g": list("abc") * 20,
    "two words": RNG.normal(size=60), "exit": RNG.normal(size=60),
})  # fmt: skip

HOSTILE = [
    "I(x+0*len([__import__('os').system('touch {mark}')]))",
    "I(x + exit())",
    "I(exit())",
    "I((lambda: 0)())",
    "I([v for v in ().__class__.__base__.__subclasses__()][0])",
    "I(x.__class__.__mro__)",
    "np.lib.npyio.DataSource('{mark}')",
    "np.load('{mark}')",
    "I(np.ctypeslib)",
    "np.vectorize(exec)(x)",
    "I(open('{mark}', 'w'))",
    "I(eval('1'))",
    "I(f'{{x}}')",
    "I(x if x else z)",
    "I(9**9**9)",
    "I(x**9999)",
    "I('a'*10**10)",
    "I([0]*10**10)",
    "I(x[0])",
    "center(x, **dict(a=1))",
    "center(x, _state={{}})",
    'center(x, "\\"\\"+open(1)+\\"")',
    "I(`x` + '`' + open('{mark}') + '`')",
    'C(g, levels=["a", "\\"); open(1); (\\""])',
    "poly(x, 1000000000)",
    "bs(x, df=100000000)",
    "hashed(g, levels=10**9)",
    "I((x := 3))",
    "I(breakpoint())",
    "I(getattr(x, 'shape'))",
    "I(x @ x)",
    "I(" * 60 + "x" + ")" * 60,
    "I(" + "+".join(["x"] * 2000) + ")",
]
PLAIN = [
    "x", "np.log(x)", "log(x) + exp(z)", "poly(x, 3)", "bs(x, df=4)", "C(g)", "center(x):z", "I(x**2)", "I(x / 2 + 1e6)",
    "`two words`", "I(`two words` * x)", "C(g, contr.treatment('b'))", "C(g, levels=['a', 'b', 'c'])", "scale(x)",
    "I((x > 2) & (z < 0))", "np.where(x > 2, x, 0)", "I(-x)", "I(x**-1)", "Q('two words')", "exit",
    "bs(x, knots=[1.5, 2.5])", "I(g == 'a')", "np.minimum(x, 2)",
]  # fmt: skip


@pytest.mark.parametrize("term", HOSTILE)
def test_a_hostile_formula_is_refused_in_a_sentence_and_runs_nothing(tmp_path, monkeypatch, term):
    def evaluated(*arguments):
        raise AssertionError("it was evaluated")

    monkeypatch.setattr(design, "_evaluate", evaluated)
    mark = tmp_path / "mark"
    formula = "y ~ " + (term.format(mark=mark) if "mark" in term else term)
    with pytest.raises(SGLDError) as refused:
        FormulaModel.build(TABLE, formula)
    assert not mark.exists()
    assert str(refused.value).endswith((".", "?")) and "\n" not in str(refused.value)


@pytest.mark.parametrize("term", HOSTILE[:8])
def test_nor_in_the_outcome_or_in_a_stored_specification(tmp_path, term):
    mark = tmp_path / "mark"
    with pytest.raises(SGLDError):
        FormulaModel.build(TABLE, term.format(mark=mark) + " ~ x")
    spec = FormulaModel.build(TABLE, "y ~ x").spec
    spec["design"]["formula"] = "y ~ " + term.format(mark=mark)
    for table in (TABLE, None):
        with pytest.raises(SGLDError):
            FormulaModel.from_spec(spec, table).design(TABLE)
    assert not mark.exists()


@pytest.mark.parametrize("term", PLAIN)
def test_what_people_write_is_taken(term):
    state, x, y, _ = learn(TABLE, f"y ~ {term}")
    assert np.isfinite(x).all() and len(x) == len(y) == 60
    assert state["names"][0] == "Intercept"


def test_the_columns_of_a_term():
    columns = ["x", "two words", "z"]
    assert check_expression("I(`two words` + np.log(x))", columns) == {"two words", "x"}
    assert check_expression("lgo(x)", columns) == {"lgo", "x"}
