"""FedVARP (Jhunjhunwala et al. 2022): the cohort's average, corrected by what is remembered of everybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.server_rules.base import EVER, Answer, Facts, Need, Numbers, Rule, register


@register("fedvarp")
@dataclass(frozen=True)
class FedVARP(Rule):
    """d = (1/K) sum over the cohort of (g_i - m_i) + (1/N) sum over everybody of m_j, with m_j the last update of j
    before this round and 0 for those never heard: the first sum has no bias, and where updates change slowly little
    of the noise of who was drawn. N is the size of the federation or, where that is not known, of those heard.
    """

    summary = "the cohort's average, corrected by everybody's last updates"
    source = "Jhunjhunwala et al. 2022"

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset()

    @property
    def remembers(self) -> int:
        return EVER

    @property
    def previous(self) -> bool:
        return True

    def answer(self, facts: Facts, state: Numbers) -> Answer:
        cohort = facts.clients[: facts.fresh]
        remembered = [*facts.clients[facts.fresh :], *(client for client, _ in facts.memory)]
        everyone = facts.federation or len({*cohort, *remembered})
        coefficients = np.full(len(cohort) + len(remembered), 1.0 / everyone)
        coefficients[: len(cohort)] = 1.0 / len(cohort)
        here = set(cohort)
        coefficients[len(cohort) :] -= np.array([client in here for client in remembered], float) / len(cohort)
        return Answer(coefficients)
