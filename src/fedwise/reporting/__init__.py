"""Report: why these clients, for partners, ethics boards and regulators. One file, offline, printable."""

from .document import Imprint, Report
from .source import report

__all__ = ["Imprint", "Report", "report"]
