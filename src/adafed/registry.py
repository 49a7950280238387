"""Things known by name and made from checked options: rules, optimisers, schedules, models, partitions, data.

An entry is either a frozen dataclass whose fields are its options, or a function whose keyword parameters are. Names
and options come from configuration files and from the command line, so every mistake in them is told in one sentence
that lists what there is. People's own entries need no registration: any name may be `module:attribute`.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import numpy as np

from adafed.errors import AdafedError
from adafed.imported import attribute

E = TypeVar("E", bound=Callable[..., Any])
F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M")
REQUIRED = inspect.Parameter.empty  # the default of an option that has none
_WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
_PLAIN = (*_WANTED, type(None), Path)


class Named:
    """Base of registered classes. One that nobody registered is known by where it is: `module:attribute`. `source` is
    who published it."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of an entry. A dataclass field's metadata may hold `key`, if the configuration spells it otherwise
    than Python can (`lambda`), and `help`."""

    key: str
    parameter: str
    kind: Any
    default: Any
    help: str = ""


class Registry(Generic[E]):
    """Entries of one kind, by name.

    `kind` is for people ("server optimiser"), `key` the configuration's section (none: an entry's own name stands for
    it), `name_key` where it names the entry.
    `beside` are words that stand for entries and are told with their names.
    `base` is the class that entries derive from, None for functions; those are handed `leading` arguments by position
    and `given` ones by name.
    """

    def __init__(
        self,
        kind: str,
        key: str | None = None,
        base: type | None = None,
        *,
        leading: int = 0,
        given: tuple[str, ...] = (),
        name_key: str | None = None,
        beside: tuple[str, ...] = (),
    ) -> None:
        self.kind, self.key, self.base, self.leading, self.given = kind, key, base, leading, given
        self.name_key = name_key or f"{key or kind}.name"
        self.beside = beside
        self._entries: dict[str, E] = {}
        self._renamed: dict[str, type] = {}

    def register(self, name: str) -> Callable[[F], F]:
        """Decorator that makes an entry known by name; `adafed.register` is that of server rules.

        Only for entries of a package that is always imported: one of your own is named `module:attribute` without it.

        Args:
            name: By which configurations call it; a dataclass gets it as its `name`.

        Returns:
            What decorates a frozen dataclass, or a function.

        Raises:
            AdafedError: Where the name is taken.
        """

        def add(entry: F) -> F:
            if name in self._entries:
                raise AdafedError(f"a {self.kind} named {name!r} is registered already")
            if self.base is not None:
                self._check(entry, name)
            if _is_dataclass(entry):
                entry.name = name  # type: ignore[attr-defined]  # a class attribute of every kind that is registered
            self._entries[name] = cast(E, entry)
            return entry

        return add

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))

    def entry(self, name: str) -> E:
        """What is registered under that name, or what `module:attribute` leads to."""
        if name in self._entries:
            return self._entries[name]
        if not isinstance(name, str) or (self._entries and ":" not in name):
            raise unknown_name(self.name_key, name, (*self.beside, *self.names(), "your own as 'module:attribute'"))
        found = attribute(name, self.name_key)
        self._check(found, name)
        return cast(E, found if self.base is None else self._called(name, found))

    def options(self, name: str) -> dict[str, Option]:
        """The options of an entry, by key."""
        return offered(self.entry(name), self.leading, self.given)[0]

    def arguments(self, name: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The options chosen for an entry, checked, by the names of its parameters.

        A value takes the type that its parameter's annotation asks for, except in people's own functions.
        """
        entry = self.entry(name)
        known, others = offered(entry, self.leading, self.given)
        typed = _is_dataclass(entry) or name in self._entries
        made: dict[str, Any] = {}
        for key, value in chosen.items():
            where = f"{self.key or name}.{key}"
            if key in self.given:
                raise AdafedError(f"{where} = {value!r} follows from the rest of the configuration; leave it out")
            if key in known:
                made[known[key].parameter] = coerced(where, value, known[key].kind) if typed else value
            elif others:
                made[key] = value
            else:
                raise unknown_option(self.key or name, self.name_key, name, key, known)
        for option in known.values():
            if option.default is REQUIRED and option.key not in chosen:
                raise AdafedError(f"{self.key or name}.{option.key} is missing; {self.name_key} = {name!r} needs it")
        return made

    def make(self: Registry[type[M]], name: str, /, **options: Any) -> M:
        """The dataclass of that name, with its options."""
        entry, arguments = self.entry(name), self.arguments(name, options)
        try:
            return entry(**arguments)
        except AdafedError:  # a ValueError too, and a sentence already
            raise
        except (Exception, SystemExit) as error:  # what a class of one's own says of its options
            if ":" not in name and not isinstance(error, TypeError | ValueError):
                raise
            raise AdafedError(f"{self.name_key} = {name!r} cannot be made of {arguments}: {error}") from error

    def call(self: Registry[Callable[..., M]], name: str, chosen: Mapping[str, Any], *leading: Any, **given: Any) -> M:
        """What the function of that name returns; of the arguments it is `given`, it gets those it has."""
        entry, arguments = self.entry(name), self.arguments(name, chosen)
        takes = list(signature(entry).parameters)[len(leading) :] if given else []
        return entry(*leading, **{key: value for key, value in given.items() if key in takes}, **arguments)

    def _check(self, found: object, name: str) -> None:
        """One sentence for an entry that is not of this registry's kind."""
        where = f"{self.name_key} = {name!r}"
        if self.base is None:
            if not callable(found):
                raise AdafedError(f"{where} is {type(found).__name__}; it must be a function or a class")
            return
        wanted = f"a frozen dataclass that derives from {self.base.__module__}.{self.base.__qualname__}"
        if not isinstance(found, type) or not issubclass(found, self.base):
            what = f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__
            raise AdafedError(f"{where} is {what}; it must be {wanted}")
        undone = sorted(getattr(found, "__abstractmethods__", ()))
        if undone:
            raise AdafedError(f"{where} does not define {', '.join(undone)}; every {self.kind} must")
        decorated = "__dataclass_params__" in vars(found)
        if not decorated and (inspect.get_annotations(found) or not _is_dataclass(found)):
            raise AdafedError(f"{where} is no dataclass, so that it has no options; it must be {wanted}")
        if not cast(Any, found).__dataclass_params__.frozen:
            raise AdafedError(f"{where} is a dataclass that can change; it must be {wanted}")

    def _called(self, name: str, found: type) -> type:
        """The class with `name` as its name: itself, or where it has another name, one and the same subclass."""
        if vars(found).get("name") == name:
            return found
        if name not in self._renamed or found not in self._renamed[name].__bases__:
            same = {"__module__": found.__module__, "__qualname__": found.__qualname__, "__doc__": found.__doc__}
            self._renamed[name] = type(found)(found.__name__, (found,), {"name": name, "__slots__": (), **same})
        return self._renamed[name]


