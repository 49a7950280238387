"""The models: shapes, sizes counted by hand, gradients everywhere, and options refused by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from adafed.errors import AdafedError
from adafed.models import build, names, options

IMAGE = (3, 32, 32)
SMALL: list[tuple[str, tuple[int, ...], int, dict[str, Any]]] = [
    ("logistic", (64,), 10, {}),
    ("logistic", (1, 28, 28), 3, {}),
    ("mlp", IMAGE, 10, {}),
    ("mlp", (60,), 10, {"hidden": [16]}),
    ("mlp", (60,), 10, {"hidden": []}),
    ("cnn", (1, 8, 8), 10, {"channels": [4, 8], "dense": 16}),
    ("cnn", (1, 28, 28), 62, {"channels": (16, 32), "dense": 128, "dropout": (0.25, 0.5)}),
    ("cnn", (3, 30, 17), 7, {"channels": (4, 4), "dense": 8, "dropout": 0.1}),
    ("resnet18", IMAGE, 10, {"width": 8}),
    ("resnet18", (1, 28, 28), 10, {"width": 4, "stem": "cifar", "groups": 4}),
    ("resnet18", (3, 64, 64), 200, {"width": 4, "norm": "batch"}),
    ("resnet50", IMAGE, 14, {"width": 4}),
    ("resnet50", IMAGE, 14, {"width": 4, "norm": "batch"}),
    ("lstm", (20,), 80, {"hidden": 16}),
    ("lstm", (20,), 5, {"hidden": 16, "layers": 1, "vocabulary": 30, "embedding": 4}),
]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def batch(name: str, shape: tuple[int, ...], chosen: dict[str, Any], classes: int, size: int = 4) -> torch.Tensor:
    if name == "lstm":
        return torch.randint(0, chosen.get("vocabulary", classes), (size, *shape))
    return torch.randn(size, *shape)


@pytest.mark.parametrize(("name", "shape", "classes", "chosen"), SMALL)
def test_scores_for_each_class_and_gradients_for_each_parameter(
    name: str, shape: tuple[int, ...], classes: int, chosen: dict[str, Any]
) -> None:
    model = build(name, shape, classes, **chosen)
    scores = model(batch(name, shape, chosen, classes))
    assert scores.shape == (4, classes)
    nn.functional.cross_entropy(scores, torch.arange(4) % classes).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.any()


@pytest.mark.parametrize(("name", "shape", "classes", "chosen"), SMALL)
def test_the_seed_of_torch_decides_the_weights(
    name: str, shape: tuple[int, ...], classes: int, chosen: dict[str, Any]
) -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in build(name, shape, classes, **chosen).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "chosen", "parameters"),
    [
        ("logistic", (1, 28, 28), 3, {}, 784 * 3 + 3),
        ("mlp", IMAGE, 10, {}, 3072 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10),
        ("cnn", (1, 28, 28), 10, {}, 1_663_370),  # McMahan et al. state this number
        (
            "cnn",
            (1, 28, 28),
            62,
            {"channels": (16, 32), "dense": 128, "dropout": (0.25, 0.5)},
            (25 * 16 + 16) + (25 * 16 * 32 + 32) + (32 * 7 * 7 * 128 + 128) + (128 * 62 + 62),
        ),
        ("lstm", (80,), 80, {"layers": 1}, 80 * 8 + 4 * 256 * (8 + 256 + 2) + 256 * 80 + 80),
        ("lstm", (80,), 80, {}, 80 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 256 * 80 + 80),
        ("resnet18", (3, 224, 224), 1000, {}, 11_689_512),  # as published for ImageNet
        ("resnet18", IMAGE, 10, {}, 11_689_512 - 513 * 1000 + 513 * 10),
        ("resnet18", IMAGE, 10, {"stem": "cifar"}, 11_689_512 - 513 * 990 - 3 * 64 * (49 - 9)),
        ("resnet50", (3, 224, 224), 1000, {"norm": "batch"}, 25_557_032),
        ("resnet50", (3, 224, 224), 14, {}, 25_557_032 - 2049 * 986),
    ],
)
def test_sizes(name: str, shape: tuple[int, ...], classes: int, chosen: dict[str, Any], parameters: int) -> None:
    with torch.device("meta"):  # shapes without numbers
        model = build(name, shape, classes, **chosen)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_group_norm_everywhere(name: str) -> None:
    with torch.device("meta"):
        model = build(name, IMAGE, 10)
    kinds = [type(module) for module in model.modules()]
    convolutions = kinds.count(nn.Conv2d)
    assert kinds.count(nn.GroupNorm) == convolutions == {"resnet18": 20, "resnet50": 53}[name]
    assert nn.BatchNorm2d not in kinds
    assert {m.num_groups for m in model.modules() if isinstance(m, nn.GroupNorm)} == {2}
    assert not list(model.buffers())


def test_resnet_parameters_have_the_published_names() -> None:
    with torch.device("meta"):
        state = build("resnet50", (3, 224, 224), 1000, norm="batch").state_dict()
    assert len(state) == 320
    for name, shape in {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_mean": (64,),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer1.0.downsample.1.num_batches_tracked": (),
        "layer2.0.conv2.weight": (128, 128, 3, 3),
        "layer3.5.bn3.bias": (1024,),
        "layer4.2.conv3.weight": (2048, 512, 1, 1),
        "fc.weight": (1000, 2048),
    }.items():
        assert tuple(state[name].shape) == shape


def test_convolutions_start_by_fan_out() -> None:
    model = build("resnet18", IMAGE, 10, width=32)
    weight = dict(model.named_parameters())["layer4.1.conv2.weight"]
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)


def test_dropout_only_trains() -> None:
    model = build("cnn", (1, 8, 8), 10, channels=(4, 4), dense=32, dropout=0.5)
    x = torch.randn(2, 1, 8, 8)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_the_lstm_reads_the_whole_text() -> None:
    model = build("lstm", (6,), 10, hidden=8)
    text = torch.zeros(1, 6, dtype=torch.int64)
    for place in range(6):
        changed = text.clone()
        changed[0, place] = 3
        assert not torch.equal(model(text), model(changed))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    model = build("resnet50", IMAGE, 30, width=4, norm="batch")
    model(torch.randn(2, 3, 64, 64))  # moves the running statistics away from where they start
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_published_weights_fit_any_number_of_classes(published: Path) -> None:
    given = load_file(published)
    model = build("resnet50", IMAGE, 14, width=4, norm="batch", weights=str(published))
    state = model.state_dict()
    assert all(torch.equal(state[name], given[name]) for name in state if not name.startswith("fc."))
    assert state["fc.weight"].shape == (14, 16 * 8)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_head_is_loaded_when_asked_for(published: Path) -> None:
    model = build("resnet50", IMAGE, 30, width=4, norm="batch", weights=str(published), head="loaded")
    assert torch.equal(model.state_dict()["fc.weight"], load_file(published)["fc.weight"])
    with pytest.raises(AdafedError, match=r"fc.weight is \(30, 128\) in the file, \(14, 128\) in the model and 1 more"):
        build("resnet50", IMAGE, 14, width=4, norm="batch", weights=str(published), head="loaded")


def test_step_counters_may_be_missing(published: Path) -> None:
    kept = {k: v for k, v in load_file(published).items() if not k.endswith("num_batches_tracked")}
    save_file(kept, published)
    build("resnet50", IMAGE, 14, width=4, norm="batch", weights=str(published))


def test_weights_that_do_not_fit(published: Path, tmp_path: Path) -> None:
    with pytest.raises(AdafedError, match=r"is not a file"):
        build("resnet50", IMAGE, 14, weights=str(tmp_path / "nowhere"), width=4)
    with pytest.raises(AdafedError, match=r"was trained with BatchNorm: set model.norm = 'batch'"):
        build("resnet50", IMAGE, 14, weights=str(published), width=4)
    with pytest.raises(AdafedError, match=r"conv1.weight is \(4, 3, 7, 7\) in the file, \(8, 3, 7, 7\) in the model"):
        build("resnet50", IMAGE, 14, weights=str(published), width=8, norm="batch")
    with pytest.raises(AdafedError, match=r"is missing in the file"):
        build("resnet50", IMAGE, 14, weights=str(_without(published, "layer1.0.conv1.weight")), width=4, norm="batch")
    (tmp_path / "bad").write_bytes(b"not tensors at all")
    with pytest.raises(AdafedError, match="is not a safetensors file"):
        build("resnet50", IMAGE, 14, weights=str(tmp_path / "bad"), width=4)


def _without(path: Path, name: str) -> Path:
    save_file({k: v for k, v in load_file(path).items() if k != name}, path.with_suffix(".cut"))
    return path.with_suffix(".cut")


def test_the_table_of_models() -> None:
    assert names() == ("cnn", "logistic", "lstm", "mlp", "resnet18", "resnet50")
    assert options("mlp") == {"hidden": (200, 200)}
    assert options("logistic") == {}


@pytest.mark.parametrize(
    ("name", "shape", "chosen", "message"),
    [
        ("vgg", IMAGE, {}, "model.name = 'vgg' is unknown; there are cnn, logistic, lstm, mlp, resnet18"),
        ("mlp", IMAGE, {"width": 3}, "model.width is unknown; model.name = 'mlp' has hidden$"),
        ("logistic", IMAGE, {"hidden": 3}, "model.hidden is unknown; model.name = 'logistic' has no options"),
        ("mlp", IMAGE, {"hidden": 200}, "model.hidden = 200 must be a list of whole numbers"),
        ("mlp", IMAGE, {"hidden": [200, 0]}, r"model.hidden = \[200, 0\]"),
        ("cnn", (64,), {}, r"takes images of shape \(channels, height, width\), but the data have \(64,\)"),
        ("cnn", (1, 3, 3), {}, "at least 4 x 4 pixels"),
        ("cnn", IMAGE, {"channels": [32]}, "must be a list of 2 whole numbers"),
        ("cnn", IMAGE, {"dropout": 1.0}, r"model.dropout = 1.0"),
        ("cnn", IMAGE, {"dropout": [0.1, 0.2, 0.3]}, "one or two shares"),
        ("cnn", IMAGE, {"dense": "big"}, "model.dense is 'big'; it must be a whole number"),
        ("resnet18", (64,), {}, "model.name = 'resnet18' takes images"),
        ("resnet18", IMAGE, {"stem": "vit"}, "model.stem = 'vit' is unknown: choose one of imagenet, cifar"),
        ("resnet18", IMAGE, {"norm": "layer"}, "model.norm = 'layer' is unknown: choose one of group, batch"),
        ("resnet18", IMAGE, {"width": 9}, "model.width = 9 must be a multiple of model.groups = 2"),
        ("resnet50", IMAGE, {"head": "old"}, "model.head = 'old' is unknown"),
        ("lstm", IMAGE, {}, r"takes text of shape \(length,\)"),
        ("lstm", (80,), {"layers": 0}, "model.layers = 0"),
    ],
)
def test_refusals(name: str, shape: tuple[int, ...], chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(AdafedError, match=message):
        build(name, shape, 10, **chosen)


SOURCE = """
from torch import nn
class Net(nn.Module):
    def __init__(self, input_shape, classes, hidden=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], hidden), nn.Linear(hidden, classes))
    def forward(self, x):
        return self.layers(x)
