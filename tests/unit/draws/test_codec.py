"""Plans as they are stored: with all that is known, to the bit."""

import importlib
import typing
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import pytest

import sgld
from sgld.approximation.known import Doubt, Known
from sgld.approximation.modes import KnownModes
from sgld.approximation.rays import Ray
from sgld.errors import RunError
from sgld.results import codec, tags
from sgld.samplers.gradients.control_variates import Guide
from sgld.samplers.gradients.full import Full


def again(value):
    arrays = {}
    stored = codec.encode(value, arrays)
    return codec.decode(stored, arrays, lambda name, digest: None)


def test_a_doubt_and_the_ray_it_was_found_on_are_stored():
    """Of separated data, for one: `sgld fit` of those could not write its plan."""
    ray = Ray(1, np.array([0.5, 2.0]), np.array([-1.0, 8.0]), np.array([0.0, -3.0]), ((6.0, -2.0),))
    doubt = Doubt("tails", "far out", 0.2, np.zeros(2), np.ones(2), ray, ((5.0, 7.0),), edge=4.0)
    found = again(Known(doubts=(doubt,), nu=float("inf"))).doubts[0]
    assert found.ray.tops == ray.tops and found.modes == doubt.modes and found.edge == 4.0
    np.testing.assert_array_equal(found.ray.t, ray.t)
    assert found.ray.share == ray.share


def test_what_an_older_version_did_not_have_yet_is_left_at_its_default():
    """Exact gradients of a run directory from before they had a guide; a field without a default is missing."""
    arrays = {}
    stored = codec.encode(Full(), arrays)
    del stored["fields"]["guide"]
    assert codec.decode(stored, arrays, lambda name, digest: None) == Full()
    stored["fields"]["other"] = None
    with pytest.raises(RunError, match="other fields"):
        codec.decode(stored, arrays, lambda name, digest: None)
    guide = codec.encode(Guide(*5 * [np.zeros(1)]), arrays)
    guide["fields"].clear()
    with pytest.raises(RunError, match="other fields"):
        codec.decode(guide, arrays, lambda name, digest: None)


def parts(kind, seen):
    """The dataclasses that a dataclass is made of."""
    if not is_dataclass(kind) or kind in seen:
        return
    seen.add(kind)
    hints = typing.get_type_hints(kind, vars(importlib.import_module(kind.__module__)))
    for field in fields(kind):
        found = [hints[field.name]]
        while found:
            hint = found.pop()
            found += typing.get_args(hint)
            if isinstance(hint, type):
                parts(hint, seen)


def test_every_part_of_what_is_known_is_of_a_kind_that_is_stored():
    seen = set()
    for kind in (Known, Doubt, KnownModes):
        parts(kind, seen)
    assert Ray in seen
    assert [kind for kind in seen if tags.tag_of(kind) is None] == []


@pytest.mark.parametrize("tag", tags.CLASS_OF_TAG)
def test_a_tag_names_one_dataclass_of_this_library(tag):
    kind = tags.class_of(tag)
    assert isinstance(kind, type) and is_dataclass(kind)
    assert kind.__module__.startswith("sgld.")
    assert tags.tag_of(kind) == tag


def test_what_is_written_names_no_module():
    stored = codec.encode(Known(doubts=(), nu=1.0), {})
    assert stored["class"] == "Known"
    assert codec.encode(sgld.BAOA(), {})["class"] == "BAOA"


@dataclass(frozen=True)
class BAOA:
    """A class of a user's that has the name of a class of the library."""


def test_a_class_of_the_same_name_is_not_taken_for_that_of_the_library():
    assert tags.tag_of(BAOA) is None
    with pytest.raises(codec._Own):
        codec.encode(BAOA(), {})


@pytest.mark.parametrize(
    "name",
    [
        "subprocess.Popen", "Popen", "sgld.core.files.remove", "sgld.results.run_directory.RunDirectory",
        "RunDirectory", "elsewhere.BAOA", "sgld.samplers.baoa:BAOA", "sgld.samplers.baoa.State", "",
    ],
)  # fmt: skip
def test_a_file_that_names_anything_else_makes_no_object(name):
    with pytest.raises(RunError, match="is not known to this version"):
        codec.decode({"class": name, "fields": {}}, {}, lambda name, digest: None)
