"""What Flower's engines cannot run is told."""

from __future__ import annotations

import pytest

from adafed.config.sections import config_from
from adafed.engines.flower.limits import for_flower
from adafed.errors import AdafedError


def test_fedcorr_is_refused_and_wrong_labels_and_mixup_are_not() -> None:
    config = config_from({"noise": {}, "local": {"mixup": 1.0}})
    assert for_flower(config) is config
    with pytest.raises(AdafedError, match=r"\[fedcorr\] does not run on Flower"):
        for_flower(config.changed(fedcorr={"iterations": 1}))
