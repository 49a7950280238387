"""Training images shifted and mirrored at random, anew in every epoch.

What becomes of a sample is a hash of (seed, round, client, epoch, sample), so it does not depend on which process
trains the client, or on what else is in the batch. Where samples are measured they stay: the middle of the image.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from adafed.errors import AdafedError
from adafed.randomness import sample_words
from adafed.training.local import Assignment, Samples, picked


@dataclass(frozen=True)
class Augmentation:
    """An image gets `padding` black pixels on each side, of which a part of the image's size (or `crop` x `crop`) is
    cut out at a random place; with `flip`, every other one is mirrored left to right."""

    padding: int = 0
    crop: int | None = None
    flip: bool = False

    def require_images(self, shape: tuple[int, ...], standardise: object = None) -> None:
        """`standardise` is the data's own key: by the pixel, black is another number at every place."""
        if len(shape) != 3:
            raise AdafedError(f"[augment] is for images; inputs have the shape {shape} here, so leave it out")
        if self.padding and standardise == "pixel":
            raise AdafedError(
                f"augment.padding = {self.padding} is of black pixels, which data.standardise = 'pixel' has no one "
                "number for; standardise by 'channel', or leave the padding out"
            )

    def of(self, images: torch.Tensor, black: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """`words` are 63 random bits for each image; `black` is a pixel of that colour."""
        count, channels, height, width = images.shape
        tall, wide = (self.crop, self.crop) if self.crop else (height, width)
        pad = self.padding
        canvas = images
        if pad:
            canvas = black.reshape(1, channels, 1, 1).repeat(count, 1, height + 2 * pad, width + 2 * pad)
            canvas[:, :, pad : pad + height, pad : pad + width] = images
        tops = (words >> 1) % 2**30 % (height + 2 * pad - tall + 1)
        lefts = (words >> 31) % 2**30 % (width + 2 * pad - wide + 1)
        found = images.new_empty(count, channels, tall, wide)
        places = zip(tops.tolist(), lefts.tolist(), (words % 2).tolist(), strict=True)
        for k, (top, left, mirrored) in enumerate(places):
            cut = canvas[k, :, top : top + tall, left : left + wide]
            found[k] = cut.flip(-1) if mirrored and self.flip else cut
        return found


@dataclass
class _Now:
    """Which epoch of which visit it is; the trainer says so."""

    seed: int = 0
    round: int = 0
    client: int = 0
    epoch: int = 0


@dataclass(frozen=True)
class AugmentedSamples(Samples):
    """`inputs` are the images as they are measured, `whole` what is cut from."""

    whole: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    black: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    how: Augmentation = Augmentation()
    now: _Now = field(default_factory=_Now)

    @property
    def nbytes(self) -> int:
        return self.whole.nbytes + self.targets.nbytes

    def visited(self, seed: int, work: Assignment) -> Samples:
        return replace(self, now=_Now(seed, work.round, work.client))

    def begin(self, epoch: int) -> None:
        self.now.epoch = epoch

    def taken(self, chosen: slice | torch.Tensor) -> Samples:
        now, places = self.now, torch.arange(len(self))[chosen]
        words = torch.from_numpy(sample_words(now.seed, now.round, now.client, now.epoch, places.numpy()))
        return Samples(self.how.of(picked(self.whole, chosen), self.black, words), picked(self.targets, chosen))


def augmented(how: Augmentation, whole: torch.Tensor, black: torch.Tensor, targets: torch.Tensor) -> AugmentedSamples:
    """A client's training samples; what is measured of them is the middle."""
    side = how.crop
    top, left = ((length - side) // 2 if side else 0 for length in whole.shape[2:])
    inputs = whole[:, :, top : top + side, left : left + side] if side else whole
    return AugmentedSamples(inputs, targets, whole, black, how)
