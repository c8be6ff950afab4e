"""Imprint: what stands around a report."""

from __future__ import annotations

import msgspec


class Imprint(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around a report: its heading, who asked for it, its date, and how it is made again.

    Parameters
    ----------
    title
        Default: how many clients were chosen.
    asked_by
        A person or an organisation, as the page shall name it.
    date
        Of the report; default: today.
    commands, digests
        The command lines that lead here, and further digests for the last section.
    """

    title: str = ""
    asked_by: str = ""
    date: str = ""
    commands: tuple[str, ...] = ()
    digests: dict[str, str] = {}
