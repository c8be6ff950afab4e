"""Report: why these clients, for partners, ethics boards and regulators. One file, offline, printable."""

from .document import Report
from .imprint import Imprint
from .source import report

__all__ = ["Imprint", "Report", "report"]
