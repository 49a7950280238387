"""What the site has beside the files of docs/, made when it is built (a hook of mkdocs).

The front page is README.md. The reference is made from the docstrings of all public names, from the registries of rules
and other parts, and from the help of the command line, so nothing in it is copied by hand. Formulas become MathML.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import griffe
import typer
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {  # files of the repository that are pages of the site too
    "README.md": "index.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
NO_PAGE = ("LICENSE", "CITATION.cff", "examples/", "results/", "src/", "experiments/")  # named, not linked


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "math", "format": _formula}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = {page: (ROOT / file).read_text() for file, page in OUTSIDE.items()} | dict(reference())
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository become links of the site."""
    source = {page: file for file, page in OUTSIDE.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    here, depth = Path(source).parent, "../" * page.file.src_uri.count("/")

    def moved(found: re.Match[str]) -> str:
        before, target, after = found.groups()
        if ":" in target or target.startswith("#") or not target:
            return found[0]
        path, _, anchor = target.partition("#")
        wanted = _normal(here / path)
        place = OUTSIDE.get(wanted, wanted.removeprefix("docs/") if wanted.startswith("docs/") else None)
        if place is None and wanted.startswith(NO_PAGE):
            return f"{before}#{after}" if before.startswith("src") else f"`{wanted}`" + after[1:]
        return found[0] if place is None else f"{before}{depth}{place}{'#' + anchor if anchor else ''}{after}"

    markdown = re.sub(r"((?:src|srcset)=\")([^\"]*)(\")", moved, markdown)
    markdown = re.sub(r"(\]\()([^)\s]+)(\))", moved, markdown)
    markdown = re.sub(r"\[([^\]]*)\]`([^`]*)`", r"\1 (`\2`)", markdown)
    return markdown.replace("```python fragment", "```python")


def _normal(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _formula(source: str, language: str, css_class: str, options: Any, md: Any, **more: Any) -> str:
    return f'<div class="{css_class}">{convert(source, display="block")}</div>'


# The reference


def reference() -> Iterator[tuple[str, str]]:
    import adafed
    import adafed.flower
    import adafed.testing

    functions = [name for name in adafed.__all__ if inspect.isfunction(getattr(adafed, name))]
    classes = [name for name in adafed.__all__ if inspect.isclass(getattr(adafed, name))]
    yield "reference/python.md", _page("Python", "What `import adafed` brings.", "adafed", [*functions, *classes])
    yield "reference/flower.md", _page("Flower", "`adafed.flower`.", "adafed.flower", adafed.flower.__all__)
    checks = [name for name in adafed.testing.__all__ if name.islower()]
    yield "reference/testing.md", _page("Testing your own", "`adafed.testing`.", "adafed.testing", checks)
    yield "reference/bases.md", _bases()
    yield "reference/rules.md", _rules()
    yield "reference/parts.md", _parts()
    yield "reference/commands.md", commands()


def _page(title: str, what: str, module: str, names: list[str]) -> str:
    blocks = [f"::: {_home(module, name)}\n" for name in names if name != "__version__"]
    return f"# {title}\n\n{what}\n\n" + "\n".join(blocks)


def _home(module: str, name: str) -> str:
    """Where a public name is defined: its documentation is read from there, of Flower's without importing it."""
    if module == "adafed.flower":
        return f"adafed.engines.flower.{import_module(module)._WHERE[name]}.{name}"
    found = getattr(import_module(module), name)
    if inspect.isroutine(found) and hasattr(found, "__self__"):  # register is a method of the registry of rules
        return "adafed.registry.Registry.register"
    return f"{found.__module__}.{found.__qualname__}"


def _bases() -> str:
    blocks = [
        "adafed.client_rules.base.Visit",
        "adafed.client_rules.base.Begun",
        "adafed.client_rules.base.Plan",
        "adafed.metrics.Metric",
        "adafed.metrics.Evaluated",
        "adafed.server.optimizers.ServerOptimizer",
        "adafed.server.schedules.Schedule",
        "adafed.attacks.base.Lie",
        "adafed.data.Federation",
        "adafed.data.ClientData",
        "adafed.rounds.records.RoundRecord",
    ]
    homes = [_home(*block.rsplit(".", 1)) for block in blocks]
    told = "What a part of your own derives from or is handed ([how to](../own.md)). "
    more = "`Rule`, `Facts`, `Answer`, `ClientRule`, `Guard` and `Verdict` stand under [Python](python.md)."
    listed = "\n".join(f"::: {home}\n" for home in dict.fromkeys(homes))
    return f"# Bases for your own parts\n\n{told}{more}\n\n{listed}"


def _rules() -> str:
    from adafed.client_rules import CLIENT_RULES
    from adafed.server_rules import RULES

    told = (
        "Every option stands beside the rule's name in a configuration, or is an argument of `adafed.rule(name, ...)`."
    )
    return "\n".join(
        [
            "# Rules and their options",
            told,
            "## Server rules",
            *_entries(RULES),
            "## Client rules",
            *_entries(CLIENT_RULES),
        ]
    )


def _parts() -> str:
    from adafed.attacks import LIES
    from adafed.server.optimizers import OPTIMIZERS
    from adafed.server.schedules import SCHEDULES
    from adafed.server_rules.guards import GUARDS

    lines = ["# Guards, optimisers, schedules", "What `adafed list` has beside rules, with every option."]
    for title, registry in (
        ("Guards", GUARDS), ("Server optimisers", OPTIMIZERS), ("Rate schedules", SCHEDULES), ("Lies", LIES),
    ):  # fmt: skip
        lines += [f"## {title}", *_entries(registry)]
    return "\n".join(lines)


def _entries(registry: Any) -> Iterator[str]:
    cited = bibliography()
    for name in registry.names():
        entry = registry.entry(name)
        text = inspect.cleandoc(entry.__doc__ or "")
        sections = griffe.Docstring(text).parse("google")
        options = {
            one.name: one.description
            for section in sections
            if section.kind.value in ("attributes", "parameters")
            for one in section.value
        }
        body = "\n\n".join(section.value for section in sections if section.kind.value == "text")
        paper = re.search(r"url\s*= \{(.*?)\}", cited.get(name, ""))
        who = (
            f"[{entry.source}]({paper[1]})" if paper and getattr(entry, "source", "") else getattr(entry, "source", "")
        )
        source = f"*{entry.summary}* · {who}" if who else f"*{entry.summary}*"
        anchor = f"{registry.kind.replace(' ', '-')}-{name.replace('+', '-plus')}"
        yield f"### `{name}` {{ #{anchor} }}\n\n{source}\n\n{_plain(body)}\n"
        if found := registry.options(name):
            yield '<div class="options" markdown>\n\n| option | default | what it is |\n|---|---|---|'
            for option in found.values():
                default = (
                    "none: it must be given" if option.default is inspect.Parameter.empty else f"`{option.default!r}`"
                )
                what = (options.get(option.parameter) or option.help).replace("\n", " ").replace("|", "\\|")
                what = _plain(what)
                yield f"| `{option.key}` | {default} | {what} |"
            yield "\n</div>\n"
        if name in cited:
            yield '??? quote "BibTeX"\n\n    ```bibtex\n' + _indented(cited[name]) + "\n    ```\n"


def _plain(text: str) -> str:
    """Formulas of docstrings as they stand: <h, y> is no HTML, a * b * c no emphasis."""
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", text).replace(" * ", " \\* ")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def bibliography() -> dict[str, str]:
    """The entries of docs/methods.bib by their keys, which are the methods' names here."""
    path = ROOT / "docs" / "methods.bib"
    text = path.read_text() if path.exists() else ""
    return {
        entry.split("{", 1)[1].split(",", 1)[0]: entry.strip() for entry in re.split(r"\n(?=@)", text) if "{" in entry
    }


# The command line


def commands() -> str:
    """Every command with its arguments and options, from what `--help` shows."""
    from adafed.cli import app

    root = typer.main.get_command(app)
    lines = [
        "# Command line",
        root.help or "",
        "Every command has `--help`. A mistake is told in one sentence, with exit code 2.",
    ]
    for name, command in _walked(root, "adafed"):
        lines.append(f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n")
        context = click.Context(command, info_name=name)
        lines.append(f"```sh\n{name} {' '.join(command.collect_usage_pieces(context))}\n```\n")
        lines += list(_parameters(command))
    return "\n\n".join(lines)


def _walked(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, found in sorted(getattr(command, "commands", {}).items()):
        if hasattr(found, "commands"):
            yield from _walked(found, f"{name} {word}")
        else:
            yield f"{name} {word}", found


def _parameters(command: Any) -> Iterator[str]:
    rows = []
    for one in command.params:
        if one.name == "help":
            continue
        spelled = ", ".join(f"`{word}`" for word in (*one.opts, *one.secondary_opts))
        if one.param_type_name == "argument":
            spelled = f"`{(one.metavar or one.name.upper()).strip('[]')}`"
        plain = one.default is None or isinstance(one.default, bool) or callable(one.default)
        default = "" if plain else one.default
        default = getattr(default, "value", default)
        what = (one.help or "").replace("|", "\\|").replace("\n", " ")
        rows.append(f"| {spelled} | {what} | {f'`{default}`' if default != '' else ''} |")
    if rows:
        table = "\n".join(["| option | what it does | default |", "|---|---|---|", *rows])
        yield f'<div class="options" markdown>\n\n{table}\n\n</div>'


def undescribed() -> list[str]:
    """Options of registered parts that no docstring describes."""
    from adafed.attacks import LIES
    from adafed.client_rules import CLIENT_RULES
    from adafed.server.optimizers import OPTIMIZERS
    from adafed.server.schedules import SCHEDULES
    from adafed.server_rules import RULES
    from adafed.server_rules.guards import GUARDS

    missing = []
    for registry in (RULES, CLIENT_RULES, GUARDS, OPTIMIZERS, SCHEDULES, LIES):
        for name in registry.names():
            entry: Any = registry.entry(name)
            if not dataclasses.is_dataclass(entry):
                continue
            sections = griffe.Docstring(inspect.cleandoc(entry.__doc__ or "")).parse("google")
            told = {one.name for section in sections if section.kind.value == "attributes" for one in section.value}
            missing += [f"{registry.kind} {name}: {one.parameter}" for one in registry.options(name).values()
                        if one.parameter not in told and not one.help]  # fmt: skip
    return missing
