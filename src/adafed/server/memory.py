"""What the server remembers of the federation: every client's latest update, with what the client told beside it.

`Memory` is a value: `after` makes the next round's from it, and what the state of an earlier round remembers stays as
it was. The inner products of the remembered updates are kept with them, so a round makes those of its cohort alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from adafed.algebra.cross import cross
from adafed.algebra.gram import gram
from adafed.algebra.rows import Rows
from adafed.algebra.stored import STORAGES, StoredRow
from adafed.errors import AdafedError
from adafed.registry import one_of
from adafed.server.row_files import PlacedRow, RowStore
from adafed.server.saved import DamagedState, check_rows, check_told
from adafed.server_rules.base import EVER, Matrix, Rule, Vector

Row = torch.Tensor | StoredRow
TRUE_ENOUGH = 0.3  # the share of an update that must still be true where nobody says, see `adafed.server.returning`
SKETCHED = -2  # in place of a row's place: of that update only the sketch is kept


def _is_horizon(rounds: object) -> bool:
    return (isinstance(rounds, str) and rounds == "all") or (type(rounds) is int and rounds >= 0)


@dataclass(frozen=True)
class Remember:
    """How long the server remembers, and how.

    rounds    the age up to which a remembered update is shown to the rule beside the cohort's; 0: none, "all": any.
    discount  what a told loss and a sample count are multiplied by for every round of their age.
    most      updates that are remembered at most; the oldest go first. 0: no limit.
    truth     the share of a remembered update that must still be true, by those of clients that come back (see
              `returning`); while it is less, nobody is shown who is not here. 0: whatever it is.
    store     where they lie. If it keeps sketches too, everyone within `rounds` is remembered, by a sketch, and `most`
              is how many updates are kept whole: the newest.
    """

    rounds: int | Literal["all"] = 0
    discount: float = 1.0
    most: int = 0
    truth: float = 0.0
    store: RowStore = field(default_factory=RowStore, compare=False)

    def __post_init__(self) -> None:
        if not _is_horizon(self.rounds):
            raise AdafedError(f'memory.rounds is {self.rounds!r}; it must be a number of rounds, or "all"')
        if not isinstance(self.discount, int | float) or not 0.0 < self.discount <= 1.0:
            raise AdafedError(f"memory.discount is {self.discount!r}; it must be above 0 and at most 1")
        if not isinstance(self.truth, int | float) or not 0.0 <= self.truth <= 1.0:
            raise AdafedError(f"memory.truth is {self.truth!r}; it must be a share, from 0 to 1")
        one_of("memory.storage", self.store.storage, STORAGES)
        if self.store.sketch and not self.most:
            raise AdafedError(f"memory.sketch is {self.store.sketch} and memory.most is 0; say how many are kept whole")

    @classmethod
    def asked_for(cls, memory: int | Literal["all", "auto"] | Remember, rule: Rule, known: Memory) -> Remember:
        """Where it is "auto": everyone as long as that stays true; nobody under a rule that is not best with all. What
        is known already counts towards the budget of a store that is made here."""
        if isinstance(memory, Remember):
            return memory
        store = RowStore(beside=known.rows)
        if isinstance(memory, str) and memory == "auto":
            return cls("all", truth=TRUE_ENOUGH, store=store) if rule.everyone else cls(0, store=store)
        if not _is_horizon(memory):
            raise AdafedError(f'memory is {memory!r}; it must be a number of rounds, "all", "auto" or a Remember')
        return cls(memory, store=store)

    @property
    def horizon(self) -> int:
        return EVER if self.rounds == "all" else self.rounds


@dataclass(frozen=True)
class Returned:
    """Clients that came back, and the sum of what was still true of their remembered updates; the latest count most."""

    true: float = 0.0
    clients: float = 0.0


def _none() -> Vector:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class Memory:
    """The remembered updates, oldest first, with the clients' names, the rounds they are from, what was told then (NaN
    where it was not), their lengths and Gram matrix where a rule has asked for them, and the coefficients they had.
    Where sketches are kept the matrix is theirs, and a row of None is an update that is not kept whole."""

    clients: tuple[str, ...] = ()
    rounds: tuple[int, ...] = ()
    rows: tuple[Row | None, ...] = ()
    losses: Vector = field(default_factory=_none)
    sizes: Vector = field(default_factory=_none)
    accuracies: Vector = field(default_factory=_none)
    lengths: Vector = field(default_factory=_none)
    coefficients: Vector = field(default_factory=_none)
    gram: Matrix | None = None
    sketches: tuple[Row, ...] = ()
    precise: bool = False  # whether every product of the matrix was made in float64
    returned: Returned = Returned()

    @classmethod
    def of(cls, names: Sequence[tuple[str, int]], rows: Sequence[Row | None] | torch.Tensor | None) -> Memory:
        """Updates of which nothing else is known."""
        rows = [] if rows is None else list(rows)
        if len(rows) != len(names):
            raise AdafedError(f"state has {len(rows)} vectors and names {len(names)}; save and restore both")
        clients, rounds = tuple(client for client, _ in names), tuple(round_ for _, round_ in names)
        return cls(clients, rounds, tuple(rows)).telling(None, None, None, None, np.zeros(len(rows)))

    @property
    def names(self) -> tuple[tuple[str, int], ...]:
        return tuple(zip(self.clients, self.rounds, strict=True))

    def telling(
        self,
        losses: Vector | None,
        sizes: Vector | None,
        accuracies: Vector | None,
        lengths: Vector | None,
        coefficients: Vector,
    ) -> Memory:
        """With what is known of them beside their updates; None: nothing."""
        unknown = np.full(len(self), np.nan)
        return replace(
            self,
            losses=unknown if losses is None else losses,
            sizes=unknown if sizes is None else sizes,
            accuracies=unknown if accuracies is None else accuracies,
            lengths=unknown if lengths is None else lengths,
            coefficients=coefficients,
        )

    def __len__(self) -> int:
        return len(self.clients)

    def some(self, places: Sequence[int]) -> Memory:
        """These of them."""
        chosen = list(places)
        if chosen == list(range(len(self))):
            return self
        return Memory(
            tuple(self.clients[i] for i in chosen),
            tuple(self.rounds[i] for i in chosen),
            tuple(self.rows[i] for i in chosen),
            self.losses[chosen],
            self.sizes[chosen],
            self.accuracies[chosen],
            self.lengths[chosen],
            self.coefficients[chosen],
            None if self.gram is None else self.gram[np.ix_(chosen, chosen)],
            tuple(self.sketches[i] for i in chosen) if self.sketches else (),
            self.precise,
        )

    def matrix(self, *, precise: bool = False) -> Matrix:
        """The Gram matrix of the remembered updates: the one that is kept, or made anew."""
        if self.gram is not None and (self.precise or not precise):
            return self.gram
        return gram(Rows.of_stored(self.multiplied), precise=precise) if self.rows else np.zeros((0, 0))

    @property
    def multiplied(self) -> Sequence[Row]:
        """What inner products are taken of: the sketches where there are any, else the updates."""
        return self.sketches or self.whole

    @property
    def whole(self) -> list[Row]:
        """The updates that are kept whole."""
        return [row for row in self.rows if row is not None]

    def is_zero(self, place: int) -> bool:
        """Whether that update, or its sketch, is zero."""
        row = self.multiplied[place]
        return not bool((row.tensor() if isinstance(row, StoredRow) else row).any())

    def after(self, new: Memory, between: Matrix | None) -> Memory:
        """With newer updates behind the older ones, of other clients; `between` are the products of the older rows with
        the newer."""
        matrix = None
        if between is not None and self.gram is not None and new.gram is not None:
            matrix = np.block([[self.gram, between], [between.T, new.gram]])
        elif not len(self):
            matrix = new.gram
        return Memory(
            self.clients + new.clients,
            self.rounds + new.rounds,
            self.rows + new.rows,
            np.append(self.losses, new.losses),
            np.append(self.sizes, new.sizes),
            np.append(self.accuracies, new.accuracies),
            np.append(self.lengths, new.lengths),
            np.append(self.coefficients, new.coefficients),
            matrix,
            self.sketches + new.sketches,
            new.precise and (self.precise or not len(self)),
        )

    # To and from a checkpoint

    def packed(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """As tensors and plain numbers. A row that lies in a file of its own is named by its place there."""
        tensors, numbers = _packed(self.rows, "memory", "")
        if self.sketches:
            more, named = _packed(self.sketches, "memory.sketches", "sketch ")
            tensors, numbers = tensors | more, numbers | named | {"sketch": len(self.sketches[0])}
        if len(self):
            told = [self.losses, self.sizes, self.accuracies, self.lengths, self.coefficients]
            tensors["memory.told"] = torch.from_numpy(np.stack(told))
        if self.gram is not None and len(self):
            tensors["memory.gram"] = torch.from_numpy(self.gram)
        numbers["memory"] = self.names
        if self.precise:
            numbers["precise"] = True
        if self.returned.clients:
            numbers["returned"] = [self.returned.true, self.returned.clients]
        return tensors, numbers

    @classmethod
    def unpacked(
        cls, tensors: Mapping[str, torch.Tensor], numbers: Mapping[str, Any], length: int, store: RowStore | None
    ) -> Memory:
        try:
            names = [(str(client), int(round_)) for client, round_ in numbers["memory"]]
            sketch = int(numbers.get("sketch", 0))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise DamagedState("it does not say whose updates it remembers") from None
        if len(set(names)) < len(names):
            raise DamagedState("it names an update twice")
        check_told(tensors, len(names))
        returned = _returned(numbers.get("returned", [0.0, 0.0]))
        if not names:
            return replace(NOBODY, returned=returned) if returned.clients else NOBODY
        memory = cls.of(names, _unpacked(len(names), tensors, "memory", numbers, "", length, store))
        if sketch:
            kept = store.sketches if store is not None else None
            found = _unpacked(len(names), tensors, "memory.sketches", numbers, "sketch ", sketch, kept)
            memory = replace(memory, sketches=tuple(row for row in found if row is not None))
        if len(memory.multiplied) != len(memory):
            raise DamagedState("it remembers updates of which there is nothing")
        if "memory.told" in tensors:
            memory = memory.telling(*tensors["memory.told"].numpy())
        if "memory.gram" in tensors:
            memory = replace(memory, gram=tensors["memory.gram"].numpy(), precise=bool(numbers.get("precise", False)))
        return replace(memory, returned=returned)


def _returned(numbers: Any) -> Returned:
    pair = numbers if isinstance(numbers, list) and all(type(one) in (int, float) for one in numbers) else []
    if len(pair) != 2 or not 0.0 <= pair[0] <= pair[1] <= EVER:
        raise DamagedState("it does not say which share of its updates was still true")
    return Returned(float(pair[0]), float(pair[1]))


def _packed(rows: Sequence[Row | None], name: str, prefix: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Rows as a tensor of those that lie nowhere else, and the places of the others."""
    placed = [row if isinstance(row, PlacedRow) and row.lasting else None for row in rows]
    both = list(zip(rows, placed, strict=True))
    here = [row for row, there in both if row is not None and there is None]
    tensors = {}
    if here:
        tensors[name] = torch.stack([row.tensor() if isinstance(row, StoredRow) else row for row in here])
    places = [SKETCHED if row is None else -1 if there is None else there.place for row, there in both]
    if all(place == -1 for place in places):
        return tensors, {}
    totals = [0 if there is None else there.total for there in placed]
    return tensors, {f"{prefix}places": places, f"{prefix}totals": totals}


