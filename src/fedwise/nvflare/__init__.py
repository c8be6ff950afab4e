"""NVFlare: proactive selection in a job people already have.

On a site, `ReleaseExecutor` answers plans under the owner's policy file and `PolicyFilter` asks that policy before any
other task. On the server, `SelectedFedAvg` (or `Selected` in front of another controller) asks every site, chooses,
and trains on the chosen sites only. Only modules of this package import nvflare.
"""

from __future__ import annotations

import importlib
from typing import Any

import lazy_loader

from ..errors import FedwiseError, MissingExtra

#: The oldest version of nvflare that was tested.
OLDEST = "2.9"

_load, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = sorted(_names)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ImportError as cause:
        if (cause.name or "").split(".")[0] != "nvflare":
            raise
        try:
            importlib.import_module("nvflare")
        except ImportError:
            raise MissingExtra("NVFlare integration", "nvflare") from None
        raise FedwiseError(
            f"NVFlare integration must have nvflare {OLDEST} or newer; run: pip install 'fedwise[nvflare]'"
        ) from None


def __dir__() -> list[str]:
    return list(__all__)
