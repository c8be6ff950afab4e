"""Places: files an app names, found beside the app's own module and not in the directory Flower was started in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def beside(path: str | Path, caller: Mapping[str, Any]) -> Path:
    """A file as the app means it: beside its module, in the folder above, or where the process was started.

    Parameters
    ----------
    path
        As the app wrote it; an absolute one is taken as it is.
    caller
        Globals of the app's module.
    """
    path = Path(path)
    module = caller.get("__file__")
    if path.is_absolute() or module is None:
        return path
    home = Path(str(module)).resolve().parent
    for folder in (home, home.parent):
        if (folder / path).exists():
            return folder / path
    return path if path.exists() else home / path
