"""How often ESS and R-hat alarm at runs that are right, and whether they find chains apart.

    python benchmarks/mixing.py                  about 20 minutes on 2 cores
    python benchmarks/mixing.py --parameters 60000

Every parameter is an autoregression x' = rho x + sqrt(1 - rho^2) xi of its own, 4 chains of 1,000
draws from its law; a run is d of them, prolonged and judged by the package's own rules. The limits of
R-hat, with M = 4 chains:

    as before    max(1.01, sqrt(1 + 4 M / ESS)), the run not prolonged
    of d         max(1.01, sqrt(1 + (2 M / ESS) q)), q the 1 - .005/d quantile of chi2_{2M-1} / (2M-1),
                 ESS that of the chains by themselves, not prolonged
    prolonged    the same, after prolonging by the worst parameters (inference/execute.py)
"""

from __future__ import annotations

import argparse

import numpy as np

from sgld.diagnostics.rule import MIN_ESS, Evidence, unmixed
from sgld.inference.execute import MAX_CHANCE, draws_needed
from sgld.results.mixing import Mixing
from sgld.results.statistics import Estimates, max_r_hat

CHAINS, DRAWS, TOLERANCE = 4, 1000, 0.05
DIMENSIONS = (1, 50, 650, 3000)
CORRELATIONS = (0.4, 0.6, 0.7, 0.75)


