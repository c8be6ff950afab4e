"""The experiments are scripts beside the package: tests import them from their directory."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
sys.path.append(str(Path(__file__).parent))  # last: this directory has a conftest too
