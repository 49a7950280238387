"""What a rule is shown: facts, and facts with others in their place."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from adafed import Facts
from adafed.server_rules.base import altered


def test_altered_facts_are_those_that_replace_makes() -> None:
    facts = Facts(("a", "b"), losses=np.ones(2), norms=np.array([1.0, 2.0]), memory=(("a", 1),))
    others = {"losses": np.zeros(2), "round": 4, "memory": ()}
    one, other = altered(facts, **others), replace(facts, **others)  # type: ignore[arg-type]
    assert type(one) is Facts
    assert all(getattr(one, field.name) is getattr(other, field.name) for field in fields(Facts))
    assert (facts.round, facts.memory) == (1, (("a", 1),))
