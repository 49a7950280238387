"""FedCorr's plan of a run and what it knows of the clients: who visits when, who has wrong labels, and their new ones.

What is known is a dictionary of tensors, part of the server's state, so that a run that was killed goes on with it. A
number a client: `dimension` (its LID, summed over its `visits`), `noise` (the estimated share mu_k of wrong labels) and
`noisy` (0 or 1). A number a training sample of client K: `losses.K` and `labels.K`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from adafed.client_rules.fedcorr.mixture import upper
from adafed.config.sections import FedCorrSection
from adafed.errors import AdafedError
from adafed.randomness import round_generator
from adafed.rounds.cohort import Cohort, Sampler
from adafed.server_rules import Rule, rule
from adafed.training.local import Predicted, Report

Known = dict[str, torch.Tensor]
Predict = Callable[[Sequence[int], Known], list[Predicted]]
VISITING = 3  # the stream of random numbers of the first stage's order


class FedCorr:
    """Stage 1: everyone once, `group` clients a round, and this `iterations` times. Stage 2: `clean_rounds` rounds of
    the clients found clean. Stage 3: the rest of the run, everybody."""

    def __init__(self, section: FedCorrSection, sampler: Sampler, clients: int, rounds: int, seed: int) -> None:
        self.section = section
        self.sampler = sampler
        self.clients = clients
        self.seed = seed
        self.visits = section.visits(clients)
        self.first = section.iterations * self.visits
        self.second = self.first + section.clean_rounds
        self.average = rule("fedavg")
        if rounds < self.second:
            raise AdafedError(
                f"rounds = {rounds} are too few for FedCorr: fedcorr.iterations = {section.iterations} with "
                f"{self.visits} rounds each and fedcorr.clean_rounds = {section.clean_rounds} take {self.second}; it "
                "must be that or more"
            )

    @property
    def largest(self) -> int:
        """The largest cohort there can be."""
        return max(self.sampler.largest, min(self.section.group, self.clients))

    def stage(self, t: int) -> int:
        return 1 if t <= self.first else 2 if t <= self.second else 3

    def rule(self, t: int, own: Rule) -> Rule:
        """The first stage averages, whatever the rule: its groups are too small to be fair among."""
        return self.average if self.stage(t) == 1 else own

    def fresh(self) -> Known:
        return {
            key: torch.zeros(self.clients, dtype=torch.float64) for key in ("dimension", "visits", "noise", "noisy")
        }

    def cohort(self, t: int, known: Known) -> Cohort:
        if self.stage(t) == 1:
            iteration, visit = divmod(t - 1, self.visits)
            order = round_generator(self.seed, iteration, VISITING).permutation(self.clients)
            group = order[visit * self.section.group : (visit + 1) * self.section.group]
            return self.sampler.these(t, group[self.sampler.first_round[group] <= t])
        if self.stage(t) == 2:
            clean = np.flatnonzero(known["noise"].numpy() <= self.section.kappa)
            return self.sampler.among(t, clean) if len(clean) else self.sampler.cohort(t)
        return self.sampler.cohort(t)

    def pull(self, t: int, client: int, known: Known) -> float:
        """beta mu_k, the weight of ||theta - theta_t|| in the local loss: noisy clients stay near the global model."""
        return self.section.beta * float(known["noise"][client]) if self.stage(t) == 1 else 0.0

    def labels(self, client: int, known: Known) -> tuple[int, ...] | None:
        """A client's corrected labels, None while they are the data's."""
        found = known.get(f"labels.{client}")
        return None if found is None else tuple(found.tolist())

    def told(self, t: int, known: Known) -> dict[str, int]:
        """For the round's record."""
        corrected = sum(key.startswith("labels.") for key in known)
        return {"stage": self.stage(t), "noisy": int(known["noisy"].sum()), "relabelled": corrected}

    def learned(self, t: int, known: Known, reports: Sequence[Report], predict: Predict) -> Known:
        """What is known after the round. At the end of an iteration, and of the second stage, labels are corrected."""
        if self.stage(t) == 1:
            known = self._noted(known, reports)
            if t % self.visits == 0:
                known = self._estimated(known)
                known = self._relabelled(known, predict, by_loss=True)
                known = {key: value for key, value in known.items() if not key.startswith("losses.")}
        elif t == self.second:
            known = self._relabelled(known, predict, by_loss=False)
        return known

    def _noted(self, known: Known, reports: Sequence[Report]) -> Known:
        """A client whose training diverged has told nothing."""
        dimension, visits = known["dimension"].clone(), known["visits"].clone()
        losses = {}
        for report in reports:
            told = report.suspicion
            if told is not None and np.isfinite([told.dimension, *told.losses]).all():
                dimension[report.client] += told.dimension
                visits[report.client] += 1
                losses[f"losses.{report.client}"] = torch.tensor(told.losses, dtype=torch.float64)
        return known | {"dimension": dimension, "visits": visits} | losses

    def _estimated(self, known: Known) -> Known:
        """Noisy clients are those of the upper component of the LIDs; mu_k is the share of their samples in the upper
        component of the losses."""
        visits = known["visits"].numpy()
        heard = visits > 0
        # Sums, as the authors have them; of a client that was missed now and then, what its sum would be.
        sums = known["dimension"].numpy()[heard] * (visits.max() / visits[heard])
        noisy = np.zeros(self.clients, dtype=bool)
        noisy[heard] = upper(sums, seed=self.seed)
        noise = torch.zeros(self.clients, dtype=torch.float64)
        for client in np.flatnonzero(noisy).tolist():
            losses = known.get(f"losses.{client}")
            if losses is not None:
                noise[client] = upper(losses.numpy(), seed=self.seed).mean()
        return known | {"noisy": torch.from_numpy(noisy.astype(np.float64)), "noise": noise}

    def _relabelled(self, known: Known, predict: Predict, *, by_loss: bool) -> Known:
        """Noisy clients take the global model's answer where it is confident: in the first stage for the share mu_k pi
        of their samples with the largest losses, after the second for all."""
        noisy = np.flatnonzero(known["noisy"].numpy()).tolist()
        chosen = [client for client in noisy if not by_loss or f"losses.{client}" in known]
        changed = {}
        for found in predict(chosen, known):
            taken = np.array(found.confidences) > self.section.confidence
            if by_loss:
                losses = known[f"losses.{found.client}"].numpy()
                most = int(len(losses) * float(known["noise"][found.client]) * self.section.relabelled)
                largest = np.zeros(len(losses), dtype=bool)
                largest[np.argsort(-losses, kind="stable")[:most]] = True
                taken &= largest
            if taken.any():
                labels = np.where(taken, np.array(found.answers), np.array(found.labels))
                changed[f"labels.{found.client}"] = torch.from_numpy(labels.astype(np.int64))
        return known | changed
