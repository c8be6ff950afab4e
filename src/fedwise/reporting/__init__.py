"""Report: why these clients, for partners, ethics boards and regulators. One file, offline, printable."""

from .report import Report
from .source import build_report

__all__ = ["Report", "build_report"]