def unknown_name(key: str, name: object, choices: Iterable[str]) -> AdafedError:
    """The one sentence for a name that nothing has."""
    return AdafedError(f"{key} = {name!r} is unknown; there are {', '.join(choices)}")


def unknown_option(section: str, name_key: str, name: str, option: str, known: Iterable[str]) -> AdafedError:
    """The one sentence for an option that an entry does not have."""
    return AdafedError(f"{section}.{option} is unknown; {name_key} = {name!r} has {', '.join(known) or 'no options'}")


def offered(entry: Any, leading: int = 0, given: tuple[str, ...] = ()) -> tuple[dict[str, Option], bool]:
    """The options of a class or function, and whether it takes others besides."""
    if _is_dataclass(entry):
        return {option.key: option for option in _fields(entry)}, False
    try:
        parameters = list(signature(entry).parameters.values())[leading:]
    except ValueError:  # not written in Python: only the call itself will tell
        return {}, True
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in given]
    options = {p.name: Option(p.name, p.name, p.annotation, p.default) for p in named}
    return options, any(p.kind is p.VAR_KEYWORD for p in parameters)


def signature(entry: Callable[..., Any]) -> inspect.Signature:
    """With annotations as types where they can be read, as text where they cannot."""
    try:
        return inspect.signature(entry, eval_str=True)
    except (NameError, SyntaxError, AttributeError):
        return inspect.signature(entry)


