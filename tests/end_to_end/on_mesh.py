"""What test_mesh.py runs in processes of their own: a run on a mesh, and what is refused.

python on_mesh.py devices FOLDER               4 devices in one process
python on_mesh.py processes FOLDER PORT RANK   one of 2 processes of 2 devices
"""

import json
import os
import shutil
import sys
from pathlib import Path

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
DEVICES = {"devices": 4, "processes": 2}[KIND]
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), f"--xla_force_host_platform_device_count={DEVICES}"]
)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)
if KIND == "processes":
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[3]}", 2, int(sys.argv[4]))

from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import sgld  # noqa: E402

rng = np.random.default_rng(0)
X = rng.normal(size=(502, 2))
Y = (rng.random(502) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype(float)
POSTERIOR = sgld.Posterior(
    lambda b: -0.5 * jnp.sum((b / 2.5) ** 2),
    lambda b, row: row[1] * (row[0] @ b) - jax.nn.softplus(row[0] @ b),
)
# counts of bits are made in a branch of their own, normals in doubles are not
BY_HAND = {
    "step_size": 0.004,
    "batch_size": 30,
    "num_draws": 40,
    "burn_in": 20,
    "noise": "binomial",
}


def mesh(chains, rows):
    return jax.make_mesh((chains, rows), ("chain", "data"))


def draw(data=(X, Y), **asked):
    return sgld.sample(POSTERIOR, data, jnp.zeros(2), progress=False, **asked)


def refusal(**asked):
    try:
        draw(**{**BY_HAND, **asked})
    except sgld.errors.SGLDError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def collectives():
    """Of the compiled chunk of a run on 2 x 2 devices: its collectives, and what a device holds of the rows."""
    from sgld.inference import loop

    real, texts, parts = loop.run_chunk, [], []

    class Seen:
        lower = staticmethod(real.lower)

        def __call__(self, *args, **named):
            if not texts:
                rows = jax.tree.leaves(args[0].problem.source.rows)
                parts.extend(leaf.addressable_shards[0].data.shape for leaf in rows)
                texts.append(real.lower(*args, **named).compile().as_text())
            return real(*args, **named)

    loop.run_chunk = Seen()
    draws = draw(mesh=mesh(2, 2), **BY_HAND)
    loop.run_chunk = real
    kinds = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
    lines = texts[0].splitlines()
    return draws, {kind: sum(f" {kind}(" in line for line in lines) for kind in kinds}, parts


def devices():
    found = {"plain": draw(), "four": draw(mesh=mesh(1, 4)), "by_hand": draw(**BY_HAND)}
    found["four_by_hand"], counted, parts = collectives()
    always = {**BY_HAND, "always_in": [3, 5, 400], "order": "symmetric"}
    found["always"], found["four_always"] = draw(**always), draw(mesh=mesh(1, 4), **always)
    rows = {**BY_HAND, "order": "replacement", "gradient": sgld.SAGA()}
    found["rows"], found["four_rows"] = draw(**rows), draw(mesh=mesh(2, 2), **rows)
    path = FOLDER / "run"
    draw(mesh=mesh(2, 2), path=path, **BY_HAND)
    (path / "result.json").unlink()
    found["resumed"] = sgld.resume(path, POSTERIOR, (X, Y), jnp.zeros(2), progress=False)
    # arrays that lie over the mesh already; 500 rows are divided by 4
    there = NamedSharding(mesh(1, 4), PartitionSpec("data"))
    lay = lambda leaf: jax.device_put(leaf[:500], there)  # noqa: E731
    laid = (lay(X), lay(Y))
    found["laid"] = draw(laid, mesh=mesh(1, 4), **BY_HAND)
    np.savez(FOLDER / "devices.npz", **{k: v.position for k, v in found.items()})
    other = jax.make_mesh((2, 2), ("chains", "rows"))
    hurt = lay(np.where(X[7, 1] == X, np.nan, X))
    said = {
        "axes": refusal(mesh=other),
        "kind": refusal(mesh=4),
        "chains": refusal(mesh=mesh(4, 1), num_chains=6),
        "rows": refusal(data=(X[:3], Y[:3]), mesh=mesh(1, 4), batch_size=1),
        "nan": refusal(data=(hurt, laid[1]), mesh=mesh(1, 4)),
    }
    told = {"collectives": counted, "said": said, "parts": parts}
    (FOLDER / "devices.json").write_text(json.dumps(told))


def processes():
    rank = jax.process_index()
    found = draw(mesh=mesh(1, 4), path=FOLDER / "shared", **BY_HAND)
    np.savez(FOLDER / f"process{rank}.npz", two=found.position)
    fewer = refusal(data=(X[: 502 - rank], Y[: 502 - rank]), mesh=mesh(1, 4))
    other = refusal(data=(X + rank, Y), mesh=mesh(1, 4))
    hurt = np.where(rank * X == X[7, 1], np.nan, X)
    alone = {
        "nan": refusal(data=(hurt, Y), mesh=mesh(1, 4)),
        "batch": refusal(mesh=mesh(1, 4), batch_size=10**6 if rank else 30),
        "tolerance": refusal(mesh=mesh(1, 4), tolerance=-1.0 if rank else 0.05),
    }
    said = {"fewer": fewer, "other": other, **alone, **of_directories(rank)}
    (FOLDER / f"process{rank}.json").write_text(json.dumps(said))


def of_directories(rank):
    """What is said where a run directory is refused to one process, or is not the same for both."""
    from sgld.results.run_directory import RunDirectory

    asked = {"mesh": mesh(1, 4)}
    found = {
        "exists": refusal(path=FOLDER / "shared", **asked),
        "path": refusal(path=None if rank else FOLDER / "one", **asked),
    }
    real, copies = RunDirectory.write_checkpoint, iter(["early"])

    def copied(self, head, arrays):
        real(self, head, arrays)
        if rank == 0:
            shutil.copytree(self.path, FOLDER / next(copies, "late"), dirs_exist_ok=True)

    def full(self, head, arrays):
        if rank == 0:
            raise sgld.errors.RunError("the disk is full.")

    asked |= {"num_draws": 2500, "checkpoint_every": 1e-9}
    RunDirectory.write_checkpoint = copied
    draw(path=FOLDER / "long", **{**BY_HAND, **asked})
    RunDirectory.write_checkpoint = full
    found["full"] = refusal(path=FOLDER / "full", **asked)
    RunDirectory.write_checkpoint = real
    for name, at in (("steps", ("early", "late")), ("runs", ("early", "shared"))):
        try:
            path = FOLDER / at[rank]
            sgld.resume(path, POSTERIOR, (X, Y), jnp.zeros(2), progress=False, mesh=mesh(1, 4))
            found[name] = "nothing was refused"
        except sgld.errors.SGLDError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    {"devices": devices, "processes": processes}[KIND]()
