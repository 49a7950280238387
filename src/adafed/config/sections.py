"""The configuration: one TOML file, every key checked, every mistake told in one sentence.

Sections that name an entry of a registry ([data], [partition], [model], [rule], server.optimizer, server.schedule) hold
its `name` and its options side by side; the entry itself checks the options.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from adafed.attacks import Lie, lies_from
from adafed.client_rules import WITH_KEYS, ClientRule, client_rule
from adafed.config.experiments import path as experiment_path
from adafed.config.merging import DEFAULTS, USUAL_NAMES, merged, parse_settings
from adafed.config.sentences import sentence
from adafed.data.sources import DEFAULT_PARTITION
from adafed.errors import AdafedError
from adafed.randomness import Seeds as DerivedSeeds
from adafed.registry import options
from adafed.server.optimizers import ServerOptimizer, optimizer
from adafed.server.schedules import Schedule, schedule
from adafed.server.steps import StepKind, require_plain
from adafed.server_rules import Rule, rule
from adafed.server_rules.guards import UNASKED, Guard, guards_from


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


def _with_options(entry: Rule | ServerOptimizer | Schedule | ClientRule | Guard | Lie) -> dict[str, Any]:
    """As made; None is what is left out, and TOML has no word for it."""
    return {"name": entry.name} | {option: value for option, value in options(entry).items() if value is not None}


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
    sampling: Literal["uniform", "size", "loss", "power-of-choice"] = "uniform"
    power: NonNegative = 1.0  # of the last told loss, which sampling by "loss" draws in proportion to
    candidates: Count | None = None  # power-of-choice: drawn by size, the largest losses of whom take part; unsaid: 2 K
    dropout: Share = 0.0  # probability that a sampled client never answers
    stragglers: Share = 0.0  # probability that a client does only a random share of its local steps
    join: dict[str, Count] = Field(default_factory=dict)  # client id -> the first round it can be sampled in

    @model_validator(mode="after")
    def _one_of_two(self) -> CohortSection:
        if self.fraction is not None and self.count is not None:
            raise ValueError("give either fraction or count, not both")
        if self.candidates is not None and self.sampling != "power-of-choice":
            raise ValueError('candidates are for sampling = "power-of-choice"')
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
    mu: NonNegative = 0.0  # the client rule fedprox: adds mu/2 ||theta - theta_init||^2
    mixup: NonNegative = 0.0  # the client rule mixup: a of Beta(a, a); 0: not
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"
    together: Literal["auto", "never"] | Count = "auto"  # how many small clients are trained in one batch

    def rate(self, round: int) -> float:
        return float(self.lr * self.lr_decay ** ((round - 1) // self.lr_decay_every))


class ServerSection(Section):
    """What the server does with the rule's direction, and which loss the rule is told."""

    rate: Positive = 1.0
    schedule: Entry = named("constant")
    optimizer: Entry = named("sgd")
    loss: Literal["before", "after", "running", "validation"] = "before"
    step: StepKind = "rate"  # or "safe": as long as leaves nobody of the cohort worse off


class ClientSection(Section):
    """What clients do beside plain SGD: names of client rules, or tables with a name and options."""

    rules: list[Entry] = Field(default_factory=list)


def _text_as_list(value: Any) -> Any:
    """`use = "default"` is short for a list with that name alone."""
    return [value] if isinstance(value, str) else value


class GuardsSection(Section):
    """Guards between the screening of updates and the rule, in the order they act in: names, or tables with a name and
    options; "default" stands for the default ones. Without a word there is a wide bound against accidents alone."""

    use: Annotated[list[Entry], BeforeValidator(_text_as_list)] = Field(
        default_factory=lambda: [named(name) for name in UNASKED]
    )


