"""What `[memory]` comes to in a run: above all what "auto" does."""

from __future__ import annotations

from adafed.algebra.stored import bytes_needed
from adafed.config.configuration import Config
from adafed.rounds.cohort import largest_cohort
from adafed.server.memory import TRUE_ENOUGH, Remember
from adafed.server.row_files import RowStore


def remembering(config: Config, clients: int, length: int, store: RowStore) -> Remember:
    """Where "auto" remembers everyone it keeps as many updates as fit the budget, and none if that is just a cohort."""
    section, cohort = config.memory, largest_cohort(config.cohort, clients)
    usual = TRUE_ENOUGH if section.rounds == "auto" else 0.0
    truth = usual if section.truth == "auto" else section.truth
    if section.rounds != "auto":
        return Remember(section.rounds, section.discount, section.most, truth, store)
    most = section.budget_mb * 2**20 // max(bytes_needed(length, store.storage), 1)
    if not config.parts.rule.everyone or cohort == clients or most <= cohort:
        return Remember(0, section.discount, section.most, truth, store)  # for rules that look back by themselves
    return Remember("all", section.discount, section.most or (most if most < clients else 0), truth, store)
