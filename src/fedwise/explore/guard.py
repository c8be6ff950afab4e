"""Guard: who may talk to the explorer. Only requests that know the token and come from its own page.

Every address starts with a random token, compared in constant time; requests from other hosts' pages are
refused by the Host, Origin and Sec-Fetch-Site headers, and no response carries a CORS header.
"""

from __future__ import annotations

import hmac
import secrets

from ..errors import MissingExtra

try:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError:
    raise MissingExtra("the explorer", "explore") from None

#: Headers of every response: the page may load scripts and styles from here only, and no inline script.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Guard:
    """Lets through only requests that know the token, name this host, and come from this page or a person.

    Parameters
    ----------
    app
        The routes, which see the path without the token.
    token, hosts
        The secret, and the values of the Host header that mean this server.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: frozenset[str]) -> None:
        self.app = app
        self.token = token
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given, slash, rest = scope["path"].removeprefix("/").partition("/")
        # Both checks always run, and the comparison takes the same time wherever the first difference is.
        known = hmac.compare_digest(given.encode(), self.token.encode())
        if not (self._here(headers, page=scope["method"] == "GET" and rest == "") and known):
            answer = Response(
                "Refused. Open the address that `fedwise explore` printed, token included.\n",
                403,
                headers=HEADERS,
                media_type="text/plain",
            )
            await answer(scope, receive, send)
            return
        if not slash:
            # Relative addresses on the page need the closing slash.
            await Response(status_code=307, headers={**HEADERS, "location": f"/{self.token}/"})(
                scope, receive, send
            )
            return
        inner = {**scope, "path": "/" + rest, "raw_path": None}
        await self.app(inner, receive, send)

    def _here(self, headers: dict[str, str], *, page: bool) -> bool:
        host = headers.get("host", "")
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        # The file that leads the browser here counts as another site. It may show the page in a tab of its own,
        # which gives it nothing to read; it may not frame it, and may fetch nothing.
        shown = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        came = site in ("none", "same-origin") or (page and shown)
        return host in self.hosts and origin in (None, f"http://{host}") and came
