"""An ensemble on disk: saved, loaded, and what is refused."""

import io
import pickle

import numpy as np
import pytest

from sgld.errors import DataError, UsageError

torch = pytest.importorskip("torch")

from torch_parts import Mixed, drawn  # noqa: E402

import sgld.torch as st  # noqa: E402


def test_an_ensemble_is_saved_and_loaded(tmp_path):
    model = Mixed()
    ensemble = drawn(model)
    path = tmp_path / "ensemble"
    ensemble.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["ensemble"]
    loaded = st.Ensemble.load(path, Mixed())
    assert torch.equal(loaded.weights, ensemble.weights) and len(loaded) == 5
    for a, b in zip(loaded.states, ensemble.states, strict=True):
        assert list(a) == list(b)
        for name in a:
            assert a[name].dtype == b[name].dtype and torch.equal(a[name], b[name])
    x = torch.randn(4, 3)
    in_parts = ensemble.outputs(x, batch_size=3)  # which single precision rounds in another way
    torch.testing.assert_close(loaded.outputs(x), in_parts, rtol=0.0, atol=1e-5)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    with pytest.raises(UsageError, match="give a model of the same architecture"):
        st.Ensemble.load(path, torch.nn.Linear(3, 3))


def test_paths_that_are_no_files_are_answered(tmp_path):
    ensemble = drawn(torch.nn.Linear(3, 3))
    with pytest.raises(UsageError, match=r"is a directory; give .*draws\.npz\."):
        ensemble.save(tmp_path)
    with pytest.raises(DataError, match="none/draws could not be written: No such file"):
        ensemble.save(tmp_path / "none" / "draws")
    assert not list(tmp_path.iterdir())
    for call in (ensemble.save, lambda path: st.Ensemble.load(path, "draws.npz")):
        with pytest.raises(UsageError, match=r"as in Ensemble\.load\(path, model\)\. Got Linear"):
            call(torch.nn.Linear(3, 3))


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_and_other_files_are_refused(tmp_path):
    path = tmp_path / "file"
    about = np.frombuffer(b'{"format": "sgld.torch.Ensemble 1", "entries": []}', np.uint8)
    trap = np.array([Trap()], dtype=object)
    for about_entry, weights in ((about, trap), (trap, np.ones(1))):
        with path.open("wb") as file:
            np.savez(file, about=about_entry, weights=weights)
        with pytest.raises(DataError, match="not an ensemble"):
            st.Ensemble.load(path, torch.nn.Linear(1, 1))
    one_array = io.BytesIO()
    np.save(one_array, np.ones(3))
    for content in (pickle.dumps(Trap()), b"", b"PK\x03\x04 cut short", one_array.getvalue()):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not an ensemble"):
            st.Ensemble.load(path, torch.nn.Linear(1, 1))
    torch.save(torch.nn.Linear(1, 1).state_dict(), path)
    with pytest.raises(DataError, match="not an ensemble"):
        st.Ensemble.load(path, torch.nn.Linear(1, 1))
    drawn(torch.nn.Linear(1, 1)).save(path)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match="not an ensemble"):
        st.Ensemble.load(path, torch.nn.Linear(1, 1))


def test_a_file_that_is_not_there_is_answered(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*nothing\.npz; give the one that save"):
        st.Ensemble.load(tmp_path / "nothing.npz", torch.nn.Linear(3, 2))
