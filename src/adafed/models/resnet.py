"""ResNet-18 and ResNet-50, with GroupNorm, which unlike BatchNorm keeps no statistics of one client's data.

Parameters are named as in torchvision, so that published weights fit (with norm = "batch", as they were trained).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from adafed.errors import AdafedError
from adafed.models.base import choice, image, register, whole

Norm = Callable[[int], nn.Module]


def _convolution(fan_in: int, fan_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, fan_out, size, stride=stride, padding=size // 2, bias=False)


def _shortcut(fan_in: int, fan_out: int, stride: int, norm: Norm) -> nn.Module | None:
    """A 1 x 1 convolution where the block changes the shape; None where the input can be added as it is."""
    if stride == 1 and fan_in == fan_out:
        return None
    return nn.Sequential(_convolution(fan_in, fan_out, 1, stride), norm(fan_out))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions."""

    expansion = 1

    def __init__(self, fan_in: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _convolution(fan_in, width, 3, stride)
        self.bn1 = norm(width)
        self.conv2 = _convolution(width, width, 3)
        self.bn2 = norm(width)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(fan_in, width, stride, norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        residual = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        out: torch.Tensor = self.relu(self.bn2(self.conv2(x)) + residual)
        return out


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions; the stride is in the middle one, as in torchvision."""

    expansion = 4

    def __init__(self, fan_in: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _convolution(fan_in, width, 1)
        self.bn1 = norm(width)
        self.conv2 = _convolution(width, width, 3, stride)
        self.bn2 = norm(width)
        self.conv3 = _convolution(width, 4 * width, 1)
        self.bn3 = norm(4 * width)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(fan_in, 4 * width, stride, norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        residual = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        out: torch.Tensor = self.relu(self.bn3(self.conv3(x)) + residual)
        return out


class ResNet(nn.Module):
    """Four stages of blocks, each of twice the width and half the size of the one before."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        channels: int,
        classes: int,
        width: int,
        norm: Norm,
        stem: str,
    ) -> None:
        super().__init__()
        if stem == "imagenet":
            self.conv1 = _convolution(channels, width, 7, stride=2)
            self.maxpool: nn.Module = nn.MaxPool2d(3, stride=2, padding=1)
        else:
            self.conv1 = _convolution(channels, width, 3)
            self.maxpool = nn.Identity()
        self.bn1 = norm(width)
        self.relu = nn.ReLU()
        stages, fan_in = [], width
        for stage, depth in enumerate(blocks):
            layers = []
            for i in range(depth):
                layers.append(block(fan_in, width * 2**stage, 2 if stage > 0 and i == 0 else 1, norm))
                fan_in = width * 2**stage * block.expansion
            stages.append(nn.Sequential(*layers))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(fan_in, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: torch.Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


@register("resnet18")
def resnet18(
    input_shape: tuple[int, ...],
    classes: int,
    *,
    norm: str = "group",
    groups: int = 2,
    stem: str = "imagenet",
    width: int = 64,
    weights: str | None = None,
    head: str = "fresh",
) -> nn.Module:
    """`stem` = "cifar" is one 3 x 3 convolution in place of 7 x 7 with stride 2 and pooling; small `width` is quick.

    `weights` is a safetensors file; `head` = "loaded" takes the last layer from it too, "fresh" leaves it out.
    """
    channels = image("resnet18", input_shape)[0]
    layer = _norm(norm, groups, whole("width", width))
    stem = choice("stem", stem, ("imagenet", "cifar"))
    return _loaded(ResNet(BasicBlock, (2, 2, 2, 2), channels, classes, width, layer, stem), weights, head)


@register("resnet50")
def resnet50(
    input_shape: tuple[int, ...],
    classes: int,
    *,
    norm: str = "group",
    groups: int = 2,
    stem: str = "imagenet",
    width: int = 64,
    weights: str | None = None,
    head: str = "fresh",
) -> nn.Module:
    """The options of `resnet18`."""
    channels = image("resnet50", input_shape)[0]
    layer = _norm(norm, groups, whole("width", width))
    stem = choice("stem", stem, ("imagenet", "cifar"))
    return _loaded(ResNet(Bottleneck, (3, 4, 6, 3), channels, classes, width, layer, stem), weights, head)


def _norm(norm: str, groups: int, width: int) -> Norm:
    if choice("norm", norm, ("group", "batch")) == "batch":
        return nn.BatchNorm2d
    if width % whole("groups", groups):
        raise AdafedError(f"model.width = {width} must be a multiple of model.groups = {groups}.")
    return lambda channels: nn.GroupNorm(groups, channels)


def _loaded(model: ResNet, weights: str | None, head: str) -> ResNet:
    choice("head", head, ("fresh", "loaded"))
    if weights is None:
        return model
    if not Path(weights).is_file():
        raise AdafedError(f"model.weights = {str(weights)!r} is not a file.")
    try:
        given = load_file(weights)
    except (SafetensorError, OSError) as error:
        raise AdafedError(f"model.weights = {str(weights)!r} is not a safetensors file: {error}.") from error
    own = model.state_dict()
    # Old files lack the step counters of BatchNorm, which a momentum other than None does not use.
    skipped = {name for name in own if name.endswith("num_batches_tracked") and name not in given}
    if head == "fresh":
        skipped |= {name for name in {*own, *given} if name.startswith("fc.")}
    wanted = {name: tuple(tensor.shape) for name, tensor in own.items() if name not in skipped}
    offered = {name: tuple(tensor.shape) for name, tensor in given.items() if name not in skipped}
    if "bn1.running_mean" in offered and "bn1.running_mean" not in wanted:
        raise AdafedError(f"model.weights = {str(weights)!r} was trained with BatchNorm: set model.norm = 'batch'.")
    wrong = [name for name in {**wanted, **offered} if wanted.get(name) != offered.get(name)]
    if wrong:
        name = wrong[0]
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise AdafedError(
            f"model.weights = {str(weights)!r} does not fit: {name} is {offered.get(name, 'missing')} in the file, "
            f"{wanted.get(name, 'missing')} in the model{more}."
        )
    with torch.no_grad():
        for name in wanted:
            own[name].copy_(given[name])
    return model
