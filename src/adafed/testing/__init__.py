"""Contract suites for rules of your own: `check_rule` for server rules, `check_client_rule` for client rules."""

from adafed.testing.client_rules import CLIENT_PROPERTIES, check_client_rule
from adafed.testing.server_rules import PROPERTIES, check_rule

__all__ = ["CLIENT_PROPERTIES", "PROPERTIES", "check_client_rule", "check_rule"]
