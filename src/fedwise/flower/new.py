"""New: writes a small, complete Flower app that runs as generated. Needs no Flower itself."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..data import schema_text
from ..errors import FedwiseError
from ..files import write_new


def write_app(directory: str | Path, *, schema: str = "income", force: bool = False) -> list[Path]:
    """Write the template to `directory` and return the files written.

    Parameters
    ----------
    directory
        A new or empty directory; its name becomes the app's.
    schema
        Name of a shipped schema. The simulation's synthetic rows fit ``income``.
    force
        Write into a directory that is not empty, over files that exist.
    """
    root = Path(directory)
    name = re.sub(r"[^a-z0-9]+", "-", root.resolve().name.lower()).strip("-")
    if not name:
        raise FedwiseError(
            f"directory '{root}' must have a name with letters or digits: it becomes the app's name"
        )
    if root.exists() and not root.is_dir():
        raise FedwiseError(f"'{root}' is a file; name a new directory")
    if root.is_dir() and any(root.iterdir()) and not force:
        raise FedwiseError(f"directory '{root}' is not empty; choose another name or pass --force")
    texts = {"app/schema.toml": schema_text(schema)}
    for path, text in _files(resources.files(__package__) / "templates", ""):
        texts[path] = text.replace("@NAME@", name)
    written = []
    for path, text in sorted(texts.items()):
        write_new(root / path, text.encode(), force=force)
        written.append(root / path)
    return written


def _files(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    """Templates end in ``.tpl``, so that no tool takes them for modules of fedwise."""
    found = []
    for item in folder.iterdir():
        if item.is_dir():
            found += _files(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".tpl"):
            found.append((prefix + item.name.removesuffix(".tpl"), item.read_text(encoding="utf-8")))
    return found
