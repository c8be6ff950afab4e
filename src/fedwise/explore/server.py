"""Server: the explorer's page and its few routes, for this machine only. `guard` decides who may talk to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..errors import FedwiseError, MissingExtra
from ..search.control import cores
from ..view.palette import css
from .guard import HEADERS, Guard, new_token
from .question import MAX_BYTES, Question
from .session import Session, Stale
from .vega import Vega

try:
    from anyio import CapacityLimiter
    from anyio.to_thread import run_sync
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp
except ImportError:
    raise MissingExtra("the explorer", "explore") from None

__all__ = ["Guard", "Vega", "application", "new_token"]

T = TypeVar("T")

_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Routes:
    """The explorer's routes: questions in, answers of the session out.

    Two queues: quick answers never wait behind longer work, and a crowd does not slow itself down by sharing
    the cores among all at once.
    """

    def __init__(self, session: Session, vega: Vega) -> None:
        self.session = session
        self.vega = vega
        self._quick = CapacityLimiter(cores())
        self._patient = CapacityLimiter(cores())

    def table(self) -> list[Route]:
        """Every address, without the token."""
        return [
            Route("/", self.page),
            Route("/static/{name}", self.static),
            Route("/colours.css", self.colours),
            Route("/vega.js", self.bundle),
            Route("/api/pool", self.pool),
            Route("/api/answer", self.answer, methods=["POST"]),
            Route("/api/frontier", self.frontier, methods=["POST"]),
            Route("/api/search", self.search, methods=["POST"]),
            Route("/api/forecast", self.forecast, methods=["POST"]),
            Route("/api/rehearse", self.rehearse, methods=["POST"]),
            Route("/download/selection.json", self.selection),
            Route("/download/report.html", self.report),
        ]

    async def _now(self, work: Callable[..., T], *given: Any) -> T:
        return await run_sync(work, *given, limiter=self._quick)

    async def _soon(self, work: Callable[..., T], *given: Any) -> T:
        return await run_sync(work, *given, limiter=self._patient)

    async def page(self, request: Request) -> Response:
        """The page itself."""
        return _file("index.html")

    async def static(self, request: Request) -> Response:
        """Its scripts and styles."""
        return _file(request.path_params["name"])

    async def colours(self, request: Request) -> Response:
        """The palette as a style sheet."""
        return Response(css(), headers=HEADERS, media_type="text/css")

    async def bundle(self, request: Request) -> Response:
        """Vega's script."""
        script = await run_sync(self.vega.bundle)
        # The bundle is the same all session long and large: let the browser keep it.
        return Response(
            script,
            headers={**HEADERS, "cache-control": "private, max-age=86400"},
            media_type="text/javascript",
        )

    async def pool(self, request: Request) -> Response:
        """What the page shows before any question."""
        return _json(self.session.describe())

    async def answer(self, request: Request) -> Response:
        """The quick answer."""
        question = await _question(request)
        self.session.note(*_page(request))
        return _json(await self._now(self.session.answer, question))

    async def frontier(self, request: Request) -> Response:
        """Best loss by size."""
        question = await _question(request)
        stale = self.session.overtaken(*_page(request))
        return _json(await self._soon(self.session.frontier, question, stale))

    async def search(self, request: Request) -> Response:
        """The full answer."""
        question = await _question(request)
        stale = self.session.overtaken(*_page(request))
        found = await self._soon(self.session.search, question, stale)
        return _json({"selection": found.to_dict(), "sentence": found.sentence})

    async def forecast(self, request: Request) -> Response:
        """Predicted metrics."""
        question = await _question(request)
        stale = self.session.overtaken(*_page(request))
        return _json({"measures": await self._soon(self.session.forecast, question, stale)})

    async def rehearse(self, request: Request) -> Response:
        """A quick rehearsal."""
        question = await _question(request)
        stale = self.session.overtaken(*_page(request))
        return _json(await self._soon(self.session.rehearse, question, stale))

    async def selection(self, request: Request) -> Response:
        """The full answer as a file."""
        question = Question.decode(request.query_params.get("q", ""))
        found = await self._soon(self.session.search, question, _never)
        return _download(found.encode(), "selection.json", "application/json")

    async def report(self, request: Request) -> Response:
        """The report on the full answer as a file."""
        question = Question.decode(request.query_params.get("q", ""))
        made = await self._soon(self.session.report, question)
        return _download(made.encode(), "report.html", "text/html")


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
    app = Starlette(routes=Routes(session, vega).table(), exception_handlers={FedwiseError: _refusal})
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
    return Response(f"{error}\n", 400, headers=HEADERS, media_type="text/plain")


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), headers=HEADERS, media_type="application/json")


def _file(name: str) -> Response:
    path = _STATIC / name
    if path.parent != _STATIC or not path.is_file() or path.suffix not in _TYPES:
        return Response("Not here.\n", 404, headers=HEADERS, media_type="text/plain")
    return Response(path.read_bytes(), headers=HEADERS, media_type=_TYPES[path.suffix])


def _download(data: bytes, name: str, kind: str) -> Response:
    headers = {**HEADERS, "content-disposition": f'attachment; filename="{name}"'}
    return Response(data, headers=headers, media_type=kind)
