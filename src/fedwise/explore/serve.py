"""Explorer: the page running on this machine, in the foreground or beside other work."""

from __future__ import annotations

import hmac
import socket
import threading
import webbrowser
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import FedwiseError, MissingExtra
from ..pool.pool import Pool
from .redirect import Redirect
from .server import Vega, application, new_token
from .session import Session

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: The only address the explorer listens on.
HOST = "127.0.0.1"


class Explorer:
    """The explorer of one pool. ``with Explorer(pool) as page: print(page.url)`` runs it in the background.

    Parameters
    ----------
    pool
        The releases.
    releases
        How the releases are named in the command line shown on the page.
    estimator
        ``shrinkage`` or ``plain``.
    port
        Where to listen on 127.0.0.1; 0 takes a free one.

    Raises
    ------
    FedwiseError
        The port is taken.
    MissingExtra
        The web server is not installed.
    """

    def __init__(
        self, pool: Pool, *, releases: str = "releases", estimator: str = "shrinkage", port: int = 0
    ) -> None:
        try:
            import uvicorn
        except ImportError:
            raise MissingExtra("the explorer", "explore") from None
        # A socket that is already bound cannot be taken by anybody between here and the first request.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
            # Listening already: a browser that is quicker than the server waits instead of failing.
            self._socket.listen(128)
        except (OSError, OverflowError) as cause:
            self._socket.close()
            raise FedwiseError(
                f"port must be free, got {port} ({cause}); choose another with --port, or 0"
            ) from None
        self.port = int(self._socket.getsockname()[1])
        self._vega = Vega()
        self.token = new_token()
        try:
            self.session = Session(pool, releases=releases, estimator=estimator)
            self.session.warm()
        except BaseException:
            self.close()
            raise
        self._redirect: Redirect | None = None
        app = self._arriving(application(self.session, token=self.token, port=self.port, vega=self._vega))
        # Plain HTTP by the parts every installation has, and no lines on the terminal for every request.
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address to open, token included."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def open_browser(self) -> None:
        """Open the page in a browser, without showing the token in the process list.

        Raises
        ------
        FedwiseError
            The file that leads the browser to the page cannot be written.
        """
        self._redirect = Redirect(self.url)
        webbrowser.open(self._redirect.uri)

    def _arriving(self, app: ASGIApp) -> ASGIApp:
        """The app, which takes the redirect file away once the browser has followed it."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if self._redirect is not None and scope["type"] == "http":
                given = str(scope["path"]).removeprefix("/").partition("/")[0]
                if hmac.compare_digest(given.encode(), self.token.encode()):
                    self._forget_redirect()
            await app(scope, receive, send)

        return watched

    def _forget_redirect(self) -> None:
        if self._redirect is not None:
            self._redirect.remove()
            self._redirect = None

    def run(self) -> None:
        """Serve until Ctrl-C."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.close()

    def __enter__(self) -> Explorer:
        self._thread = threading.Thread(target=self.run, name="fedwise-explorer", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.closing = True
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
        self.close()

    def close(self) -> None:
        """Give back the port and whatever still runs."""
        if hasattr(self, "session"):
            self.session.closing = True
        if hasattr(self, "_redirect"):
            self._forget_redirect()
        self._vega.close()
        self._socket.close()
