"""Whether what is remembered is still true: a client that comes back brings a fresh update beside the remembered one.

g.o / ||o||^2 is the share of the remembered update o that is still true by the fresh one, g. Put in its place, o is off
by ||g - o||^2 and nothing by ||g||^2, so of a single client o is better than nothing where the share is above a half.
Less is asked for: mini-batches make even two updates of one model differ, and that averages out over many clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adafed.algebra.gram import within_float32
from adafed.algebra.rows import Rows
from adafed.algebra.sketch import sketched
from adafed.server.memory import Memory, Remember, Returned, products
from adafed.server.remaining import Remaining
from adafed.server_rules.base import Vector

WINDOW = 100  # clients that came back: those before count less and less
ENOUGH = 5  # of them; with fewer nothing is known yet


@dataclass(frozen=True)
class Truth:
    """How much of what is remembered is still true, by those that `came_back`; whether that is `enough` to show it."""

    came_back: Returned
    enough: bool

    @property
    def share(self) -> float | None:
        return self.came_back.true / self.came_back.clients if self.came_back.clients >= ENOUGH else None


def truth(left: Remaining, rows: Rows, known: Memory, remember: Remember) -> Truth:
    """With those of this round that come back. Nothing is measured where no truth is asked for, or nobody is to be
    shown: a rule that looks back by itself knows what it wants."""
    if not remember.truth or not remember.horizon:
        return Truth(known.returned, True)
    found = known.returned
    shares = shares_still_true(left, rows, known, remember)
    if len(shares):
        fade = (1.0 - 1.0 / WINDOW) ** len(shares)
        found = Returned(found.true * fade + float(shares.sum()), found.clients * fade + len(shares))
    judged = Truth(found, True)
    return judged if judged.share is None or judged.share >= remember.truth else Truth(found, False)


def shares_still_true(left: Remaining, rows: Rows, known: Memory, remember: Remember) -> Vector:
    """g.o / ||o||^2 of each that comes back, g as guards left it, kept between 0 and 1: no client counts for more."""
    place = {client: i for i, client in enumerate(known.clients)}
    both = [(k, place[client]) for k, client in enumerate(left.facts.clients) if client in place]
    both = [(k, i) for k, i in both if remember.store.sketch or known.rows[i] is not None]
    if not both:
        return np.zeros(0)
    before = known.some([i for _, i in both])
    fresh = rows.select(left.kept)
    if remember.store.sketch:
        fresh = Rows(sketched(fresh, remember.store.sketch))
    # What was sent may be too long for float32's products, however a guard bounds it.
    fits = left.gram is None or within_float32(np.append(left.gram.diagonal(), before.lengths**2), rows.length)
    between = products(fresh, before, precise=not fits)
    if left.mixing is not None:
        between = left.mixing @ between
    elif left.multipliers is not None:
        between = left.multipliers[:, None] * between
    squares = np.diag(before.matrix(precise=not fits))
    with np.errstate(all="ignore"):  # a remembered update may be zero
        shares = between[[k for k, _ in both], np.arange(len(both))] / squares
    return np.clip(shares[np.isfinite(shares)], 0.0, 1.0)