def options(entry: Any) -> dict[str, Any]:
    """Every option of an entry as it was made, defaults too, as a configuration spells them."""
    return {option.key: getattr(entry, option.parameter) for option in _fields(type(entry))}


def described(entry: Any) -> str:
    """The name and the options that differ from their defaults: `adafed(gamma=5.0)`."""
    values = options(entry)
    changed = [f"{o.key}={values[o.key]}" for o in _fields(type(entry)) if values[o.key] != o.default]
    return f"{entry.name}({', '.join(changed)})" if changed else str(entry.name)


def _is_dataclass(entry: object) -> bool:
    return isinstance(entry, type) and dataclasses.is_dataclass(entry)


def _fields(cls: Any) -> list[Option]:
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, AttributeError):  # a name that only a type checker imports
        hints = {}
    found = []
    for field in dataclasses.fields(cls):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        elif default is dataclasses.MISSING:
            default = REQUIRED
        key, text = field.metadata.get("key", field.name), field.metadata.get("help", "")
        if field.init:
            found.append(Option(key, field.name, hints.get(field.name, Any), default, text))
    return found


def coerced(where: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint` asks for: an integer is a fine float, a string or a bool is not.

    Hints other than bool, int, float, str, Literal and their unions are left to the entry.
    """
    union = typing.get_origin(hint) in (None, types.UnionType, typing.Union, Literal)
    kinds = (typing.get_args(hint) if union else ()) or (hint,)
    if any(typing.get_origin(kind) not in (None, Literal) or kind in (Any, REQUIRED) for kind in kinds):
        return value
    if any(isinstance(kind, type) and kind not in _PLAIN for kind in kinds):
        return value
    if isinstance(value, np.generic):  # a value out of np.arange is as good as any
        value = value.item()
    if value is None and type(None) in kinds:
        return None
    literals = [one for kind in kinds for one in _literals(kind)]
    if any(type(one) is type(value) and one == value for one in literals):
        return value
    if isinstance(value, bool):
        accepted = bool in kinds
    elif isinstance(value, int):
        accepted = int in kinds or float in kinds
        value = value if int in kinds or not accepted else _real(where, value)
    elif isinstance(value, float):
        accepted = float in kinds
    else:  # Literal types have strings as their arguments; the entry itself checks which of them
        accepted = isinstance(value, str) and (str in kinds or not any(kind in (bool, int, float) for kind in kinds))
    if not accepted:
        wanted = [_WANTED[kind] for kind in kinds if kind in _WANTED]
        if literals:
            wanted.append(f"one of {', '.join(map(repr, literals))}")
        raise AdafedError(f"{where} is {value!r}; it must be {' or '.join(wanted)}")
    return value


def _literals(kind: Any) -> tuple[Any, ...]:
    """The values that a Literal allows; of a Literal alone, each of them is a kind."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return () if isinstance(kind, type) or kind is None else (kind,)


def _real(where: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise AdafedError(f"{where} has {len(str(value))} digits; it must be a number below 1e308") from None


def one_of(where: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise AdafedError(f"{where} is {value!r}; it must be one of {', '.join(map(repr, choices))}")


def at_least(where: str, value: float, bound: float, *, strictly: bool = False, most: float = float("inf")) -> None:
    if not (value >= bound and value < float("inf")) or (strictly and value == bound) or value > most:
        relation = "greater than" if strictly else "at least"
        limit = "" if most == float("inf") else f" and at most {most:g}"
        raise AdafedError(f"{where} is {value}; it must be a finite number {relation} {bound:g}{limit}")


def below(where: str, value: float, bound: float, *, least: float = 0.0) -> None:
    if not least <= value < bound:
        raise AdafedError(f"{where} is {value}; it must be at least {least:g} and less than {bound:g}")
