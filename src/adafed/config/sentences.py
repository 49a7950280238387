"""What is wrong with a configuration, in one sentence: the key as it stands in the file, the value, what is right."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ValidationError


def sentence(error: ValidationError, config: type[BaseModel]) -> str:
    """The first complaint, with the key as it stands in the file."""
    complaints = error.errors(include_url=False)
    first = complaints[0]
    parts = _key(first["loc"])
    if first["type"] == "extra_forbidden" and (not parts or parts[-1] != str(first["loc"][-1])):
        parts.append(str(first["loc"][-1]))  # a key that is called like one of pydantic's steps
    key = ".".join(parts) or "the configuration"
    if first["type"] == "extra_forbidden":
        section = _section(parts[:-1], config)
        known = ", ".join(field.alias or name for name, field in section.model_fields.items()) if section else ""
        where = f"[{'.'.join(parts[:-1])}]" if parts[:-1] else "the top level"
        return f"{key} is unknown; {where} has {known}"
    if first["type"] == "missing":
        return f"{key} is missing; it must be given"
    if first["type"] == "value_error":
        of_a_key = isinstance(first["input"], str)  # a section's own complaint is about several of its keys
        return (
            f"{key} = {first['input']!r}: {first['ctx']['error']}" if of_a_key else f"[{key}]: {first['ctx']['error']}"
        )
    # Of a key that may be of several kinds, each kind has its own complaint.
    wanted = [one["msg"].removeprefix("Input should be ") for one in complaints if _key(one["loc"]) == parts]
    wanted = ["a table with the keys of that section" if "dictionary" in text else text for text in wanted]
    return f"{key} = {first['input']!r}: it must be {' or '.join(dict.fromkeys(wanted))}"


def _key(location: tuple[int | str, ...]) -> list[str]:
    """Without pydantic's own steps: the branches of a union and the validators."""
    inner = re.compile(r"(function-|constrained-|literal\[|int$|float$|str$|nullable|none)")
    return [str(part) for part in location if not inner.match(str(part))]


def _section(parts: list[str], model: type[BaseModel]) -> type[BaseModel] | None:
    for part in parts:
        annotation: Any = model.model_fields[part].annotation if part in model.model_fields else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        found = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not found:
            return None
        model = found[0]
    return model
