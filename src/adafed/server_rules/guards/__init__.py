"""Guards: what stands between the clients' numbers and the rule. Importing this package registers them all."""

from adafed.server_rules.guards import claims, copies, history, krum, lengths, losses, screening, sizes, stall, veto
from adafed.server_rules.guards.base import (
    DEFAULT,
    DEFAULT_GUARDS,
    GUARDS,
    Chain,
    Guard,
    LookingBack,
    Step,
    Verdict,
    guards_from,
    resolved,
)

__all__ = [
    "DEFAULT",
    "DEFAULT_GUARDS",
    "GUARDS",
    "Chain",
    "Guard",
    "LookingBack",
    "Step",
    "Verdict",
    "claims",
    "copies",
    "guards_from",
    "history",
    "krum",
    "lengths",
    "losses",
    "resolved",
    "screening",
    "sizes",
    "stall",
    "veto",
]
