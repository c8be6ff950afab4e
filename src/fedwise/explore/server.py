"""Server: the explorer's page and its few routes, for this machine only.

Every address starts with a random token, compared in constant time; requests from other hosts' pages are
refused by the Host, Origin and Sec-Fetch-Site headers, and no response carries a CORS header. The page may
load scripts and styles from here only, and no inline script.
"""

from __future__ import annotations

import hmac
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from ..errors import FedwiseError, MissingExtra
from ..search.control import cores
from ..view.draw import VERSION
from ..view.palette import css
from .question import MAX_BYTES, Question
from .session import Session, Stale

try:
    from anyio import CapacityLimiter
    from anyio.to_thread import run_sync
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError:
    raise MissingExtra("the explorer", "explore") from None

T = TypeVar("T")

_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
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
                headers=_HEADERS,
                media_type="text/plain",
            )
            await answer(scope, receive, send)
            return
        if not slash:
            # Relative addresses on the page need the closing slash.
            await Response(status_code=307, headers={**_HEADERS, "location": f"/{self.token}/"})(
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


class Vega:
    """The JavaScript of Vega, Vega-Lite and Vega-Embed, bundled from the installed package.

    Bundling takes seconds and holds the interpreter, so a process of its own does it while the pool is read.
    """

    #: Made once for the whole process.
    _ready: ClassVar[bytes] = b""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        if not Vega._ready:
            program = "import sys, vl_convert; sys.stdout.write(vl_convert.javascript_bundle(vl_version=sys.argv[1]))"
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", program, VERSION], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )

    def bundle(self) -> bytes:
        """The script; waits until it is ready.

        Raises
        ------
        MissingExtra
            ``vl-convert-python`` is not installed.
        """
        with self._lock:
            if self._process is not None:
                made, _ = self._process.communicate()
                self._process = None
                Vega._ready = made or Vega._ready
        if not Vega._ready:
            raise MissingExtra("the explorer's charts", "explore")
        return Vega._ready

    def close(self) -> None:
        """Stop bundling if it still runs."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
        with self._lock:
            if self._process is not None:
                self._process.communicate()
                self._process = None


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def application(session: Session, *, token: str, port: int, vega: Vega) -> ASGIApp:
    """The explorer as an ASGI application.

    Parameters
    ----------
    session
        What answers.
    token
        First part of every path.
    port
        Where it will listen; requests must name it in their Host header.
    vega
        Where the charts' script comes from.
    """

    # Two queues: quick answers never wait behind patient ones, and a crowd does not slow itself down by
    # sharing the cores among all at once.
    quick, patient = CapacityLimiter(cores()), CapacityLimiter(cores())

    async def now(work: Callable[..., T], *given: Any) -> T:
        return await run_sync(work, *given, limiter=quick)

    async def soon(work: Callable[..., T], *given: Any) -> T:
        return await run_sync(work, *given, limiter=patient)

    async def page(request: Request) -> Response:
        return _file("index.html")

    async def static(request: Request) -> Response:
        return _file(request.path_params["name"])

    async def colours(request: Request) -> Response:
        return Response(css(), headers=_HEADERS, media_type="text/css")

    async def bundle(request: Request) -> Response:
        script = await run_sync(vega.bundle)
        # The bundle is the same all session long and large: let the browser keep it.
        return Response(
            script,
            headers={**_HEADERS, "cache-control": "private, max-age=86400"},
            media_type="text/javascript",
        )

    async def pool(request: Request) -> Response:
        return _json(session.describe())

    async def answer(request: Request) -> Response:
        question = await _question(request)
        session.note(*_page(request))
        return _json(await now(session.answer, question))

    async def frontier(request: Request) -> Response:
        question = await _question(request)
        stale = session.overtaken(*_page(request))
        return _json(await soon(session.frontier, question, stale))

    async def search(request: Request) -> Response:
        question = await _question(request)
        stale = session.overtaken(*_page(request))
        found = await soon(session.search, question, stale)
        return _json({"selection": found.to_dict(), "sentence": found.sentence})

    async def forecast(request: Request) -> Response:
        question = await _question(request)
        stale = session.overtaken(*_page(request))
        return _json({"measures": await soon(session.forecast, question, stale)})

    async def selection(request: Request) -> Response:
        question = Question.decode(request.query_params.get("q", ""))
        found = await soon(session.search, question, _never)
        return _download(found.encode(), "selection.json", "application/json")

    async def report(request: Request) -> Response:
        question = Question.decode(request.query_params.get("q", ""))
        made = await soon(session.report, question)
        return _download(made.encode(), "report.html", "text/html")

    routes = [
        Route("/", page),
        Route("/static/{name}", static),
        Route("/colours.css", colours),
        Route("/vega.js", bundle),
        Route("/api/pool", pool),
        Route("/api/answer", answer, methods=["POST"]),
        Route("/api/frontier", frontier, methods=["POST"]),
        Route("/api/search", search, methods=["POST"]),
        Route("/api/forecast", forecast, methods=["POST"]),
        Route("/download/selection.json", selection),
        Route("/download/report.html", report),
    ]
    app = Starlette(routes=routes, exception_handlers={FedwiseError: _refusal})
    hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
    return Guard(app, token=token, hosts=hosts)


def _never() -> bool:
    """A download is wanted whatever else the page asks."""
    return False


async def _question(request: Request) -> Question:
    if request.headers.get("content-type") != "application/json":
        raise FedwiseError("question must be sent as application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise FedwiseError(f"question must be at most {MAX_BYTES} bytes long")
    return Question.decode(body)


def _page(request: Request) -> tuple[str, int]:
    """Which page asks, and at which version of its state."""
    version = request.query_params.get("n", "0")
    return request.query_params.get("page", "")[:40], int(version) if version.isdecimal() and len(
        version
    ) < 16 else 0


async def _refusal(request: Request, error: Exception) -> Response:
    """What went wrong, in one sentence.

    An impossible wish is an ordinary answer to the page, which shows it: status 200, so that the browser's
    console stays empty. An overtaken question is answered by the newer one.
    """
    if request.url.path.startswith("/api/"):
        return _json({"stale": True} if isinstance(error, Stale) else {"error": str(error)})
    return Response(f"{error}\n", 400, headers=_HEADERS, media_type="text/plain")


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), headers=_HEADERS, media_type="application/json")


def _file(name: str) -> Response:
    path = _STATIC / name
    if path.parent != _STATIC or not path.is_file() or path.suffix not in _TYPES:
        return Response("Not here.\n", 404, headers=_HEADERS, media_type="text/plain")
    return Response(path.read_bytes(), headers=_HEADERS, media_type=_TYPES[path.suffix])


def _download(data: bytes, name: str, kind: str) -> Response:
    headers = {**_HEADERS, "content-disposition": f'attachment; filename="{name}"'}
    return Response(data, headers=headers, media_type=kind)
