"""Models out of all proportion are refused before they are made."""

from __future__ import annotations

from typing import Any

import pytest

from adafed import AdafedError, config_from, simulate


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"name": "mlp", "hidden": [2] * 100_000}, "model.hidden has 100000 numbers; it must have at most 1000"),
        ({"name": "mlp", "hidden": [10**10]}, "too many for the .* GB of this machine"),
        (
            {"name": "mlp", "hidden": [10**6, 10**6]},
            "cannot be built for 10 classes: it has 1,00.* parameters",
        ),
        ({"name": "mlp", "hidden": [10**30]}, "cannot be built"),
    ],
)
def test_too_large_a_model_is_told(model: dict[str, Any], told: str) -> None:
    with pytest.raises(AdafedError, match=told):
        list(simulate(config_from({"rounds": 1, "model": model, "run": {"workers": 0}})))
