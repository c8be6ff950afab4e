"""Redirect: a file only this user can read that sends the browser to a secret address.

A browser is started with what it shall open as an argument, and arguments are in the process list for everyone on
the machine. The argument is therefore this file; the address with its token is inside.
"""

from __future__ import annotations

import html
import os
import tempfile
from pathlib import Path

from ..errors import FedwiseError
from ..files import discard

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>fedwise</title>
<p><a href="{url}">Open the explorer</a></p>
</html>
"""


class Redirect:
    """A page of mode 0600 that leads to `url`, until `remove` is called.

    Raises
    ------
    FedwiseError
        The file cannot be written.
    """

    def __init__(self, url: str) -> None:
        try:
            # mkstemp gives mode 0600 and a name that nobody can take first.
            handle, name = tempfile.mkstemp(prefix="fedwise-", suffix=".html")
            self.path = Path(name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(_PAGE.format(url=html.escape(url, quote=True)))
        except OSError as cause:
            raise FedwiseError(
                f"the browser cannot be opened ({cause.strerror}); open the address by hand, or pass --no-open"
            ) from None

    @property
    def uri(self) -> str:
        """What to open: names the file, not the address."""
        return self.path.as_uri()

    def remove(self) -> None:
        """Take the file away; nothing happens where it is gone."""
        discard(self.path)
