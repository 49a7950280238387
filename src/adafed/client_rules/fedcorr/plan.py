"""FedCorr's plan of a run and what it knows of the clients: who visits when, who has wrong labels, and their new ones.

A number a client: `dimension` (its LID, summed over its `visits`), `noise` (the estimated share mu_k of wrong labels)
and `noisy` (0 or 1). A number a training sample of client K: `losses.K` and `labels.K`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from adafed.client_rules.base import Ask, Draw, Orders, Plan, Setting, TellingReply, Tensors, Told
from adafed.client_rules.fedcorr.mixture import upper
from adafed.errors import AdafedError
from adafed.randomness import round_generator
from adafed.server_rules import Rule, rule

if TYPE_CHECKING:
    from adafed.client_rules.fedcorr.rule import FedCorr

LARGEST = 1e9  # of a number that a client tells; beyond it a fit of two distributions has no digits left
VISITING = 3  # the stream of random numbers of the first stage's order


class Stages(Plan):
    """Stage 1: everyone once, `group` clients a round, and this `iterations` times. Stage 2: `clean_rounds` rounds of
    the clients found clean. Stage 3: the rest of the run, everybody."""

    def __init__(self, section: FedCorr, setting: Setting) -> None:
        self.section = section
        self.clients = setting.clients
        self.seed = setting.seed
        self.visits = section.visits(self.clients)
        self.first = section.iterations * self.visits
        self.second = self.first + section.clean_rounds
        self.average = rule("fedavg")
        if setting.rounds < self.second:
            raise AdafedError(
                f"rounds = {setting.rounds} are too few for FedCorr: fedcorr.iterations = {section.iterations} with "
                f"{self.visits} rounds each and fedcorr.clean_rounds = {section.clean_rounds} take {self.second}; it "
                "must be that or more"
            )

    def largest(self, usual: int) -> int:
        return max(usual, min(self.section.group, self.clients))

    def stage(self, t: int) -> int:
        return 1 if t <= self.first else 2 if t <= self.second else 3

    def server_rule(self, round: int, own: Rule) -> Rule:
        """The first stage averages, whatever the rule: its groups are too small to be fair among."""
        return self.average if self.stage(round) == 1 else own

    def fresh(self, length: int) -> Tensors:
        return {
            key: torch.zeros(self.clients, dtype=torch.float64) for key in ("dimension", "visits", "noise", "noisy")
        }

    def draw(self, round: int, known: Tensors) -> Draw | None:
        if self.stage(round) == 1:
            iteration, visit = divmod(round - 1, self.visits)
            order = round_generator(self.seed, iteration, VISITING).permutation(self.clients)
            return Draw(order[visit * self.section.group : (visit + 1) * self.section.group], all=True)
        if self.stage(round) == 2:
            clean = np.flatnonzero(known["noise"].numpy() <= self.section.kappa)
            return Draw(clean, all=False) if len(clean) else None
        return None

    def orders(self, round: int, client: int, known: Mapping[str, torch.Tensor]) -> Orders:
        """In the first stage `pull`, beta mu_k, the weight of ||theta - theta_t|| in the local loss: noisy clients stay
        near the global model; and that the client is `suspected`. Its corrected `labels`, once there are any."""
        orders: dict[str, object] = {}
        if self.stage(round) == 1:
            orders = {"pull": self.section.beta * float(known["noise"][client]), "suspected": True}
        if f"labels.{client}" in known:
            orders["labels"] = known[f"labels.{client}"].tolist()
        return orders

    def notes(self, round: int, known: Tensors) -> dict[str, int]:
        corrected = sum(key.startswith("labels.") for key in known)
        return {"stage": self.stage(round), "noisy": int(known["noisy"].sum()), "relabelled": corrected}

    def learned(self, round: int, known: Tensors, replies: Sequence[TellingReply], ask: Ask) -> Tensors:
        """At the end of an iteration, and of the second stage, labels are corrected."""
        if self.stage(round) == 1:
            known = self._noted(known, replies)
            if round % self.visits == 0:
                known = self._estimated(known)
                known = self._relabelled(known, ask, by_loss=True)
                known = {key: value for key, value in known.items() if not key.startswith("losses.")}
        elif round == self.second:
            known = self._relabelled(known, ask, by_loss=False)
        return known

    def _noted(self, known: Tensors, replies: Sequence[TellingReply]) -> Tensors:
        """A client whose training diverged has told nothing."""
        dimension, visits = known["dimension"].clone(), known["visits"].clone()
        losses = {}
        for client, told in replies:
            own, score = _numbers(told, "losses"), _numbers(told, "dimension")
            if own is not None and score is not None and own.ndim == 1 and score.ndim == 0:
                dimension[client] += float(score)
                visits[client] += 1
                losses[f"losses.{client}"] = torch.from_numpy(own)
        return known | {"dimension": dimension, "visits": visits} | losses

    def _estimated(self, known: Tensors) -> Tensors:
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

    def _relabelled(self, known: Tensors, ask: Ask, *, by_loss: bool) -> Tensors:
        """Noisy clients take the global model's answer where it is confident: in the first stage for the share mu_k pi
        of their samples with the largest losses, after the second for all."""
        noisy = np.flatnonzero(known["noisy"].numpy()).tolist()
        chosen = [client for client in noisy if not by_loss or f"losses.{client}" in known]
        changed = {}
        for client, told in ask(chosen, known):
            confidences, answers, before = (_numbers(told, key) for key in ("confidences", "answers", "labels"))
            losses = known[f"losses.{client}"].numpy() if by_loss else confidences
            if confidences is None or answers is None or before is None or losses is None:
                continue  # nothing of use was answered
            if confidences.ndim != 1 or not confidences.shape == answers.shape == before.shape == losses.shape:
                continue
            taken = confidences > self.section.confidence
            if by_loss:
                most = int(len(losses) * float(known["noise"][client]) * self.section.relabelled)
                largest = np.zeros(len(losses), dtype=bool)
                largest[np.argsort(-losses, kind="stable")[:most]] = True
                taken &= largest
            if taken.any():
                changed[f"labels.{client}"] = torch.from_numpy(np.where(taken, answers, before).astype(np.int64))
        return known | changed


def _numbers(told: Told, key: str) -> npt.NDArray[np.float64] | None:
    """What a client told under this key, if it is numbers within reason: on Flower it may be anything."""
    try:
        found = np.array(told[key], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return found if found.size and (np.abs(found) < LARGEST).all() else None
