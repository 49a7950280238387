"""The models: `build(name, input_shape, classes, **options)` and `names()`."""

from adafed.models import cnn, dense, lstm, resnet  # noqa: F401  (each registers its models)
from adafed.models.registry import build, names, options

__all__ = ["build", "names", "options"]