class MemorySection(Section):
    """What the server remembers of clients that are not in the round."""

    # The age up to which an update is shown; 0: off; "auto": what the rule is best with, "all" or 0 (`Rule.everyone`).
    rounds: Annotated[int, Field(ge=0, le=2**53)] | Literal["all", "auto"] = "auto"
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0  # of a told loss and a sample count, for every round of age
    storage: Literal["float32", "bfloat16", "int8"] = "float32"
    most: Annotated[int, Field(ge=0)] = 0  # updates remembered at most, the oldest go first; 0: no limit
    sketch: Annotated[int, Field(ge=0, le=2**24)] = 0  # numbers kept of everyone, when `most` are kept whole; 0: none
    budget_mb: Count = 1024  # updates beyond it lie in a file; those of a run directory always do


class NoiseSection(Section):
    """Training labels made wrong on purpose; validation and test stay right."""

    clients: Annotated[float, Field(gt=0, le=1)] = 0.6  # probability that a client has wrong labels
    level: Share = 0.5  # such a client's labels are drawn anew with a probability between this and 1


class AttackSection(Section):
    """Clients that lie to the server, in the simulator alone: names of lies in the order they are told in, or tables
    with a name and options."""

    use: list[Entry] = Field(default_factory=list)
    share: Annotated[float, Field(gt=0, le=1)] = 0.1  # of the clients, at least one
    clients: list[str] | None = None  # or these


class AugmentSection(Section):
    """Training images changed at random, anew in every epoch; what is measured stays as it is."""

    padding: Annotated[int, Field(ge=0, le=4096)] = 0  # black pixels on each side, before the image's size is cut out
    crop: Count | None = None  # the side of what is cut out; what is measured is then the middle
    flip: bool = False  # every other one mirrored left to right


class EvaluationSection(Section):
    every: Count = 1
    improvement_every: Annotated[int, Field(ge=0)] = 1  # rho_t; 0 never measures it


class RunSection(Section):
    """Where and how it runs; none of these changes a bit of the result, except the device."""

    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"  # 0: in this process
    device: str = "cpu"
    updates_mb: Count = 1024  # a cohort whose updates take more is kept in a file instead of memory
    cache_mb: Count = 512  # clients' prepared data kept between rounds, in each process
    patience: Positive = 3600.0  # seconds that a worker may take over one unit of work before it is replaced


class TrackSection(Section):
    """Where the scalars of a run go beside its directory, live. None of it changes a bit of the result."""

    tensorboard: str | None = None  # a folder, in which every run has one of its own
    mlflow: str | None = None  # a tracking address, as in sqlite:///mlflow.db


SECTIONS = tuple(kind.section for kind in WITH_KEYS if kind.section is not None)  # called as their rules are
STUDY_SECTIONS = ("methods", "profiles", "variants", "study")


@dataclass(frozen=True)
class Parts:
    """What a configuration names, made."""

    rule: Rule
    optimizer: ServerOptimizer
    schedule: Schedule
    client_rules: tuple[ClientRule, ...]
    guards: tuple[Guard, ...]
    lies: tuple[Lie, ...] = ()


