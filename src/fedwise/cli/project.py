"""Project: ``fedwise.toml``, what a project says once so that later commands need no options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FILE = "fedwise.toml"

_NUMBER = (float, int)
#: Keys of the file, section by section, and what each must be.
KEYS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "": {
        "schema": str, "plan": str, "data": str, "by": str, "part": str, "client": str, "ledger": str, "releases": str,
        "selection": str, "run": str, "report": str, "weights": str, "epsilon": _NUMBER, "delta": _NUMBER,
        "budget": _NUMBER, "size": (int, str), "seed": int,
    },
    "constraints": {
        "include": list, "exclude": list, "exclude_suspect": bool, "answered": bool, "min_records": _NUMBER,
        "min_client_records": _NUMBER, "group_file": str, "max_per_group": int, "cost_file": str,
        "budget": _NUMBER, "maximise": str, "subject_to": str,
    },
    "training": {
        "rounds": int, "fraction": _NUMBER, "strategy": str, "sampler": str, "model": str, "optimizer": str,
        "lr": _NUMBER, "batch": int, "epochs": int, "test": _NUMBER, "split_seed": int, "epsilon": _NUMBER,
        "delta": _NUMBER, "clip": _NUMBER,
    },
}  # fmt: skip
_LOCAL = ("rounds", "model", "optimizer", "lr", "batch", "epochs")
_SPLIT = ("test", "split_seed")
_PRIVATE = ("epsilon", "delta", "clip")
#: For each command: its parameters, and the key of the file (``section.key``) that each takes.
_TAKES: dict[str, dict[str, str]] = {
    "plan": {"schema": "schema", "epsilon": "epsilon", "delta": "delta", "weights": "weights", "output": "plan"},
    "check": {"plan": "plan", "data": "data", "client": "client", "by": "by", "part": "part", "ledger": "ledger"},
    "release": {
        "plan": "plan", "data": "data", "client": "client", "by": "by", "part": "part", "ledger": "ledger",
        "budget": "budget", "output": "releases",
    },
    "inspect": {"path": "releases"},
    "budget": {"ledger": "ledger"},
    "select": {"releases": "releases", "k": "size", "weights": "weights", "output": "selection", "seed": "seed"},
    "frontier": {"releases": "releases", "weights": "weights", "seed": "seed"},
    "shortlist": {"releases": "releases", "seed": "seed"},
    "doubles": {"releases": "releases", "seed": "seed"},
    "rehearse": {"releases": "releases", "federation": "selection", "seed": "seed"},
    "tune": {"releases": "releases", "federation": "selection", "seed": "seed"},
    "explore": {"releases": "releases"},
    "train": {
        "data": "data", "by": "by", "schema": "schema", "selection": "selection", "plan": "plan", "output": "run",
        "seed": "seed",
    },
    "compare": {"data": "data", "by": "by", "schema": "schema", "k": "size", "seed": "seed"},
    "calibrate": {"data": "data", "by": "by", "schema": "schema", "seed": "seed", "output": "weights"},
    "predict": {"run": "run"},
    "report": {"run": "run", "releases": "releases", "output": "report"},
}  # fmt: skip
_CONSTRAINED = ("select", "frontier")
_TRAINING = {
    "train": (*_LOCAL, *_SPLIT, *_PRIVATE, "fraction", "strategy", "sampler"),
    "compare": (*_LOCAL, *_SPLIT, "fraction"),
    "calibrate": ("rounds", *_SPLIT),
    "rehearse": (*_LOCAL, *_PRIVATE, "strategy", "sampler"),
    "check": _SPLIT,
    "release": _SPLIT,
}
#: Keys that hold a path: relative ones are meant from the file's own folder.
_PATHS = {
    "schema", "plan", "data", "ledger", "releases", "selection", "run", "report", "weights", "group_file", "cost_file",
}  # fmt: skip


def find_project(start: Path) -> Path | None:
    """The project file of a folder, or of the nearest one above it."""
    return next((folder / FILE for folder in (start, *start.parents) if (folder / FILE).is_file()), None)


def read_project(path: Path) -> dict[str, Any]:
    """The keys of a project file as ``section.key``, each of its type; paths from the folder of the file."""
    from ..errors import FedwiseError, nearest
    from ..files import parse_toml, read_bytes

    try:
        text = read_bytes(path, what="project file", error=FedwiseError).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FedwiseError(f"project file '{path}' must be UTF-8 text; save it again") from None
    found: dict[str, Any] = {}
    for key, value in parse_toml(text, what=f"project file '{path}'", error=FedwiseError).items():
        section, body = (key, value) if isinstance(value, dict) else ("", {key: value})
        if section not in KEYS:
            raise FedwiseError(
                f"project file '{path}' has no section '{section}'{nearest(section, list(KEYS)[1:])}"
            )
        for name, given in body.items():
            kind = KEYS[section].get(name)
            where = f"{section}.{name}" if section else name
            if kind is None:
                raise FedwiseError(
                    f"project file '{path}' has no key '{where}'{nearest(name, KEYS[section])}"
                )
            if not isinstance(given, kind) or (isinstance(given, bool) and kind is not bool):
                raise FedwiseError(
                    f"project file '{path}': {where} must be {_kind(kind)}, got {type(given).__name__}"
                )
            found[where] = _from(path.parent, str(given)) if name in _PATHS else given
    return found


def defaults_of(project: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each command, the options that the project gives it; words on the command line come before these."""
    out: dict[str, dict[str, Any]] = {}
    for command, takes in _TAKES.items():
        own = {parameter: project[key] for parameter, key in takes.items() if key in project}
        own |= _section(project, "training", _TRAINING.get(command, ()))
        if command in _CONSTRAINED:
            names = [
                name
                for name in KEYS["constraints"]
                if command == "select" or name not in ("maximise", "subject_to")
            ]
            own |= _section(project, "constraints", names)
        out[command] = own
    if "by" not in project and "client" in project and "releases" in project:
        out["release"]["output"] = str(Path(project["releases"]) / f"{project['client']}.release.json")
    elif "by" not in project:
        out["release"].pop("output", None)
    if "selection" in project:
        out["report"].setdefault("run", project["selection"])
    run = out["report"].get("run")
    if run and not Path(run).exists() and "selection" in project:
        out["report"]["run"] = project["selection"]  # nothing was trained yet
    return out


def _section(project: dict[str, Any], section: str, names: tuple[str, ...] | list[str]) -> dict[str, Any]:
    found = {name: project[f"{section}.{name}"] for name in names if f"{section}.{name}" in project}
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in found.items()
    }


def _from(folder: Path, value: str) -> str:
    """A path from the folder of the project file; what is no path there, such as a shipped schema's name, stays."""
    path = Path(value)
    bare = not path.suffix and "/" not in value and not (folder / path).exists()
    return value if path.is_absolute() or folder == Path.cwd() or bare else str(folder / path)


def _kind(kind: type | tuple[type, ...]) -> str:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}
    first = kind if isinstance(kind, type) else kind[0]
    return words[first]
