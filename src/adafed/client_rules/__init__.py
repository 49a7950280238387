"""Client rules: one file each. Importing this package registers them all."""

from adafed.client_rules.base import (
    CLIENT_RULES,
    Begun,
    ClientRule,
    Draw,
    Plan,
    Setting,
    Tensors,
    Visit,
    client_rule,
    client_rules,
    register,
)
from adafed.client_rules.ditto import Ditto
from adafed.client_rules.fcfc import FCFC
from adafed.client_rules.fedcorr import FedCorr
from adafed.client_rules.feddyn import FedDyn
from adafed.client_rules.fedprox import FedProx
from adafed.client_rules.mixup import Mixup
from adafed.client_rules.propfair import PropFair
from adafed.client_rules.scaffold import SCAFFOLD

WITH_KEYS: tuple[type[ClientRule], ...] = (FedCorr, Ditto, FedProx, Mixup)
"""Those with a section or a key of their own in a configuration, in the order in which they work and are named."""

__all__ = [
    "CLIENT_RULES",
    "FCFC",
    "SCAFFOLD",
    "WITH_KEYS",
    "Begun",
    "ClientRule",
    "Ditto",
    "Draw",
    "FedCorr",
    "FedDyn",
    "FedProx",
    "Mixup",
    "Plan",
    "PropFair",
    "Setting",
    "Tensors",
    "Visit",
    "client_rule",
    "client_rules",
    "register",
]
