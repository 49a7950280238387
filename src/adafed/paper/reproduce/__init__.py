"""The paper's tables and figures, run here: `adafed reproduce`.

The experiments are the TOML files in `experiments/`. A table is one of them (`fashion`), one of its variants
(`cifar100-1-e10`) or its sweep over gamma (`fashion-gamma`).
"""

from adafed.paper.reproduce.listing import hours, listing
from adafed.paper.reproduce.ours_and_printed import of_profile, side_by_side
from adafed.paper.reproduce.plan import Plan, Request, planned_for, tuning
from adafed.paper.reproduce.targets import Target, chosen, target, targets

__all__ = [
    "Plan",
    "Request",
    "Target",
    "chosen",
    "hours",
    "listing",
    "of_profile",
    "planned_for",
    "side_by_side",
    "target",
    "targets",
    "tuning",
]
