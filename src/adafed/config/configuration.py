"""A whole configuration: its sections together, what they name, made, and the checks that concern several of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import tomli_w
from pydantic import AfterValidator, ConfigDict, ValidationError

from adafed.attacks import Lie, lies_from
from adafed.client_rules import WITH_KEYS, ClientRule, client_rule
from adafed.config.entries import Entry, named, with_options
from adafed.config.merging import DEFAULTS, USUAL_NAMES, merged
from adafed.config.sections import (
    AttackSection,
    AugmentSection,
    ClientSection,
    CohortSection,
    Count,
    EvaluationSection,
    GuardsSection,
    LocalSection,
    MemorySection,
    NoiseSection,
    RunSection,
    Section,
    Seed,
    SeedsSection,
    ServerSection,
    SplitSection,
    TrackSection,
)
from adafed.config.sentences import sentence
from adafed.data.sources import DEFAULT_PARTITION
from adafed.errors import AdafedError
from adafed.randomness import Seeds as DerivedSeeds
from adafed.server.optimizers import ServerOptimizer, optimizer
from adafed.server.schedules import Schedule, schedule
from adafed.server.steps import require_plain
from adafed.server_rules import Rule, rule
from adafed.server_rules.guards import Guard, guards_from

SECTIONS = tuple(kind.section for kind in WITH_KEYS if kind.section is not None)  # called as their rules are


def is_folder_name(value: str) -> bool:
    """Runs go to a folder of this name."""
    return bool(value.strip(". ")) and "/" not in value and "\0" not in value and len(value.encode()) <= 200


def _file_name(value: str) -> str:
    if not is_folder_name(value):
        raise ValueError("it must be the name of a folder: no slashes, not dots alone, at most 200 letters")
    return value


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

    model_config = ConfigDict(
        extra="allow", strict=True, frozen=True, ser_json_inf_nan="constants", populate_by_name=True
    )
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
        makers = [one.name for one in found if one.makes_gradients]
        if len(makers) > 1:
            raise AdafedError(f"{' and '.join(makers)} each make the gradients of a batch; leave all but one out")
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
            "rule": with_options(self.parts.rule),
            "client": {"rules": [with_options(one) for one in self.parts.client_rules if one.name in listed]},
            "guards": {"use": [with_options(one) for one in self.parts.guards]},
        }
        if self.attack is not None:
            content["attack"] |= {"use": [with_options(one) for one in self.parts.lies]}
        content["server"] |= {
            "optimizer": with_options(self.parts.optimizer),
            "schedule": with_options(self.parts.schedule),
        }
        return config_from(content)

    def changed(self, **sections: Any) -> Config:
        """A copy with some sections or keys replaced, checked again."""
        return config_from(merged(self.to_dict(), sections))


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
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise AdafedError(
            f"config_from was given {content!r}; give a mapping of keys and values, or a file to adafed.load_config"
        )
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
    return {key: value for key, value in with_options(client_rule(section, **given)).items() if key != "name"}
