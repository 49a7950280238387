"""PropFair's local loss: values and slopes by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from visits import GD, WORK, layer, trained, visit

from adafed import AdafedError
from adafed.client_rules import ClientRule, FedProx, PropFair
from adafed.training.local import gradients


@pytest.mark.parametrize(("allowance", "far"), [(5.0, False), (0.5, True)])
def test_the_gradient_is_that_of_the_logarithm_until_the_allowance_is_used_up(allowance: float, far: bool) -> None:
    model, data = given = layer()
    batch = torch.tensor([4, 0, 3])
    begun = PropFair(allowance).begin(visit(given))
    assert begun.gradients is not None
    found, value = begun.gradients(batch)
    plain, loss = gradients(model, data, batch, GD)
    assert value == loss  # the server is told the cross-entropy
    slope = 1 / (allowance - loss)
    assert (allowance - loss < 0.2) == far
    wanted = [one * (1 / allowance if far else slope) for one in plain]
    assert all(torch.allclose(one, two, rtol=1e-6) for one, two in zip(found, wanted, strict=True))
    if not far:
        outputs = model.module(data.inputs[batch])
        own = -torch.log(1 - torch.nn.functional.cross_entropy(outputs, data.targets[batch]) / allowance)
        exact = torch.autograd.grad(own, model.trained)
        assert all(torch.allclose(one, two, atol=1e-6) for one, two in zip(found, exact, strict=True))


def test_a_large_allowance_is_plain_training_at_a_smaller_rate() -> None:
    """The gradient over M - f tends to that over M: lr M is the plain rate."""
    plain = trained([], layer()).row
    large = trained([PropFair(1e6)], layer(), work=WORK._replace(lr=0.1 * 1e6)).row
    assert torch.allclose(plain, large, rtol=1e-4, atol=1e-7)


def test_fedproxs_pull_goes_with_it() -> None:
    how = replace(GD, epochs=5)
    rules: list[list[ClientRule]] = [[PropFair(2.0)], [PropFair(2.0), FedProx(8.0)]]
    alone, held = (trained(one, layer(), how=how) for one in rules)
    assert held.row.norm() < alone.row.norm()


def test_a_mistake_is_told_in_a_sentence() -> None:
    with pytest.raises(AdafedError, match=r"^propfair\.M is -1\.0; it must be a finite number greater than 0"):
        PropFair(-1.0)