class Config(Section):
    """A whole experiment; `config_from` and `load_config` make one. Client rules with a section of their own ([ditto],
    ...) have it beside these. docs/configuration.md says what each key means.

    Attributes:
        name: Of its folder under `runs/`.
        seed: Everything random follows from it.
        rounds: How many.
        seeds: Seeds of data, model and sampling, where they are to differ.
        data: Which data, with options.
        partition: Who owns which samples.
        split: Into training, validation and test.
        model: Which model, with options.
        cohort: Who takes part in a round.
        local: How clients train.
        rule: The server rule, with options.
        server: Rate, schedule, optimiser, and which loss the rule is told.
        guards: What stands before the rule.
        memory: Of clients that are not in the round.
        client: Client rules.
        noise: Wrong labels, made on purpose.
        attack: Clients that lie, in the simulator.
        augment: Of training images.
        evaluation: How often.
        run: Workers, device, memory: what changes no result.
        track: TensorBoard and MLflow.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, populate_by_name=True)
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
    guards: GuardsSection = GuardsSection()
    memory: MemorySection = MemorySection()
    client: ClientSection = ClientSection()
    noise: NoiseSection | None = None
    attack: AttackSection | None = None
    augment: AugmentSection | None = None
    evaluation: EvaluationSection = EvaluationSection()
    run: RunSection = RunSection()
    track: TrackSection | None = None

    def derived_seeds(self) -> DerivedSeeds:
        return DerivedSeeds.derived(self.seed, self.seeds.data, self.seeds.model, self.seeds.sampling)

    @cached_property
    def parts(self) -> Parts:
        """The rules and the server's parts, made once from their names and options."""
        server = self.server
        parts = Parts(
            rule(self.rule.name, **self.rule.options),
            optimizer(server.optimizer.name, **server.optimizer.options),
            schedule(server.schedule.name, **server.schedule.options),
            self._client_rules(),
            guards_from([(one.name, one.options) for one in self.guards.use]),
            lies_from([(one.name, one.options) for one in self.attack.use]) if self.attack else (),
        )
        if server.step == "safe":
            require_plain(parts.optimizer, parts.schedule)
        return parts

    def _client_rules(self) -> tuple[ClientRule, ...]:
        """Those with a key or section of their own, then those that are listed."""
        found = []
        for kind in WITH_KEYS:
            if kind.section is not None and kind.section in self._sections:
                found.append(client_rule(kind.name, **self._sections[kind.section]))
            elif kind.shorthand is not None:
                (section, _, key), option = kind.shorthand[0].partition("."), kind.shorthand[1]
                value = getattr(getattr(self, section), key)
                found += [client_rule(kind.name, **{option: value})] if value else []
        found += [client_rule(entry.name, **entry.options) for entry in self.client.rules]
        names = [one.name for one in found]
        for name in names:
            if names.count(name) > 1:
                raise AdafedError(
                    f"client.rules has {name!r}, which is on already; a rule works once, so leave one out"
                )
        personal = [one.name for one in found if one.personalises]
        if len(personal) > 1:
            raise AdafedError(f"{' and '.join(personal)} each give clients a model of their own; leave all but one out")
        return tuple(found)

    @property
    def personalised(self) -> bool:
        """Whether clients end with models of their own."""
        return any(one.personalises for one in self.parts.client_rules)

    @property
    def keeps(self) -> bool:
        """Whether clients keep something between rounds."""
        return any(one.keeps for one in self.parts.client_rules)

    @property
    def label(self) -> str:
        """How the method is called in a table when nobody named it."""
        words = [str(self.parts.rule), *(one.label for one in self.parts.client_rules)]
        if self.memory.rounds not in (0, "auto"):
            words.append("memory" if self.memory.rounds == "all" else f"memory of {self.memory.rounds} rounds")
        if self.server.optimizer.name != "sgd":
            words.append(self.server.optimizer.name)
        if self.server.step == "safe":
            words.append("safe step")
        return " + ".join(word for word in words if word)

    @property
    def _sections(self) -> dict[str, dict[str, Any]]:
        return self.model_extra or {}

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_toml(self) -> str:
        return tomli_w.dumps(self.to_dict())

    def completed(self) -> Config:
        """With every option of rules, optimiser and schedule, so that a later default changes no old run."""
        listed = {one.name for one in self.client.rules}
        content = self.to_dict() | {
            "rule": _with_options(self.parts.rule),
            "client": {"rules": [_with_options(one) for one in self.parts.client_rules if one.name in listed]},
            "guards": {"use": [_with_options(one) for one in self.parts.guards]},
        }
        if self.attack is not None:
            content["attack"] |= {"use": [_with_options(one) for one in self.parts.lies]}
        content["server"] |= {
            "optimizer": _with_options(self.parts.optimizer),
            "schedule": _with_options(self.parts.schedule),
        }
        return config_from(content)

    def changed(self, **sections: Any) -> Config:
        """A copy with some sections or keys replaced, checked again."""
        return config_from(merged(self.to_dict(), sections))


