"""What every server rule must do, whatever its formula: `check_rule(rule)` for rules of your own.

Each property is a function of a rule that raises AssertionError with a sentence; PROPERTIES holds them all.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from adafed.errors import AdafedError
from adafed.registry import REQUIRED, offered
from adafed.server.aggregate import Aggregate, RuleState, aggregate
from adafed.server.memory import Memory
from adafed.server_rules import Facts, Rule, rule
from adafed.testing.claims import check, claim

Call = dict[str, Any]
"""The arguments of `aggregate` for one round."""
PLAIN_STATE = "has a state of plain numbers, strings, lists and dicts"


def check_rule(checked: Rule | type[Rule]) -> None:
    """Pass where the rule has all PROPERTIES.

    Args:
        checked: The rule, or its class, which is made with its defaults; check a rule once for each set of options that
            takes another path.

    Raises:
        AssertionError: With a sentence that names the property that it does not have.

    Examples:
        >>> import adafed
        >>> from adafed.testing import check_rule
        >>> check_rule(adafed.rule("term", t=2.0))
    """
    check(checked() if isinstance(checked, type) else checked, PROPERTIES)


def cohort(seed: int, count: int = 5, length: int = 40, dtype: torch.dtype = torch.float64) -> Call:
    """A round of `count` clients with all facts."""
    generator = np.random.default_rng(seed)
    return {
        "updates": torch.from_numpy(generator.normal(size=(count, length)) + 0.3).to(dtype),
        "losses": generator.uniform(0.1, 3.0, count),
        "sizes": generator.integers(10, 500, count).astype(float),
        "accuracies": generator.uniform(0.1, 0.9, count),
        "clients": [f"{k}" for k in generator.permutation(20)[:count]],
        "local_lr": 0.1,
    }


def reordered(call: Call, order: list[int]) -> Call:
    """The same clients, or some of them, in another order."""
    facts = {name: np.asarray(call[name])[order] for name in ("losses", "sizes", "accuracies")}
    return call | facts | {"updates": call["updates"][order], "clients": [call["clients"][k] for k in order]}


def needed(rule: Rule, call: Call) -> Call:
    """Without the facts that the rule does not ask for."""
    facts = {"losses", "sizes", "accuracies", "local_lr"}
    return {name: value for name, value in call.items() if name not in facts or name in rule.needs}


def same(one: torch.Tensor, other: torch.Tensor, tolerance: float = 1e-9) -> bool:
    return float((one - other).norm()) <= tolerance * max(float(one.norm()), 1e-300)


def is_described(rule_: Rule) -> None:
    """It has a name, a summary and options that lead back to it, through JSON too."""
    told = "is described for people and machines"
    claim(rule_, told, bool(rule_.summary), "its summary is empty; it must say what the rule does")
    claim(rule_, told, str(rule_).startswith(rule_.name), "str() does not begin with its name")
    claim(rule_, told, set(rule_.grid) <= set(rule_.options()), "its grid has a key that is no option")
    try:
        again = rule(rule_.name, **json.loads(json.dumps(rule_.options())))
        for option, value in [(option, value) for option, values in rule_.grid.items() for value in values]:
            rule(rule_.name, **(_required(rule_) | {option: value}))
        for preset in rule_.presets:
            rule(rule_.name, preset=preset, **_required(rule_))
    except (AdafedError, TypeError, ValueError) as error:
        raise AssertionError(f"{rule_}: {told}, but its name and options do not make it again: {error}") from error
    claim(rule_, told, again == rule_, f"its name and options make {again!r} instead of {rule_!r}")


def single_client(rule: Rule) -> None:
    """With one client, d is a positive multiple of its update."""
    call = cohort(5, count=1)
    outcome = aggregate(rule, **call)
    finite(rule, outcome, "one client")
    told = "moves a single client along its update"
    claim(rule, told, outcome.coefficients[0] > 0, f"the coefficient is {outcome.coefficients[0]}")
    claim(rule, told, same(outcome.direction, outcome.coefficients[0] * call["updates"][0], 1e-14), "d is another")


def order_does_not_matter(rule: Rule) -> None:
    """Over three rounds, so that state is included: each client keeps its coefficient."""
    state, other = None, None
    for round_ in (1, 2, 3):
        call = cohort(round_, count=6)
        order = np.random.default_rng(round_).permutation(6).tolist()
        outcome = aggregate(rule, **call, round=round_, state=state)
        shuffled = aggregate(rule, **reordered(call, order), round=round_, state=other)
        _same_clients(rule, "does not depend on the order of the clients", outcome, shuffled, order, round_)
        state, other = outcome.state, shuffled.state


def ties_are_broken_by_client(rule: Rule) -> None:
    call, order = cohort(11, count=6) | {"losses": np.full(6, 0.7)}, [3, 1, 5, 0, 4, 2]
    outcome, shuffled = aggregate(rule, **call), aggregate(rule, **reordered(call, order))
    _same_clients(rule, "breaks ties by client, not by order", outcome, shuffled, order, 1)


def scaling_law(rule: Rule, factors: Iterable[float] = (1e-6, 3.0, 1e6)) -> None:
    """Updates times c move d by c^degree, over two rounds."""
    if rule.degree is None:
        return
    for factor in factors:
        state, other = None, None
        for round_ in (1, 2):
            call = cohort(30 + round_)
            outcome = aggregate(rule, **call, round=round_, state=state)
            scaled = aggregate(rule, **call | {"updates": factor * call["updates"]}, round=round_, state=other)
            holds = same(outcome.direction, scaled.direction / factor**rule.degree)
            claim(rule, f"has degree {rule.degree}", holds, f"updates times {factor:g} move d by another power")
            state, other = outcome.state, scaled.state


def is_pure(rule: Rule) -> None:
    """Neither the updates, nor the facts, nor the state that is passed in change; the same call gives the same bits."""
    told = "is pure"
    first = aggregate(rule, **cohort(6))
    call, untouched = cohort(7), cohort(7)
    before = copy.deepcopy(first.state.numbers)
    outcome = aggregate(rule, **call, round=2, state=first.state)
    claim(rule, told, first.state.numbers == before, "it changes the state that is passed in")
    claim(rule, told, torch.equal(call["updates"], untouched["updates"]), "the updates change")
    again = aggregate(rule, **call, round=2, state=first.state)
    claim(rule, told, torch.equal(outcome.direction, again.direction), "the same call gives another d")
    facts = _facts(call)
    kept = copy.deepcopy(facts)
    one, other = (rule.answer(facts, rule.initial_state()).coefficients for _ in range(2))
    claim(rule, told, np.array_equal(one, other), "the same facts and state give another answer")
    for name in ("losses", "sizes", "accuracies", "norms", "gram"):
        unchanged = np.array_equal(getattr(facts, name), getattr(kept, name))
        claim(rule, told, unchanged, f"it changes the {name} that are passed in")


def state_is_json(rule: Rule) -> None:
    """Asked before a round is run, which refuses such a state with a sentence of its own."""
    _written(rule, rule.answer(_facts(cohort(0)), rule.initial_state()).state)


def state_goes_through_json(rule: Rule) -> None:
    """What a checkpoint restores continues with the same bits."""
    state: RuleState | None = None
    restored: RuleState | None = None
    for round_ in (1, 2, 3, 4):
        call = cohort(20 + round_, count=3 + round_ % 3)
        outcome = aggregate(rule, **call, round=round_, federation=20, state=state)
        again = aggregate(rule, **call, round=round_, federation=20, state=restored)
        bits = torch.equal(outcome.direction, again.direction)
        bits = bits and np.array_equal(outcome.coefficients, again.coefficients)
        claim(rule, PLAIN_STATE, bits, f"a restored state gives another answer in round {round_}")
        claim(rule, PLAIN_STATE, outcome.state.numbers == again.state.numbers, f"round {round_} ends in another state")
        state, restored = outcome.state, _through_json(rule, again.state)


EXTREMES: dict[str, Call] = {
    "zero losses": {"losses": np.zeros(4)},
    "one zero loss": {"losses": np.array([0.0, 1.0, 2.0, 3.0])},
    "tiny losses": {"losses": np.full(4, 1e-300)},
    "denormal losses": {"losses": np.full(4, 5e-324)},
    "huge losses": {"losses": np.full(4, 1e300)},
    "losses of all sizes": {"losses": np.array([0.0, 1e-300, 1.0, 1e300])},
    "largest losses": {"losses": np.array([1.7e308, -1.7e308, 1.7e308, 0.0])},
    "equal losses": {"losses": np.full(4, 0.3)},
    "negative losses": {"losses": np.array([-1.0, -2.0, 0.5, -1e-9])},
    "no accuracy": {"accuracies": np.zeros(4)},
    "full accuracy": {"accuracies": np.ones(4)},
    "accuracies 0 and 1": {"accuracies": np.array([0.0, 1.0, 0.0, 1.0])},
    "accuracy 1 against 0": {"accuracies": np.array([1.0, 0.0, 0.0, 0.0])},
    "sizes apart": {"sizes": np.array([1.0, 1e12, 3.0, 1.0])},
    "short updates": {"scale": 1e-15},
    "long updates": {"scale": 1e15},
    "a long update": {"scale": torch.tensor([[1.0], [1e12], [1.0], [1.0]])},
    "a short update": {"scale": torch.tensor([[1.0], [1e-8], [1.0], [1.0]])},
    "a negligible update": {"scale": torch.tensor([[1.0], [1e-13], [1.0], [1.0]])},
    "zero updates": {"scale": 0.0},
    "a zero update": {"scale": torch.tensor([[1.0], [0.0], [1.0], [1.0]])},
    "opposite updates": {"updates": lambda u: torch.stack([u[0], -u[0], u[1], -u[1]])},
    "equal updates": {"updates": lambda u: u[:1].expand(4, -1).clone()},
    "parallel updates": {"updates": lambda u: torch.stack([u[0], 1.1 * u[0], 0.3 * u[0], 7 * u[0]])},
    "nearly parallel updates": {"updates": lambda u: u[0] + 1e-6 * u},
    "one dimension": {"updates": lambda u: u[:, :1]},
    "cancelling in one dimension": {"updates": lambda u: torch.tensor([[0.1], [-0.3], [0.7], [-0.5]], dtype=u.dtype)},
    "two dimensions": {"updates": lambda u: u[:, :2]},
}


def finite_output(rule: Rule, dtypes: Iterable[torch.dtype] = (torch.float32, torch.float64)) -> None:
    """Over two rounds of every extreme."""
    for name, change, dtype in ((name, change, dtype) for name, change in EXTREMES.items() for dtype in dtypes):
        call = cohort(4, count=4, dtype=dtype)
        call |= {key: value for key, value in change.items() if key not in ("scale", "updates")}
        call["updates"] = change.get("updates", lambda u: u)(call["updates"]) * change.get("scale", 1.0)
        call["updates"] = call["updates"].to(dtype)
        state = None
        for round_ in (1, 2):
            try:
                outcome = aggregate(rule, **call, round=round_, state=state)
            except Exception as error:
                raise AssertionError(f"{rule}: finite input gives finite output, but {name}: {error!r}") from error
            finite(rule, outcome, f"{name}, {dtype}, round {round_}")
            state = outcome.state


def finite(rule: Rule, outcome: Aggregate, case: str) -> None:
    """Every number of an outcome."""
    told, found = "finite input gives finite output", outcome.diagnostics
    kept = [k for k, rate in enumerate(found.rates) if not np.isnan(rate)]
    claim(rule, told, bool(outcome.direction.isfinite().all()), f"{case}: the direction is not")
    claim(rule, told, bool(np.isfinite(outcome.coefficients).all()), f"{case}: coefficients {outcome.coefficients}")
    claim(rule, told, bool(np.isfinite(found.rates[kept]).all()), f"{case}: rates {found.rates}")
    claim(rule, told, len(kept) + len(found.dropped) == len(outcome.coefficients), f"{case}: rates {found.rates}")
    claim(rule, told, bool(np.isfinite([found.norm, found.mean_norm]).all()), f"{case}: the length of d is not")
    _through_json(rule, outcome.state)


def spoil_update(call: Call, value: float = float("nan")) -> None:
    call["updates"][2, 5] = value


def spoil_update_infinitely(call: Call) -> None:
    spoil_update(call, float("-inf"))


def spoil_loss(call: Call, value: float = float("nan")) -> None:
    call["losses"][2] = value


def spoil_loss_infinitely(call: Call) -> None:
    spoil_loss(call, float("inf"))


SPOILS = (spoil_update, spoil_update_infinitely, spoil_loss, spoil_loss_infinitely)


def dropped_clients_leave_no_trace(rule: Rule, spoils: Iterable[Callable[[Call], None]] = SPOILS) -> None:
    """A client that is dropped leaves the rest as if it had not come, state included."""
    told, rest = "is left as if dropped clients had not come", [0, 1, 3, 4]
    for spoil in spoils:
        state, other = None, None
        for round_ in (1, 2):
            call = cohort(40 + round_)
            spoil(call)
            outcome = aggregate(rule, **call, round=round_, state=state)
            without = aggregate(rule, **reordered(call, rest), round=round_, state=other)
            found = outcome.diagnostics
            claim(rule, told, list(found.dropped) == [call["clients"][2]], f"dropped are {found.dropped}")
            claim(rule, told, outcome.coefficients[2] == 0.0 and bool(np.isnan(found.rates[2])), "it has a coefficient")
            finite(rule, outcome, "a dropped client")
            close = np.allclose(outcome.coefficients[rest], without.coefficients, rtol=1e-12, atol=0.0)
            claim(rule, told, close and same(outcome.direction, without.direction, 1e-12), "the others' answer differs")
            states = outcome.state.numbers == without.state.numbers and outcome.state.memory == without.state.memory
            claim(rule, told, states, "the state differs")
            state, other = outcome.state, without.state


def facts_not_needed_change_nothing(rule: Rule) -> None:
    told, call = "looks only at the facts it needs", cohort(10)
    outcome = aggregate(rule, **needed(rule, call))
    others = {"losses": call["losses"][::-1], "sizes": [-1.0] * 5, "accuracies": [2.0, None, 0, 1, 5], "local_lr": -1.0}
    again = aggregate(rule, **call | {fact: values for fact, values in others.items() if fact not in rule.needs})
    claim(rule, told, torch.equal(outcome.direction, again.direction), "others change its answer")
    claim(rule, told, again.diagnostics.dropped == {}, f"others cost clients the round: {again.diagnostics.dropped}")


def one_coefficient_for_each_row(rule: Rule) -> None:
    """Clients first, then what the rule remembers."""
    facts = _facts(cohort(0))
    found = np.shape(rule.answer(facts, rule.initial_state()).coefficients)
    claim(rule, "answers with one coefficient for each client", found == (5,), f"their shape is {found} for 5 clients")


PROPERTIES: dict[str, Callable[[Rule], None]] = {
    "answers with one coefficient for each client": one_coefficient_for_each_row,
    "has a state that JSON can hold": state_is_json,
    "is pure": is_pure,
    "moves a single client along its update": single_client,
    "does not depend on the order of the clients": order_does_not_matter,
    "breaks ties by client, not by order": ties_are_broken_by_client,
    PLAIN_STATE: state_goes_through_json,
    "obeys its scaling law": scaling_law,
    "is left as if dropped clients had not come": dropped_clients_leave_no_trace,
    "looks only at the facts it needs": facts_not_needed_change_nothing,
    "finite input gives finite output": finite_output,
    "is described for people and machines": is_described,
}


def _same_clients(
    rule: Rule, told: str, outcome: Aggregate, shuffled: Aggregate, order: list[int], round_: int
) -> None:
    close = np.allclose(shuffled.coefficients, outcome.coefficients[order], rtol=1e-8, atol=1e-11)
    claim(rule, told, close, f"in another order, coefficients change in round {round_}")
    claim(rule, told, same(outcome.direction, shuffled.direction), f"in another order, d changes in round {round_}")


def _facts(call: Call) -> Facts:
    """All that a rule may be told in a first round."""
    updates = call["updates"].double().numpy()
    gram = updates @ updates.T
    return Facts(
        tuple(call["clients"]),
        losses=np.array(call["losses"]),
        sizes=np.array(call["sizes"]),
        accuracies=np.array(call["accuracies"]),
        local_lr=call["local_lr"],
        federation=20,
        norms=np.sqrt(np.diag(gram)),
        gram=gram,
    )


def _required(rule: Rule) -> dict[str, Any]:
    """The options that have no default, as this rule has them."""
    values = rule.options()
    return {key: values[key] for key, option in offered(type(rule))[0].items() if option.default is REQUIRED}


def _written(rule: Rule, state: object) -> str:
    try:
        return json.dumps(state, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise AssertionError(f"{rule}: {PLAIN_STATE}, but its state is not JSON: {error}") from error


def _through_json(rule: Rule, state: RuleState) -> RuleState:
    """As a checkpoint keeps it: JSON and tensors."""
    tensors, told = state.known.packed()
    numbers, told = json.loads(_written(rule, [state.numbers, told]))
    claim(rule, PLAIN_STATE, numbers == state.numbers, f"JSON makes {numbers} of its state {state.numbers}")
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    length = len(state.known.whole[0]) if len(state.known) else 0
    return RuleState(numbers, Memory.unpacked(copies, told, length, None))
