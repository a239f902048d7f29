import pytest

import sgld
from sgld.inference import loop


@pytest.fixture
def goes_on_to_the_same_bits(monkeypatch):
    """A run that is stopped in its third chunk and resumed, beside the one that was not: `(whole, again)`."""

    def both(path, *args, **given):
        given |= {"progress": False, "checkpoint_every": 1e-9}
        ordinary, chunks = loop._Chains._chunk, []

        def stopped(self, *rest):
            if len(chunks) == 2:
                raise KeyboardInterrupt
            chunks.append(1)
            ordinary(self, *rest)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(loop._Chains, "_chunk", stopped)
            sgld.sample(*args, path=path, **given)
        assert (path / "checkpoint.npz").exists()
        whole = sgld.sample(*args, **given)
        return whole, sgld.resume(path, *args, progress=False)

    return both
