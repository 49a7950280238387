"""The configuration: one TOML file, every key checked, every mistake told in one sentence.

Sections that name an entry of a registry ([data], [partition], [model], [rule], server.optimizer, server.schedule) hold
its `name` and its options side by side; the entry itself checks the options.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from adafed.config.experiments import path as experiment_path
from adafed.errors import AdafedError
from adafed.randomness import Seeds as DerivedSeeds
from adafed.registry import options
from adafed.server.optimizers import optimizer
from adafed.server.schedules import schedule
from adafed.server_rules import rule


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class NamedEntry(BaseModel):
    """`name` and the options of the entry it names."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def named(name: str, **options: Any) -> NamedEntry:
    return NamedEntry.model_validate({"name": name, **options})


def _with_options(entry: Any) -> NamedEntry:
    """As made; None is what is left out, and TOML has no word for it."""
    return named(entry.name, **{option: value for option, value in options(entry).items() if value is not None})


def _text_as_name(value: Any) -> Any:
    """`rule = "fedavg"` is short for a section with that name alone."""
    return {"name": value} if isinstance(value, str) else value


def _file_name(value: str) -> str:
    """Runs go to a folder of this name."""
    if not value.strip(". ") or "/" in value or "\0" in value or len(value.encode()) > 200:
        raise ValueError("a name must be that of a folder: no slashes, not dots alone, at most 200 letters")
    return value


Entry = Annotated[NamedEntry, BeforeValidator(_text_as_name)]
# Far beyond use, and well before torch's own numbers, float32 and int64, are at their end.
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=2**53)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class SeedsSection(Section):
    """Each defaults to one derived from `seed`."""

    data: Seed | None = None
    model: Seed | None = None
    sampling: Seed | None = None


class SplitSection(Section):
    """How each client's own samples are divided; `published` keeps the publisher's test part as the test."""

    mode: Literal["within", "published"] = "within"
    validation: Share = 0.1
    test: Share = 0.2
    stratified: bool = False
    pool: Literal["all", "train"] = "all"
    limit: Count | None = None  # samples a client keeps of those it was dealt, before the split


class CohortSection(Section):
    """Who takes part in a round. Give `fraction` or `count`; neither means everyone."""

    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    count: Count | None = None
    sampling: Literal["uniform", "size"] = "uniform"
    dropout: Share = 0.0  # probability that a sampled client never answers
    stragglers: Share = 0.0  # probability that a client does only a random share of its local steps
    join: dict[str, Count] = Field(default_factory=dict)  # client id -> the first round it can be sampled in

    @model_validator(mode="after")
    def _one_of_two(self) -> CohortSection:
        if self.fraction is not None and self.count is not None:
            raise ValueError("give either fraction or count, not both")
        return self


