"""Server rules: one file each. Importing this package registers them all."""

from adafed.server_rules import adafed, afl, fcfc, fedavg, fedfa, fedfv, fedmgda, fedvarp, gifair, qffl, term
from adafed.server_rules.base import RULES, Answer, Facts, Rule, register, rule, rules

__all__ = [
    "RULES",
    "Answer",
    "Facts",
    "Rule",
    "adafed",
    "afl",
    "fcfc",
    "fedavg",
    "fedfa",
    "fedfv",
    "fedmgda",
    "fedvarp",
    "gifair",
    "qffl",
    "register",
    "rule",
    "rules",
    "term",
]
