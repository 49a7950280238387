"""Guards: what stands between the clients' numbers and the rule. Importing this package registers them all."""

from adafed.server_rules.guards import screening
from adafed.server_rules.guards.base import GUARDS, Guard, Verdict, guards_from, resolved

__all__ = ["GUARDS", "Guard", "Verdict", "guards_from", "resolved", "screening"]
