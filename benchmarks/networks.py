"""Sample neural networks, and compare their predictions and verdicts with long runs of HMC or SMC.

    python benchmarks/networks.py --only typed                as a user types it: seconds, verdict, HMC
    python benchmarks/networks.py --only mistuned             runs that are wrong on purpose
    python benchmarks/networks.py --only orders               samplers and data orders, one step and batch
    python benchmarks/networks.py --only torch                through sgld.torch.sample (needs PyTorch)
    python benchmarks/networks.py --only small,small-mistuned the verdict on eight small networks

`--networks a,b,c` chooses some of the networks of nets.py, which also has the truths. `mean` is the
total variation between mean probabilities, or the distance of means in their sds, averaged over rows;
`sd ratio` the median ratio of predictive sds. A run is off where predictive sds are by over 15%, mean
probabilities by over .02 in total variation, or means by over .3 sd.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import sgld
from harness import Table, command_line, peer, store, timed
from nets import LARGE, SMALL, TRAJECTORIES, Net, distance, is_off, long_hmc, stack_draws, truth_of

SCALES, BATCHES = (0.002, 0.02, 0.1, 0.2, 0.5, 1.0), (20, 100)  # of `mistuned`: of the step; rows
ORDERS = ("reshuffle", "symmetric", "independent", "replacement")
SMALL_SETTINGS = (  # scale of the step, batch (None: all rows), sampler, draws
    (0.5, 10, "BAOA", 600), (0.1, 10, "BAOA", 600), (0.02, 10, "BAOA", 600), (4.0, None, "BAOA", 600),
    (2.0, None, "BAOA", 600), (1e-4, None, "BAOA", 600), (0.2, None, "BAOA", 60), (0.5, 10, "SGLD", 600),
    (0.05, 10, "SGLD", 600), (1.0, None, "SGLD", 600), (8.0, None, "BAOA", 600), (1.0, 5, "BAOA", 600),
    (0.2, 20, "BAOA", 600), (0.05, 5, "BAOA", 600), (1e-3, None, "BAOA", 600), (0.5, None, "BAOA", 60),
    (0.1, 50, "BAOA", 200), (1.0, 100, "BAOA", 600), (4.0, None, "SGLD", 600), (2.0, None, "SGLD", 600),
    (0.2, None, "SGLD", 600), (1.0, 20, "SGLD", 600), (0.2, 5, "SGLD", 600), (0.02, 10, "SGLD", 600),
)  # fmt: skip
SAMPLERS = {"BAOA": sgld.BAOA(), "UBU": sgld.UBU(), "SGLD": sgld.SGLD(noise_correction=None)}
COLUMNS = {"wall s": ".1f", "CPU s": ".1f", "mean": ".4f", "sd ratio": ".3f"}


def sample(net: Net, **given: Any) -> tuple[sgld.Draws, float, float]:
    """Return draws, wall seconds and CPU seconds."""
    return timed(lambda: sgld.sample(net.posterior, net.data, net.init, progress=False, **given))


def hmc_predictions(net: Net, draws: sgld.Draws, smoke: bool) -> Any:
    """Return the predictions of long HMC, and print how far its halves are apart."""
    values = long_hmc(net, draws, 100 if smoke else TRAJECTORIES[net.name])
    halves = distance(net, values[::2], values[1::2])
    print(f"{net.name}: HMC's halves: mean {halves['mean']:.4f}, sd ratio {halves['sd_ratio']:.3f}")
    return values


def nets(args: argparse.Namespace, default: str) -> Iterator[Net]:
    """Yield the networks that were asked for."""
    for name in (args.networks or default).split(","):
        yield LARGE[name](**({"hidden": 5} if args.smoke else {}))


def limits(net: Net, smoke: bool) -> dict[str, Any]:
    """Return how long a run may take."""
    return {"max_steps": 200} if smoke else {"max_seconds": 120} if net.name == "c" else {}


def run_defaults(args: argparse.Namespace) -> dict[str, Any]:
    """Print every network as a user types it."""
    table, figures = Table(12, COLUMNS), {}
    for net in nets(args, "b" if args.smoke else "a,b,c"):
        draws, wall, cpu = sample(net, **limits(net, args.smoke))
        row = {"wall": wall, "cpu": cpu, "word": draws.verdict.word}
        if net.name in TRAJECTORIES:
            truth = hmc_predictions(net, draws, args.smoke)
            row |= distance(net, net.predictions(stack_draws(draws)), truth)
        table.row(net.name, wall, cpu, row.get("mean"), row.get("sd_ratio"), note=row["word"])
        figures[f"typed/{net.name}"] = row
    return figures


def settings(args: argparse.Namespace, which: str, setup: Any) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
    """Yield the runs of `mistuned` or `orders` by name, in the metric of a run of the library."""
    h = float(setup.step_size(0))
    shared = {"preconditioner": setup.preconditioner, "gradient": sgld.Minibatch(), "seed": 1}
    if which == "mistuned":
        lengths = {"burn_in": setup.burn_in, "thin": setup.thin, "num_draws": setup.num_draws}
        for scale in SCALES:
            for batch in BATCHES:
                given = {"sampler": SAMPLERS["BAOA"], "step_size": h * scale, "batch_size": batch}
                yield f"h x {scale}, batch {batch}", {**shared, **lengths, **given}
    else:
        burn_in, num_draws = (10, 20) if args.smoke else (4000, 300)
        lengths = {"burn_in": burn_in, "thin": 100, "num_draws": num_draws}
        for kind, sampler in SAMPLERS.items():
            for order in ORDERS:
                given = {"sampler": sampler, "order": order, "step_size": 0.1 * h, "batch_size": 50}
                yield f"{kind}, {order}", {**shared, **lengths, **given}


def run_settings(args: argparse.Namespace, which: str) -> dict[str, Any]:
    """Print runs with settings that the library would not choose, against HMC."""
    figures = {}
    for net in nets(args, "b"):
        well, *_ = sample(net, **limits(net, args.smoke))
        truth, rows = hmc_predictions(net, well, args.smoke), []
        table = Table(24, COLUMNS)
        assert well.plan is not None
        for name, given in list(settings(args, which, well.plan.setup))[
            : 1 if args.smoke else None
        ]:
            draws, wall, cpu = sample(net, **given)
            found = distance(net, net.predictions(stack_draws(draws)), truth)
            word = draws.verdict.word
            table.row(name, wall, cpu, found["mean"], found["sd_ratio"], note=word)
            rows.append({"setting": name, "word": word, "off": is_off(net, found), **found})
        off = [row for row in rows if row["off"]]
        trusted = sum(row["word"] == "trusted" for row in off)
        print(f"{net.name}: {len(off)} of {len(rows)} runs are off; `trusted`: {trusted}")
        figures[f"{which}/{net.name}"] = rows
    return figures


def run_torch(args: argparse.Namespace) -> dict[str, Any]:
    """Print the same networks through `sgld.torch.sample`, against the same truth."""
    torch = peer("torch", "networks through sgld.torch.sample")
    figures: dict[str, Any] = {}
    if torch is None:
        return figures
    from torch_networks import MODULES

    table = Table(12, COLUMNS)
    for net in nets(args, "b" if args.smoke else "a,b,c"):
        torch.manual_seed(0)
        module = MODULES[net.name]()
        outcomes = torch.from_numpy(net.data[1]).to(module.outcomes)
        ensemble, wall, cpu = timed(lambda: sgld.torch.sample(
            module.model, module.loss, (torch.from_numpy(net.data[0]), outcomes),  # noqa: B023
            prior=net.prior, **limits(net, args.smoke),  # noqa: B023
        ))  # fmt: skip
        row = {"wall": wall, "cpu": cpu, "word": ensemble.verdict.word}
        if net.name in TRAJECTORIES:
            well, *_ = sample(net, **limits(net, args.smoke))
            values = module.predicted(ensemble(torch.from_numpy(net.compared_rows))).numpy()
            row |= distance(net, values, hmc_predictions(net, well, args.smoke))
        table.row(net.name, wall, cpu, row.get("mean"), row.get("sd_ratio"), note=row["word"])
        figures[f"torch/{net.name}"] = row
    return figures


def small_runs(args: argparse.Namespace, kind: str) -> dict[str, int]:
    """Count verdicts on the small networks, by default runs or by settings that are mostly wrong."""
    rows, plans, truths = [], {}, {}
    names = ["absx"] if args.smoke else list(SMALL)
    every = [None] if kind == "tuned" else SMALL_SETTINGS[: 1 if args.smoke else None]
    table = Table(52, {"mean": ".4f", "sd ratio": ".3f"})
    for number, setting in enumerate(every):
        for name in names:
            net = SMALL[name]()
            if name not in truths:
                truths[name] = truth_of(net, *([30] if args.smoke else []))
            if setting is None:
                draws, *_ = sample(net, **limits(net, args.smoke))
            else:
                if name not in plans:
                    plans[name] = sample(net, max_steps=200, num_draws=20)[0].plan
                scale, batch, sampler, num_draws = setting
                setup = plans[name].setup
                gradient = sgld.Full() if batch is None else sgld.Minibatch()
                size = "auto" if batch is None else min(batch, len(net.data[1]) // 2)
                draws, *_ = sample(
                    net, sampler=SAMPLERS[sampler], preconditioner=setup.preconditioner, thin=20,
                    step_size=float(setup.step_size(0)) * scale, burn_in=500, gradient=gradient,
                    batch_size=size, num_draws=20 if args.smoke else num_draws, seed=number,
                )  # fmt: skip
            found = distance(net, net.predictions(stack_draws(draws)), truths[name])
            word, off = draws.verdict.word if draws.verdict else "", is_off(net, found)
            note = word + ", off" * off + ": MISS" * (off and word == "trusted")
            table.row(f"{name} {setting or ''}", found["mean"], found["sd_ratio"], note=note)
            rows.append({"name": name, "word": word, "off": off})
    wrong, right = ([row for row in rows if row["off"] == off] for off in (True, False))
    trusted = lambda some: sum(row["word"] == "trusted" for row in some)  # noqa: E731
    found = {
        f"{kind} runs": len(rows), f"{kind} networks": len(names), f"{kind} off": len(wrong),
        f"{kind} misses": trusted(wrong), f"{kind} right": len(right),
        f"{kind} right trusted": trusted(right),
    }  # fmt: skip
    print(", ".join(f"{name}: {value}" for name, value in found.items()))
    return found


MODES = {
    "typed": run_defaults,
    "mistuned": lambda args: run_settings(args, "mistuned"),
    "orders": lambda args: run_settings(args, "orders"),
    "torch": run_torch,
    "small": lambda args: small_runs(args, "tuned"),
    "small-mistuned": lambda args: small_runs(args, "mistuned"),
}


def main() -> None:
    args = command_line(__doc__, MODES, {"--networks": {"help": "some of a, b, c"}})
    chosen = ("typed", "torch", "small") if args.smoke else args.only
    for mode in chosen:
        figures = MODES[mode](args)
        if args.store:
            store("networks", figures)


if __name__ == "__main__":
    main()
