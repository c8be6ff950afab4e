"""Site: pages of the documentation that are made when it is built. `mkdocs.yml` names this file under hooks.

``reference/commands.md`` lists every command with all its options, from the command line itself, and
``reference/api.md`` every public name, from the stub that is the public API: neither can fall behind.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

#: Pages made here; other pages may link to them though no file lies there.
PAGES = ("reference/commands.md", "reference/api.md")
_STUB = Path(__file__).parents[1] / "src" / "fedwise" / "__init__.pyi"
#: Headings of the public names, by the package that holds them.
_PARTS = {
    "Ask": ("schema", "planning", "objective"),
    "Answer, beside the data": ("owner",),
    "All releases together": ("pool", "estimation"),
    "Choose": ("search", "certificate", "forecasting", "shortlisting"),
    "See the training before it happens": ("doubling", "rehearsal"),
    "Train": ("training",),
    "Show and check": ("reporting", "auditing", "errors"),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made here."""
    for page, content in zip(PAGES, (commands(), names()), strict=True):
        files.append(File.generated(config, page, content=content))
    return files


def names() -> str:
    """Every public name, by what it is for."""
    found: dict[str, list[str]] = {}
    for node in ast.parse(_STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            package = node.module.partition(".")[0]
            part = next((title for title, held in _PARTS.items() if package in held), "More")
            for alias in node.names:
                name = alias.asname or alias.name
                found.setdefault(part, []).append(
                    f"::: fedwise.{node.module}.{alias.name}\n    options:\n      heading: fw.{name}\n"
                )
    lines = [
        "# Python",
        "",
        "`import fedwise as fw` is all there is to import; `import fedwise` itself loads nothing.",
        "",
    ]
    for part in [*_PARTS, "More"]:
        if part in found:
            lines += [f"## {part}", "", *found[part]]
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Every command with its arguments and options."""
    from fedwise.cli.main import app

    root: Any = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "Every command, from the command line itself. `fedwise COMMAND --help` shows the same in a terminal.",
        "Exit codes are explained in the [quickstart](../quickstart.md#exit-codes).",
        "",
    ]
    for name, command in root.commands.items():
        lines += list(_describe(f"fedwise {name}", command, level=2))
    return "\n".join(lines) + "\n"


def _describe(path: str, command: Any, *, level: int) -> list[str]:
    if hasattr(command, "commands"):
        lines = [f"{'#' * level} {path}", "", *_prose(command.help)]
        for name, part in command.commands.items():
            lines += _describe(f"{path} {name}", part, level=level + 1)
        return lines
    lines = [f"{'#' * level} {path}", "", *_prose(command.help)]
    rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
    if rows:
        lines += ["| option | meaning | default |", "|---|---|---|", *rows, ""]
    return lines


def _prose(text: str | None) -> list[str]:
    """The help of a command; its example as a command line."""
    lines: list[str] = []
    for part in re.split(r"\n\s*\n", text or ""):
        said = " ".join(part.split()).replace("\b", "").strip()
        if said.startswith("Example:"):
            lines += ["```text", f"$ {said.removeprefix('Example:').strip()}", "```", ""]
        elif said:
            lines += [_safe(said), ""]
    return lines


def _row(parameter: Any) -> str:
    help_text = getattr(parameter, "help", None) or ""
    if parameter.param_type_name == "argument":
        name = f"`{(parameter.metavar or parameter.name or '').upper()}`"
    else:
        name = ", ".join(f"`{spelling}`" for spelling in (*parameter.opts, *parameter.secondary_opts))
    return f"| {name} | {_safe(help_text)} | {_default(parameter)} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value: Any = parameter.default
    if (
        callable(value)
        or value is None
        or value is False
        or value == ""
        or value == ()
        or "Sentinel" in repr(type(value))
    ):
        return ""
    return f"`{value}`" if not isinstance(value, bool) else "on"


def _safe(text: str) -> str:
    """Help text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")