class LocalSection(Section):
    """Local training, lines 4-9 of Algorithm 1."""

    epochs: Count = 1
    batch_size: Count | Literal["full"] = 32
    lr: Positive = 0.1
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    lr_decay_every: Count = 1
    momentum: Share = 0.0
    weight_decay: NonNegative = 0.0
    mu: NonNegative = 0.0  # FedProx: adds mu/2 ||theta - theta_init||^2
    mixup: NonNegative = 0.0  # a of Beta(a, a): samples are blended with others of their batch; 0: not
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"
    together: Literal["auto", "never"] | Count = "auto"  # how many small clients are trained in one batch

    def rate(self, round: int) -> float:
        return float(self.lr * self.lr_decay ** ((round - 1) // self.lr_decay_every))


class ServerSection(Section):
    """What the server does with the rule's direction, and which loss the rule is told."""

    rate: Positive = 1.0
    schedule: Entry = named("constant")
    optimizer: Entry = named("sgd")
    loss: Literal["before", "after", "running"] = "before"


class DittoSection(Section):
    """Ditto: a personal model for each client, pulled towards the global one by lambda. Works with any rule."""

    strength: NonNegative = Field(0.1, alias="lambda")
    lr: Positive | None = None  # defaults to local.lr of the round


class NoiseSection(Section):
    """Training labels made wrong on purpose; validation and test stay right."""

    clients: Annotated[float, Field(gt=0, le=1)] = 0.6  # probability that a client has wrong labels
    level: Share = 0.5  # such a client's labels are drawn anew with a probability between this and 1


class FedCorrSection(Section):
    """FedCorr: wrong labels are found and corrected before the training proper. Its defaults are those for CIFAR-10."""

    iterations: Count = 5  # T_1: how often the first stage visits everyone
    group: Count = 1  # clients in a round of the first stage
    clean_rounds: Annotated[int, Field(ge=0)] = 20  # T_2: rounds of the clean clients; the rest of the run is T_3
    beta: NonNegative = 5.0  # how much a noisy client is held to the global model in the first stage
    kappa: Share = 0.1  # a client with at most this share of wrong labels is clean
    neighbours: Count = 20  # of the local intrinsic dimension
    relabelled: Annotated[float, Field(gt=0, le=1)] = 0.5  # pi: this share of the labels found wrong is corrected
    confidence: Share = 0.5  # of the global model in its answer, before a label is taken from it

    def visits(self, clients: int) -> int:
        """Rounds of one iteration of the first stage."""
        return -(-clients // self.group)


class EvaluationSection(Section):
    every: Count = 1
    improvement_every: Annotated[int, Field(ge=0)] = 1  # rho_t; 0 never measures it


class RunSection(Section):
    """Where and how it runs; none of these changes a bit of the result, except the device."""

    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"  # 0: in this process
    device: str = "cpu"
    updates_mb: Count = 1024  # a cohort whose updates take more is kept in a file instead of memory
    cache_mb: Count = 512  # clients' prepared data kept between rounds, in each process


STUDY_SECTIONS = ("methods", "profiles", "variants", "study")
DEFAULTS = {"data": "digits", "model": "mlp", "rule": "adafed"}
USUAL_NAMES = DEFAULTS | {"optimizer": "sgd", "schedule": "constant"}  # whose options those without a name are


class Config(Section):
    """A whole experiment."""

    name: Annotated[str, AfterValidator(_file_name)] = "experiment"
    seed: Seed = 0
    rounds: Count = 50
    seeds: SeedsSection = SeedsSection()
    data: Entry = named(DEFAULTS["data"])
    partition: Entry | None = None
    split: SplitSection = SplitSection()
    model: Entry = named(DEFAULTS["model"])
    cohort: CohortSection = CohortSection()
    local: LocalSection = LocalSection()
    rule: Entry = named(DEFAULTS["rule"])
    server: ServerSection = ServerSection()
    ditto: DittoSection | None = None
    noise: NoiseSection | None = None
    fedcorr: FedCorrSection | None = None
    evaluation: EvaluationSection = EvaluationSection()
    run: RunSection = RunSection()

    def derived_seeds(self) -> DerivedSeeds:
        return DerivedSeeds.derived(self.seed, self.seeds.data, self.seeds.model, self.seeds.sampling)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_toml(self) -> str:
        return tomli_w.dumps(self.to_dict())

    def completed(self) -> Config:
        """With every option of the rule, the optimiser and the schedule, so that a later default changes no old run."""
        server = self.server
        return self.model_copy(
            update={
                "rule": _with_options(rule(self.rule.name, **self.rule.options)),
                "server": server.model_copy(
                    update={
                        "optimizer": _with_options(optimizer(server.optimizer.name, **server.optimizer.options)),
                        "schedule": _with_options(schedule(server.schedule.name, **server.schedule.options)),
                    }
                ),
            }
        )

    def changed(self, **sections: Any) -> Config:
        """A copy with some sections or keys replaced, checked again."""
        return config_from(merged(self.to_dict(), sections))


def load_config(path: str | Path, settings: Iterable[str] = ()) -> Config:
    """The TOML file at `path`, or a packaged experiment by its name, with `key=value` settings on top.

    A study's own sections are left aside: what remains is the experiment that its methods change.
    """
    file = experiment_path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise AdafedError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AdafedError(f"{path} is not text in UTF-8; a configuration is a TOML file") from None
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and thousands of brackets
        raise AdafedError(f"{path} is not TOML: {error}") from None
    content = {key: value for key, value in content.items() if key not in STUDY_SECTIONS}
    content.setdefault("name", file.stem)
    return config_from(merged(content, parse_settings(settings)))


def config_from(content: Mapping[str, Any]) -> Config:
    # Options without a name are those of the default entry: `--set rule.gamma=5` alone is enough.
    content = {key: {"name": DEFAULTS[key], **value} if key in DEFAULTS and isinstance(value, Mapping) else value
               for key, value in content.items()}  # fmt: skip
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        raise AdafedError(_sentence(error)) from None
    # Made once here so that a wrong option is told before any data is read.
    rule(config.rule.name, **config.rule.options)
    optimizer(config.server.optimizer.name, **config.server.optimizer.options)
    schedule(config.server.schedule.name, **config.server.schedule.options)
    return config


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """`rule.gamma=5` as {"rule": {"gamma": 5}}; the value is TOML, or a bare word taken as a string."""
    content: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise AdafedError(f"--set {setting!r} is not of the form section.key=value, as in rule.gamma=5")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            value = text.strip()
        for part in reversed(parts):
            value = {part: value}
        content = merged(content, value)
    return content


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, section by section. A section whose `name` changes loses the old entry's options."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, str) and isinstance(value, Mapping):
            old = {"name": old}
        if isinstance(old, Mapping) and isinstance(value, str) and "name" in old:
            value = {"name": value}
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            named_before = old.get("name", USUAL_NAMES.get(key))
            renamed = "name" in value and named_before is not None and value["name"] != named_before
            result[key] = dict(value) if renamed else merged(old, value)
        else:
            result[key] = value
    return result


def _sentence(error: ValidationError) -> str:
    """The first complaint, with the key as it stands in the file."""
    complaints = error.errors(include_url=False)
    first = complaints[0]
    parts = _key(first["loc"])
    key = ".".join(parts) or "the configuration"
    if first["type"] == "extra_forbidden":
        section = _section(parts[:-1])
        known = ", ".join(field.alias or name for name, field in section.model_fields.items()) if section else ""
        where = f"[{'.'.join(parts[:-1])}]" if parts[:-1] else "the top level"
        return f"{key} is unknown; {where} has {known}"
    if first["type"] == "missing":
        return f"{key} is missing; it must be given"
    if first["type"] == "value_error":
        return f"[{key}]: {first['ctx']['error']}"
    # Of a key that may be of several kinds, each kind has its own complaint.
    wanted = [one["msg"].removeprefix("Input should be ") for one in complaints if _key(one["loc"]) == parts]
    wanted = ["a table with the keys of that section" if "dictionary" in text else text for text in wanted]
    return f"{key} = {first['input']!r}: it must be {' or '.join(dict.fromkeys(wanted))}"


def _key(location: tuple[int | str, ...]) -> list[str]:
    """Without pydantic's own steps: the branches of a union and the validators."""
    inner = re.compile(r"(function-|constrained-|literal\[|int$|float$|str$|nullable|none)")
    return [str(part) for part in location if not inner.match(str(part))]


def _section(parts: list[str]) -> type[BaseModel] | None:
    model: type[BaseModel] = Config
    for part in parts:
        annotation: Any = model.model_fields[part].annotation if part in model.model_fields else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        found = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not found:
            return None
        model = found[0]
    return model
