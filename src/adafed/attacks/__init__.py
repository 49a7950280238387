"""Lies of clients, for the simulator alone: what a rule and its guards are tried with. Importing registers them all."""

from adafed.attacks import facts, labels, updates
from adafed.attacks.base import LIES, Lie, Sent, liars, lies_from

__all__ = ["LIES", "Lie", "Sent", "facts", "labels", "liars", "lies_from", "updates"]