def load_config(path: str | Path, settings: Iterable[str] = ()) -> Config:
    """The configuration of a TOML file. A study's own sections are left aside: what remains is the experiment that its
    methods change.

    Args:
        path: The file, or the name of a packaged experiment.
        settings: On top of it, as on the command line: `["rule.gamma=5"]`.

    Returns:
        The configuration, checked.

    Raises:
        AdafedError: For a file that is missing or no TOML, and as for `config_from`.

    Examples:
        >>> import adafed
        >>> adafed.load_config("demo", ["rounds=3"]).rounds
        3
    """
    file = experiment_path(path)
    content = {key: value for key, value in _read(path, file).items() if key not in STUDY_SECTIONS}
    content.setdefault("name", file.stem)
    return config_from(merged(content, parse_settings(settings)))


def load_kept(folder: Path) -> Config:
    """The configuration of a run directory. What did not exist when it was written was off."""
    file = folder / "config.toml"
    return config_from(merged({"name": file.stem, "memory": {"rounds": 0}, "guards": {"use": []}}, _read(file, file)))


def _read(path: str | Path, file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise AdafedError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AdafedError(f"{path} is not text in UTF-8; a configuration is a TOML file") from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, and thousands of brackets
        raise AdafedError(f"{path} is not TOML: {error}") from None


def config_from(content: Mapping[str, Any]) -> Config:
    """A configuration from a dictionary with the keys of a TOML file; what is left out has its default.

    Args:
        content: Sections and keys, as docs/configuration.md lists them.

    Returns:
        The configuration, checked.

    Raises:
        AdafedError: For an unknown key or a value out of its range, with what would be right.

    Examples:
        >>> import adafed
        >>> adafed.config_from({"rounds": 5, "rule": {"gamma": 5.0}}).rule.name
        'adafed'
        >>> adafed.config_from({"rounds": 0})
        Traceback (most recent call last):
        ...
        adafed.errors.AdafedError: rounds = 0: it must be greater than or equal to 1
    """
    # Options without a name are those of the default entry: `--set rule.gamma=5` alone is enough.
    content = {key: {"name": DEFAULTS[key], **value} if key in DEFAULTS and isinstance(value, Mapping) else value
               for key, value in content.items()}  # fmt: skip
    if isinstance(content.get("partition"), Mapping) and "name" not in content["partition"]:
        content["partition"] = DEFAULT_PARTITION | dict(content["partition"])
    content |= {key: _completed(key, content[key]) for key in SECTIONS if key in content}
    if isinstance(content.get("server"), Mapping):
        content["server"] = {
            key: {"name": USUAL_NAMES[key], **value} if key in USUAL_NAMES and isinstance(value, Mapping) else value
            for key, value in content["server"].items()
        }
    try:
        config = Config.model_validate(content)
    except ValidationError as error:
        raise AdafedError(sentence(error, Config)) from None
    for key in config.model_extra or {}:
        if key not in SECTIONS:
            raise AdafedError(f"{key} is unknown; the top level has {', '.join([*Config.model_fields, *SECTIONS])}")
    if config.server.loss == "validation" and config.split.validation <= 0:
        raise AdafedError(
            'server.loss = "validation" and split.validation = 0: there is nothing to measure; set it above 0'
        )
    _ = config.parts  # so that a wrong option is told before any data is read
    return config


def _completed(section: str, given: Any) -> dict[str, Any]:
    """A client rule's section with all its options."""
    if not isinstance(given, Mapping):
        raise AdafedError(f"{section} = {given!r}: it must be a table with the keys of that section")
    return {key: value for key, value in _with_options(client_rule(section, **given)).items() if key != "name"}