class Chains:
    """Autoregressions [chain, draw, parameter] that can be gone on with."""

    def __init__(self, rho: float, count: int, rng: np.random.Generator, shift: float = 0.0):
        self.rho, self.rng, self.shift, self.shifted = np.float32(rho), rng, shift, 1
        self.last = rng.standard_normal((CHAINS, count), dtype=np.float32)
        self.values = np.zeros((CHAINS, 0, count), np.float32)

    def until(self, draws: int) -> Chains:
        """The same with so many draws of each chain."""
        new = draws - self.values.shape[1]
        x = self.rng.standard_normal((CHAINS, new, self.last.shape[1]), dtype=np.float32)
        x *= np.sqrt(1 - self.rho**2)
        for t in range(new):
            self.last = x[:, t] = self.rho * self.last + x[:, t]
        self.values = np.concatenate([self.values, x], axis=1)
        return self

    def some(self, columns: slice) -> Chains:
        """Of these parameters."""
        part = Chains(float(self.rho), 0, self.rng)
        part.last, part.values = self.last[:, columns], self.values[..., columns]
        return part

    def estimates(self) -> Estimates:
        """With the first parameters of half the chains moved by `shift` sds."""
        values = self.values.astype(np.float64)
        values[: CHAINS // 2, :, : self.shifted] += self.shift
        return Estimates(values, np.full(values.shape[:2], 1 / values[..., 0].size))


def sentences(found: Estimates) -> list[str]:
    """What the rule has against the run."""
    count = found.values.shape[-1]
    names = tuple(map(str, range(count)))
    evidence = Evidence(names, found.mean, found.sd, **found.mixing._asdict(), num_chains=CHAINS)
    return unmixed(evidence)


def judged(chains: Chains) -> tuple[list[str], int]:
    """Prolonged until that is of no more use: what is against it, and how many draws it took."""
    while True:
        found = chains.estimates()
        done = found.values.shape[1]
        wanted = draws_needed(found, TOLERANCE, DRAWS)
        if wanted <= done:
            return sentences(found), done
        chains.until(wanted)


def alarms(rho: float, parameters: int, rng: np.random.Generator) -> list[str]:
    """A line of the table for every d: alarms by each limit, and how much longer runs were."""
    counts = {d: np.zeros(6) for d in DIMENSIONS}
    for _ in range(parameters // max(DIMENSIONS)):
        chains = Chains(rho, max(DIMENSIONS), rng).until(DRAWS)
        m = chains.estimates().mixing
        for d, count in counts.items():
            for begin in range(0, max(DIMENSIONS) - d + 1, max(d, 50)):
                here = slice(begin, begin + d)
                own = Mixing(*(values[here] for values in m))
                ess = np.fmin(own.ess, own.ess_square)
                few = ess.min() < MIN_ESS
                before = np.fmax(1.01, np.sqrt(1 + 4 * CHAINS / ess))
                after = max_r_hat(own.ess_alone, CHAINS, d)
                over = [(own.r_hat > limit).any() for limit in (before, after)]
                suspect = (own.r_hat > max_r_hat(own.ess_alone, CHAINS, d, MAX_CHANCE)).any()
                suspect |= (
                    own.ess.min() < 1.1 * MIN_ESS or own.ess_square.min() < 2.2 / TOLERANCE**2
                )
                said, draws = judged(chains.some(here)) if suspect else ([], DRAWS)
                count += [1, few or over[0], few or over[1], few, bool(said), draws / DRAWS]
    return [
        f"{rho:<6g}{d:>6,}{n:>10,.0f}{100 * old / n:>12.2f}%{100 * new / n:>9.2f}%{100 * few / n:>12.2f}%"
        f"{100 * said / n:>12.2f}%{draws / n:>9.2f}"
        for d, (n, old, new, few, said, draws) in counts.items()
    ]


def offsets(rho: float, offset: float, runs: int, rng: np.random.Generator) -> str:
    """How chains of which half lie `offset` sds off are found, in one parameter by itself."""
    chains = Chains(rho, runs, rng, offset)
    chains.shifted = runs
    m = chains.until(DRAWS).estimates().mixing
    ess = np.fmin(m.ess, m.ess_square)
    few = ess < MIN_ESS
    before = m.r_hat > np.fmax(1.01, np.sqrt(1 + 4 * CHAINS / ess))
    by_ess = m.r_hat > max_r_hat(ess, CHAINS, max(DIMENSIONS))
    alone = m.r_hat > max_r_hat(m.ess_alone, CHAINS, max(DIMENSIONS))
    shares = (few, before & ~few, by_ess & ~few, alone, few | alone)
    return (
        f"{rho:<6g}{offset:>8.2f}{np.median(m.ess):>9.0f}{np.median(m.ess_alone):>11.0f}"
        + "".join(f"{100 * share.mean():>11.1f}%" for share in shares)
    )


def planted(rho: float, runs: int, rng: np.random.Generator) -> str:
    """Half the chains .5 sd off in one of 3,000 parameters: what is said, after prolonging."""
    said = [judged(Chains(rho, max(DIMENSIONS), rng, 0.5).until(DRAWS))[0] for _ in range(runs)]
    named = sum(bool(words) and "'0'" in words[0] for words in said)
    disagree = sum(bool(words) and "disagree" in words[0] for words in said)
    return f"{rho:<6g}{runs:>6}{named:>10}{disagree:>12}   {said[0][0]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=int, default=300_000, help="for each rho")
    parser.add_argument("--runs", type=int, default=20, help="of 3,000 parameters, one planted")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    print(
        "good runs that alarm\nrho        d      runs   as before     of d   (ESS < 400)   prolonged   length"
    )
    for rho in CORRELATIONS:
        print("\n".join(alarms(rho, given.parameters, rng)), flush=True)
    print(
        "\nhalf the chains off, one parameter\nrho     offset      ESS  ESS alone  ESS < 400"
        "  R-hat only:  by ESS, d=3000  by ESS alone  any"
    )
    for rho in CORRELATIONS[:3]:
        for offset in (0.0, 0.1, 0.2, 0.3, 0.5, 1.0):
            print(offsets(rho, offset, 2000, rng), flush=True)
    print("\n.5 sd in one of 3,000 parameters\nrho     runs     found    disagree   in words")
    for rho in CORRELATIONS[:3]:
        print(planted(rho, given.runs, rng), flush=True)


if __name__ == "__main__":
    main()