def _unpacked(
    count: int,
    tensors: Mapping[str, torch.Tensor],
    name: str,
    numbers: Mapping[str, Any],
    prefix: str,
    length: int,
    store: RowStore | None,
) -> list[Row | None]:
    try:
        places = [int(place) for place in numbers.get(f"{prefix}places", [-1] * count)]
        totals = [int(total) for total in numbers.get(f"{prefix}totals", [0] * count)]
    except (TypeError, ValueError, OverflowError):
        raise DamagedState("it does not say where the updates lie that it remembers") from None
    if not count == len(places) == len(totals):
        raise DamagedState("it does not say where the updates lie that it remembers")
    check_rows(tensors.get(name), sum(place < 0 and place != SKETCHED for place in places), length)
    there: list[Row] = list(tensors[name]) if name in tensors else []
    found: list[PlacedRow] = []
    if any(place >= 0 for place in places):
        if store is None:
            raise AdafedError("the checkpoint names updates in a file that is not at hand; give its folder")
        both = zip(places, totals, strict=True)
        found = store.file(length).find([(place, total) for place, total in both if place >= 0])
    return [found.pop(0) if place >= 0 else None if place == SKETCHED else there.pop(0) for place in places]


NOBODY = Memory()  # one for all: states that remember nobody are equal


def products(fresh: Rows, memory: Memory, *, precise: bool) -> Matrix:
    """Of the fresh updates with the remembered ones."""
    if not len(memory):
        return np.zeros((fresh.count, 0))
    return cross(fresh, Rows.of_stored(memory.multiplied), precise=precise)
