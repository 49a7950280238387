"""The sections of a configuration: their keys, defaults and ranges. One class a table of the TOML file.

[data], [partition], [model] and [rule] name an entry of a registry: entries.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from adafed.config.entries import Entry, named
from adafed.server.steps import StepKind
from adafed.server_rules.guards import UNASKED

# Far beyond use, and well before torch's own numbers, float32 and int64, are at their end.
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=2**53)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, ser_json_inf_nan="constants", populate_by_name=True
    )


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
        if self.power != 1.0 and self.sampling != "loss":
            raise ValueError(f'power = {self.power} is for sampling = "loss"')
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
    # The share of a remembered update that must still be true, by clients that come back, for any to be shown;
    # "auto": 0.3 where `rounds` is "auto", and 0 where it is not.
    truth: Share | Literal["auto"] = "auto"
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
