"""Posteriors built to deceive the verdict, in families, each with twins that do not.

`FAMILIES[name]` draws configurations from a generator (`case.Family`); `adversary.py` runs them. Numbers
behind TRUST's classes of deceit: 1 rows that batches never see, 2 density for mass, 3 the reported scale,
4 gradients of another function, 5 mass beyond 4 sds, 6 halving that forgets, 7 T other than 1 with
constraints, 8 heavy tails; then shapes, components and settings by hand.
"""

from . import by_hand, curved, gradients, modes, rows, scale, tails
from .case import Case, Family

FAMILIES = {
    "rare level": Family("1 unseen rows", 6, rows.rare_level),
    "rare modes": Family("1 unseen rows", 6, rows.rare_modes),
    "heavy covariate": Family("1 unseen rows", 5, rows.heavy_covariate),
    "denser mode": Family("2 density, not mass", 10, modes.denser_mode),
    "reported scale": Family("3 reported scale", 10, scale.reported_scale),
    "rare value": Family("3 reported scale", 5, scale.rare_value),
    "bounded": Family("3 reported scale", 4, scale.bounded),
    "wrong gradient": Family("4 gradients", 12, gradients.wrong_gradients),
    "halo": Family("5 beyond 4 sds", 8, tails.halo),
    "part halo": Family("5 beyond 4 sds", 6, tails.part_halo),
    "foot": Family("5 beyond 4 sds", 8, tails.foot),
    "flat foot": Family("5 beyond 4 sds", 8, tails.flat_foot),
    "contaminated": Family("5 beyond 4 sds", 6, tails.contaminated),
    "shoulder": Family("5 beyond 4 sds", 6, tails.shoulder),
    "far modes": Family("5 beyond 4 sds", 8, modes.far_modes),
    "needle": Family("5 beyond 4 sds", 6, modes.needle),
    "stepped": Family("5 beyond 4 sds", 6, tails.stepped),
    "phase": Family("5 beyond 4 sds", 6, curved.phase),
    "plateau": Family("5 beyond 4 sds", 6, curved.plateau),
    "halved": Family("6 halving", 10, tails.halved),
    "tempered": Family("7 temperature", 10, scale.tempered),
    "heavy tails": Family("8 heavy tails", 10, tails.heavy_tails),
    "horseshoe": Family("horseshoe", 5, curved.horseshoe),
    "unmixing": Family("ICA", 5, modes.unmixing),
    "change point": Family("change point", 6, curved.change_point),
    "label switching": Family("label switching", 6, modes.label_switching),
    "groups": Family("funnel", 5, curved.groups),
    "separated": Family("separated data", 5, curved.separated),
    "by hand": Family("by hand", 12, by_hand.by_hand),
    "decays": Family("label switching", 6, modes.decays),
    "product": Family("label switching", 6, curved.product),
    "mirrored": Family("2 density, not mass", 6, modes.mirrored),
    "on a bound": Family("3 reported scale", 4, scale.on_a_bound),
}

__all__ = ["FAMILIES", "Case", "Family"]
