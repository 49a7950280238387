"""A rule is asked, and its answer looked at: what the user's own rule does wrong is told in a sentence."""

from __future__ import annotations

import json

import numpy as np

from adafed.errors import AdafedError, OutOfRange
from adafed.imported import maybe_own, ours
from adafed.server_rules.base import Answer, Facts, Numbers, Rule


def answered(rule: Rule, facts: Facts, state: Numbers) -> Answer:
    try:
        with maybe_own("rule", rule):
            answer = rule.answer(facts, state)
        if not ours(rule):
            _check_answer(rule, facts, answer)
        return answer
    except np.linalg.LinAlgError as error:  # numbers out of all proportion: the round can be skipped
        raise OutOfRange(f"rule {rule.name} could not solve with the updates' inner products: {error}") from None


def _check_answer(rule: Rule, facts: Facts, answer: object) -> None:
    """Of the user's own rule."""
    if not isinstance(answer, Answer):
        raise AdafedError(f"rule {rule.name} answered with a {type(answer).__name__}; it must be an Answer")
    shape, asked = np.shape(answer.coefficients), facts.count + len(facts.memory)
    if shape != (asked,):
        raise AdafedError(f"rule {rule.name} answered with coefficients of shape {shape}; it must be ({asked},)")
    if not np.isfinite(answer.coefficients).all():
        raise AdafedError(f"rule {rule.name} answered with coefficients {answer.coefficients}; each must be finite")
    for what, found in (("state", answer.state), ("notes", answer.notes)):
        try:
            plain = isinstance(found, dict) and json.dumps(found) is not None
        except (TypeError, ValueError, RecursionError):
            plain = False
        if not plain:
            told = " ".join(repr(found).split())[:200]
            raise AdafedError(
                f"rule {rule.name} answered with {what} {told}, which JSON cannot hold; it must be a dict of texts, "
                "numbers (float(x) of numpy's), lists and dicts"
            )
