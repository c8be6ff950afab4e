"""Report: why these clients, for partners, ethics boards and regulators. One file, offline, printable."""

from .document import Report
from .source import report

__all__ = ["Report", "report"]
