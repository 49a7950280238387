"""Names and options: what is accepted, and the sentence for what is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

import adafed
from adafed import AdafedError
from adafed.registry import REQUIRED, Named, Registry, coerced, described, options

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "adafad",
            {},
            "^rule.name = 'adafad' is unknown; there are adafed, afl, agno.*term, your own as 'module:attribute'$",
        ),
        ("adafed", {"gama": 1}, "rule.gama is unknown; rule.name = 'adafed' has gamma, scale, hull, ridge$"),
        ("adafed", {"gamma": "5"}, "rule.gamma is '5'; it must be a number"),
        ("adafed", {"gamma": True}, "rule.gamma is True; it must be a number"),
        ("adafed", {"gamma": None}, "rule.gamma is None; it must be a number"),
        ("adafed", {"gamma": [1]}, r"rule.gamma is \[1\]; it must be a number"),
        ("adafed", {"gamma": -1}, "rule.gamma is -1.0; it must be a finite number at least 0"),
        ("adafed", {"gamma": NAN}, "rule.gamma is nan"),
        ("adafed", {"gamma": INF}, "rule.gamma is inf"),
        ("adafed", {"ridge": -1e-3}, "rule.ridge is -0.001"),
        ("adafed", {"hull": "convex"}, "rule.hull is 'convex'; it must be one of 'affine', 'simplex'"),
        ("adafed", {"hull": 1}, "rule.hull is 1; it must be one of 'affine', 'simplex'"),
        ("adafed", {"scale": "max"}, "rule.scale is 'max'; it must be one of 'mean', 'update', 'min', 'paper'"),
        ("fedavg", {"weighted": 1}, "rule.weighted is 1; it must be true or false"),
        ("fedavg", {"weighted": "true"}, "rule.weighted is 'true'; it must be true or false"),
        ("qffl", {"lr": "fast"}, "rule.lr is 'fast'; it must be a number"),
        ("qffl", {"lr": 0}, "rule.lr is 0.0; it must be a finite number greater than 0"),
        ("qffl", {"q": -1}, "rule.q is -1.0"),
        ("afl", {"step": -1}, "rule.step is -1.0"),
        ("term", {"t": INF}, "rule.t is inf"),
        ("term", {"t": -INF}, "rule.t is -inf"),
        ("term", {"variant": "exact"}, "rule.variant is 'exact'; it must be one of 'softmax', 'reference'"),
        ("fedmgda+", {"epsilon": -0.1}, "rule.epsilon is -0.1"),
        ("fedmgda+", {"prior": "n"}, "rule.prior is 'n'; it must be one of 'uniform', 'size'"),
        ("fedfa", {"alpha": 0.7}, r"rule.alpha \+ rule.beta is 1.2; it must be 1"),
        ("fedfa", {"variant": "mine"}, "rule.variant is 'mine'"),
        ("fedfv", {"alpha": 1.5}, "rule.alpha is 1.5; it must be between 0 and 1"),
        ("fedfv", {"tau": 1.0}, "rule.tau is 1.0; it must be a whole number"),
        ("fedfv", {"tau": -1}, "rule.tau is -1"),
        ("gifair", {"c": 1.0}, "rule.c is 1.0; it must be at least 0 and less than 1"),
        ("fcfc", {"delta": 0}, "rule.delta is 0.0"),
        ("fcfc", {"decay": 1.1}, "rule.decay is 1.1; it must be greater than 0 and at most 1"),
    ],
)
def test_mistakes_are_told_in_a_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AdafedError, match=sentence) as caught:
        adafed.rule(name, **options)
    assert "\n" not in str(caught.value)


def test_presets() -> None:
    assert adafed.rule("adafed", preset="paper") == adafed.rule("adafed", gamma=1, scale="paper", hull="affine")
    overridden = adafed.rule("adafed", preset="paper", gamma=2, hull="simplex")
    assert overridden.options() == {"gamma": 2.0, "scale": "paper", "hull": "simplex", "ridge": 0.0}
    with pytest.raises(AdafedError, match=r"rule\.preset = 'papers' is unknown; rule\.name = 'adafed' has 'paper'$"):
        adafed.rule("adafed", preset="papers")
    with pytest.raises(AdafedError, match=r"rule\.preset = 'paper' is unknown; rule\.name = 'fedavg' has none$"):
        adafed.rule("fedavg", preset="paper")
    with pytest.raises(AdafedError, match=r"rule\.name = 'nobody' is unknown"):
        adafed.rule("nobody", preset="paper")


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (5, float, 5.0),
        (5, int, 5),
        (0.5, float, 0.5),
        (True, bool, True),
        (None, float | None, None),
        (2, float | None, 2.0),
        ("mean", Literal["mean", "min"], "mean"),
        (np.float64(0.5), float, 0.5),
        (np.float32(0.5), float, 0.5),
        (np.int64(3), int, 3),
        (np.int64(3), float, 3.0),
        (np.bool_(True), bool, True),
        ("mean", Literal["mean", "min"] | None, "mean"),
        ("a/b", str | Path, "a/b"),
        ([1, 2], tuple[int, ...], [1, 2]),
        ([1, 2], list[int] | None, [1, 2]),
        ({"a": 1}, Any, {"a": 1}),
    ],
)
def test_accepted_values(value: Any, hint: Any, expected: Any) -> None:
    found = coerced("x", value, hint)
    assert found == expected
    assert type(found) is type(expected)


def test_descriptions_hold_what_differs() -> None:
    assert str(adafed.rule("adafed")) == "adafed"
    assert str(adafed.rule("adafed", gamma=1, hull="affine")) == "adafed(gamma=1.0, hull=affine)"
    assert described(adafed.optimizer("sgd", momentum=0.9)) == "sgd(momentum=0.9)"


def test_names_are_sorted_and_registered_once() -> None:
    names = Registry[Any]("thing")

    @names.register("b")
    @dataclass(frozen=True)
    class Second:
        name: ClassVar[str]
        size: int = 1

    @names.register("a")
    @dataclass(frozen=True)
    class First:
        name: ClassVar[str]

    assert names.names() == ("a", "b")
    assert names.entry("a") is First
    with pytest.raises(AdafedError, match="a thing named 'a' is registered already"):
        names.register("a")(Second)
    with pytest.raises(
        AdafedError, match=r"thing\.name = 'c' is unknown; there are a, b, your own as 'module:attribute'$"
    ):
        names.make("c")


def test_rules_are_equal_by_their_options_and_cannot_change() -> None:
    rule = adafed.rule("adafed", gamma=2)
    assert rule == adafed.rule("adafed", gamma=2.0)
    assert rule != adafed.rule("adafed", gamma=3)
    with pytest.raises(AttributeError):
        rule.gamma = 3.0  # type: ignore[attr-defined]


class Part(Named):
    """A kind of thing that is known by name."""


@dataclass(frozen=True)
class Spring(Part):
    strength: float = field(metadata={"key": "lambda", "help": "how hard it pulls"})
    coils: tuple[int, ...] = (1, 2)
    seen: list[int] = field(default_factory=list)
    length: float = field(default=0.0, init=False)


def springs() -> Registry[type[Part]]:
    parts: Registry[type[Part]] = Registry("part", "parts", Part)
    parts.register("spring")(Spring)
    return parts


def test_an_option_may_have_another_key_than_its_field() -> None:
    parts = springs()
    spring = parts.make("spring", **{"lambda": 1, "coils": (3,)})
    assert spring == Spring(1.0, (3,))
    assert options(spring) == {"lambda": 1.0, "coils": (3,), "seen": []}
    assert described(spring) == "spring(lambda=1.0, coils=(3,))"
    assert parts.make(spring.name, **options(spring)) == spring
    option = parts.options("spring")["lambda"]
    assert (option.parameter, option.kind, option.default, option.help) == (
        "strength",
        float,
        REQUIRED,
        "how hard it pulls",
    )
    for wrong, told in (
        ({}, r"^parts\.lambda is missing; parts\.name = 'spring' needs it$"),
        ({"strength": 1}, r"^parts\.strength is unknown; parts\.name = 'spring' has lambda, coils, seen$"),
        ({"lambda": "x"}, r"^parts\.lambda is 'x'; it must be a number$"),
    ):
        with pytest.raises(AdafedError, match=told):
            parts.make("spring", **wrong)


def test_what_is_registered_is_of_its_kind() -> None:
    class Loose(Part):
        weight: float = 1.0

    with pytest.raises(AdafedError, match=r"parts\.name = 'loose' is no dataclass"):
        springs().register("loose")(Loose)
    with pytest.raises(
        AdafedError, match=r"parts\.name = 'x' is the class Registry; it must be a frozen dataclass that"
    ):
        springs().register("x")(Registry)


def test_functions_are_handed_what_they_take() -> None:
    shapes: Registry[Any] = Registry("shape", "shape", leading=1, given=("seed", "size"))

    @shapes.register("square")
    def square(side: float, *, seed: int, corners: int = 4, **rest: Any) -> tuple[Any, ...]:
        return side, seed, corners, rest

    @shapes.register("circle")
    def circle(radius: float, width: float = 1.0) -> tuple[float, float]:
        return radius, width

    assert list(shapes.options("square")) == ["corners"]
    assert shapes.call("square", {"colour": "red"}, 2.0, seed=1, size=3) == (2.0, 1, 4, {"colour": "red"})
    assert shapes.call("circle", {"width": 2}, 2.0, seed=1, size=3) == (2.0, 2.0)
    with pytest.raises(AdafedError, match=r"^shape\.radius is unknown; shape\.name = 'circle' has width$"):
        shapes.call("circle", {"radius": 1.0}, 2.0)
    with pytest.raises(
        AdafedError, match=r"^shape\.seed = 5 follows from the rest of the configuration; leave it out$"
    ):
        shapes.call("square", {"seed": 5}, 2.0, seed=1)
    assert shapes.call("math:hypot", {}, 3.0) == 3.0


def test_where_entries_have_no_section_an_options_place_is_its_entrys_name() -> None:
    listed: Registry[Any] = Registry("shape", leading=1, given=("seed",), name_key="drawing.shapes")

    @listed.register("circle")
    def circle(radius: float, *, width: float, seed: int) -> float:
        return radius * width

    assert listed.call("circle", {"width": 3}, 2.0, seed=1) == 6.0
    for chosen, told in (
        ({"hue": 1}, r"^circle\.hue is unknown; drawing\.shapes = 'circle' has width$"),
        ({"width": "x"}, r"^circle\.width is 'x'; it must be a number$"),
        ({"seed": 1}, r"^circle\.seed = 1 follows from the rest of the configuration; leave it out$"),
        ({}, r"^circle\.width is missing; drawing\.shapes = 'circle' needs it$"),
    ):
        with pytest.raises(AdafedError, match=told):
            listed.arguments("circle", chosen)
    with pytest.raises(AdafedError, match=r"^drawing\.shapes = 'oval' is unknown; there are circle, your own as"):
        listed.entry("oval")


@pytest.mark.parametrize("name", ["", "a", 3, None])
def test_every_name_that_is_none_is_told(name: Any) -> None:
    with pytest.raises(
        AdafedError, match=r"^parts\.name = .* is unknown; there are spring, your own as 'module:attribute'$"
    ):
        springs().entry(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (":Spring", "must have the form 'module:attribute'"),
        ("spring:", "must have the form 'module:attribute'"),
        ("no_such_module:Spring", "there is no module 'no_such_module' to import"),
        ("math:Spring", "math has no attribute 'Spring'"),
        ("math:pi", "is float; it must be a frozen dataclass that derives from "),
    ],
)
def test_places_where_nothing_fits_are_told(name: str, told: str) -> None:
    with pytest.raises(AdafedError, match=rf"^parts\.name = '{name}'.*{told}"):
        springs().entry(name)


@pytest.mark.parametrize(
    ("value", "hint"), [(2, Literal[1, 2]), ("all", int | Literal["all"]), (3, int | Literal["all"]), ("x", int | str)]
)
def test_a_value_may_be_of_one_kind_or_one_of_a_few(value: Any, hint: Any) -> None:
    assert coerced("rule.keep", value, hint) == value


@pytest.mark.parametrize(
    ("value", "hint", "wanted"),
    [
        (3, Literal[1, 2], "one of 1, 2"),
        ("some", int | Literal["all"], "a whole number or one of 'all'"),
        (True, Literal[1, 2], "one of 1, 2"),
        (1.5, int | str, "a whole number or a string"),
    ],
)
def test_what_is_of_none_of_them_is_told(value: Any, hint: Any, wanted: str) -> None:
    with pytest.raises(AdafedError, match=f"rule.keep is {value!r}; it must be {wanted}"):
        coerced("rule.keep", value, hint)