def fixed():
    return nn.Linear(6, 3)
def needy(depth):
    return nn.Linear(depth, 3)
def wrong():
    return 3
ready = nn.Linear(6, 3)
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"nets_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return name


def test_a_model_of_the_users_own(module: str) -> None:
    for spec, chosen in (("Net", {}), ("Net", {"hidden": 9}), ("fixed", {}), ("ready", {}), ("needy", {"depth": 6})):
        assert build(f"{module}:{spec}", (6,), 3, **chosen)(torch.randn(2, 6)).shape == (2, 3)
    first, second = build(f"{module}:ready", (6,), 3), build(f"{module}:ready", (6,), 3)
    assert first is not second
    assert next(first.parameters()) is not next(second.parameters())


@pytest.mark.parametrize(
    ("spec", "chosen", "message"),
    [
        ("Net", {"width": 3}, "model.width is unknown; model.name = .* has hidden$"),
        ("ready", {"width": 3}, "model.width is unknown; model.name = .* is a ready module"),
        ("needy", {}, "model.depth is missing; model.name = .* needs it"),
        ("wrong", {}, "made int; it must make an nn.Module"),
        ("number", {}, "is int; it must be a function or a class"),
        ("nowhere", {}, "has no attribute 'nowhere'"),
    ],
)
def test_models_of_the_users_own_that_do_not_fit(module: str, spec: str, chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(AdafedError, match=message):
        build(f"{module}:{spec}", (6,), 3, **chosen)
