"""The models: `build(name, input_shape, classes, **options)` and `names()`."""

from adafed.models import cnn, dense, lstm, resnet  # noqa: F401  (each registers its models)
from adafed.models.base import MODELS, build, names, options

__all__ = ["MODELS", "build", "names", "options"]
