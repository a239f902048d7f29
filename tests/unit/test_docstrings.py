"""Every public name says what it takes, and an example that runs shows it (`test_examples.py` runs them).

A method or property may be shown by its class's example. The methods of the parts that can be swapped
are called by the library, not by users: they name their arguments, `sgld.testing` certifies them.
"""

import inspect
import re
import types

import pytest

import sgld
from sgld import typing as contracts
from sgld.inference import variational_family

CALLED_BY_THE_LIBRARY = {
    "Sampler": {"init", "step", "exchanged"},
    "Estimator": {"prepare", "around", "start", "at", "after"},
    "Preconditioner": {"prepare", "start", "after", "at"},
    "Family": {"draw", "check"},
}
PARTS = {
    "Sampler": {"SGLD", "SGHMC", "BAOA", "UBU", "SGNHT", "ReplicaExchange"},
    "Estimator": {"Full", "Minibatch", "ControlVariates", "SVRG", "SAGA"},
    "Preconditioner": {"Scalar", "Diagonal", "Dense", "LowRank", "RMSprop", "AdaGrad"},
    "Family": {"MeanField", "FullRank", "Reparameterised"},
}
OF_JAX = {"tree_flatten", "tree_flatten_with_keys", "tree_unflatten"}


def torch_is_here():
    try:
        return bool(sgld.torch)
    except sgld.errors.MissingExtra:
        return False


def public(name, thing):
    """The thing and what it holds: (dotted name, object, its class or None)."""
    if isinstance(thing, types.ModuleType):
        for inner in getattr(thing, "__all__", ()):
            yield from public(f"{name}.{inner}", getattr(thing, inner))
    elif inspect.isclass(thing):
        yield name, thing, None
        for inner, value in vars(thing).items():
            if inner.startswith("_") or inner in OF_JAX:
                continue
            value = getattr(value, "__func__", getattr(value, "fget", value))
            if inspect.isfunction(value):
                yield f"{name}.{inner}", value, thing
    elif callable(thing) and not isinstance(thing, type(contracts.Schedule)):
        yield name, thing, None


def surface():
    """Each once, under its shortest name."""
    names = [n for n in dir(sgld) if n not in ("__version__", "torch")]
    names += ["torch"] if torch_is_here() else []
    found = {}
    for name in names:
        for dotted, thing, owner in public(name, getattr(sgld, name)):
            if inspect.isclass(thing) or inspect.isroutine(thing):
                found.setdefault(id(thing), (dotted, thing, owner))
    return {dotted: (thing, owner) for dotted, thing, owner in found.values()}


SURFACE = surface()
CASES = [
    pytest.param(name, marks=[pytest.mark.torch] if name.startswith("torch.") else [])
    for name in SURFACE
]


def contract_of(name, owner):
    """The protocol that says how the library calls this method of a part, or None."""
    method = name.rsplit(".", 1)[-1]
    for kind, methods in CALLED_BY_THE_LIBRARY.items():
        if owner is not None and method in methods and owner.__name__ in {kind, *PARTS[kind]}:
            return variational_family.Family if kind == "Family" else getattr(contracts, kind)
    return None


def arguments(thing):
    """The names of what is passed, without self."""
    if inspect.isclass(thing) and (
        thing.__init__ is object.__init__ or issubclass(thing, (BaseException, contracts.Protocol))
    ):
        return []
    names = inspect.signature(thing).parameters
    return [n for n in names if n not in ("self", "cls", "_") and not n.startswith("_")]


def listed(text):
    """What stands before the colons of the lists of arguments; all of it where there is no list."""
    text = inspect.cleandoc(text)
    lists = re.findall(r"^(?:Args|Attributes):(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    if not lists:
        return text
    # in the item's own words a name of several may go on in the next line
    return "\n".join(re.sub(r":\s.*", "", line) for item in lists for line in item.splitlines())


def shown(text):
    return "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.) (.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("name", CASES)
def test_a_public_name_says_what_it_takes_and_shows_it(name):
    thing, owner = SURFACE[name]
    text = thing.__doc__ or ""
    assert text.strip(), f"{name} has no docstring"
    method, contract = name.rsplit(".", 1)[-1], contract_of(name, owner)
    said = text
    if contract is not None:
        said += contract.__doc__ + (getattr(getattr(contract, method, None), "__doc__", None) or "")
    said = listed(said)
    unnamed = [a for a in arguments(thing) if not re.search(rf"(?<!\w){a}(?!\w)", said)]
    assert unnamed == [], f"{name} does not say what it takes"
    by_class = shown(owner.__doc__ or "") if owner else ""
    if contract is None:
        assert shown(text) or re.search(rf"\.{method}\b", by_class), f"no example shows {name}"


def test_the_surface_is_looked_at():
    assert len(SURFACE) > 150 and {"Draws.mean", "fit", "testing.check_sampler"} <= SURFACE.keys()
