"""The server: nothing without the token, nothing for other origins, nothing that breaks it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fedwise.explore.question import Question
from fedwise.explore.server import application, new_token
from fedwise.explore.session import Session
from fedwise.search.control import cores

TOKEN = "secret-token"
PORT = 8765
GOOD = json.dumps({"k": 3, "weights": {"alpha": 2.0, "beta": 0.9, "gamma": 0.1, "lam": 1.3}}).encode()
ROUTES = [
    ("GET", "/"),
    ("GET", "/static/main.js"),
    ("GET", "/colours.css"),
    ("GET", "/vega.js"),
    ("GET", "/api/pool"),
    ("POST", "/api/answer"),
    ("POST", "/api/frontier"),
    ("POST", "/api/search"),
    ("POST", "/api/forecast"),
    ("GET", "/download/selection.json"),
    ("GET", "/download/report.html"),
]


class Script:
    """Stands in for the bundle of charts, which takes seconds to make."""

    def bundle(self) -> bytes:
        return b"window.vegaEmbed = 1"


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """The smallest client of an ASGI application."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def ask(self, method: str, path: str, **more: Any) -> Answer:
        return asyncio.run(self.request(method, path, **more))

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        query: str = "",
    ) -> Answer:
        sent: dict[str, Any] = {"body": b""}
        given = {"host": f"127.0.0.1:{PORT}", "content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items() if v],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                sent["headers"] = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                sent["body"] += message.get("body", b"")

        await self.app(scope, receive, send)
        return Answer(sent["status"], sent["headers"], sent["body"])

    def known(self, method: str, path: str, **more: Any) -> Answer:
        return self.ask(method, f"/{TOKEN}{path}", **more)


@pytest.fixture(scope="module")
def browser(session: Session) -> Browser:
    return Browser(application(session, token=TOKEN, port=PORT, vega=Script()))  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "..", "%00", "é"])
def test_wrong_token_gets_nothing(browser: Browser, method: str, path: str, token: str) -> None:
    answer = browser.ask(method, f"/{token}{path}" if token else path, body=GOOD)
    assert answer.status == 403
    assert TOKEN.encode() not in answer.body
    assert b"fedwise explore" in answer.body


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
        {"host": f"evil.example:{PORT}"},
        {"host": "127.0.0.1"},
        {"host": f"127.0.0.1:{PORT + 1}"},
        {"host": ""},
    ],
)
def test_other_origins_and_rebound_names_get_nothing(
    browser: Browser, method: str, path: str, headers: dict[str, str]
) -> None:
    assert browser.known(method, path, body=GOOD, headers=headers).status == 403


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_answer_is_locked_down(browser: Browser, method: str, path: str) -> None:
    query = "q=" + GOOD.decode().replace(" ", "") if "download" in path else ""
    answer = browser.known(
        method, path, body=GOOD, query=query, headers={"origin": f"http://127.0.0.1:{PORT}"}
    )
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_another_site_may_show_the_page_but_not_frame_or_fetch_it(browser: Browser) -> None:
    tab = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert browser.known("GET", "/", headers=tab).status == 200
    assert browser.ask("GET", "/wrong/", headers=tab).status == 403
    for change in (
        {"sec-fetch-dest": "iframe"},
        {"sec-fetch-dest": "embed"},
        {"sec-fetch-mode": "no-cors"},
        {"sec-fetch-mode": "cors"},
        {"origin": "null"},
        {"host": "evil.example"},
    ):
        assert browser.known("GET", "/", headers={**tab, **change}).status == 403, change
    for method, path in ROUTES:
        if path != "/":
            assert browser.known(method, path, body=GOOD, headers=tab).status == 403, path


def test_localhost_and_same_origin_pass(browser: Browser) -> None:
    host = f"localhost:{PORT}"
    headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    assert browser.known("POST", "/api/answer", body=GOOD, headers=headers).status == 200


def test_the_closing_slash_is_added(browser: Browser) -> None:
    answer = browser.ask("GET", f"/{TOKEN}")
    assert (answer.status, answer.headers["location"]) == (307, f"/{TOKEN}/")


@pytest.mark.parametrize(
    "name",
    ["../server.py", "..%2fserver.py", "nothing.js", "index.html/../main.js", ".hidden", "main.js\x00"],
)
def test_only_the_pages_own_files(browser: Browser, name: str) -> None:
    answer = browser.known("GET", f"/static/{name}")
    assert answer.status in (404, 403)
    assert b"import" not in answer.body


def test_page_has_no_inline_script_or_foreign_address(browser: Browser) -> None:
    import re

    page = browser.known("GET", "/").body.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\bon\w+=", page) == []
    assert "style=" not in page
    assert "://" not in page
    assert browser.known("GET", "/vega.js").body == Script().bundle()


def test_an_answer_is_json(browser: Browser) -> None:
    found = browser.known("POST", "/api/answer", body=GOOD).json
    assert len(found["clients"]) == 3
    assert found["spec"]["data"]["name"] == "rows"
    assert found["command"].startswith("fedwise select releases/ -k 3")


def test_downloads_are_files(browser: Browser) -> None:
    query = "q=" + GOOD.decode().replace(" ", "")
    selection = browser.known("GET", "/download/selection.json", query=query)
    assert selection.headers["content-disposition"] == 'attachment; filename="selection.json"'
    assert selection.json["format"] == "fedwise/selection/1"
    report = browser.known("GET", "/download/report.html", query=query)
    assert "attachment" in report.headers["content-disposition"]


@pytest.mark.parametrize("path", ["/api/answer", "/api/frontier", "/api/search", "/api/forecast"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"k": 99, "weights": {}}', b"\xff\xfe"])
def test_bad_questions_get_a_sentence(browser: Browser, path: str, body: bytes) -> None:
    answer = browser.known("POST", path, body=body)
    assert answer.status == 200  # an error status would be a line in the browser's console
    assert answer.json.keys() == {"error"}
    assert answer.json["error"]
    assert "Traceback" not in answer.json["error"]


@pytest.mark.parametrize("query", ["", "q={", "q=%7B%22k%22%3A99%7D"])
def test_bad_downloads_get_a_sentence(browser: Browser, query: str) -> None:
    answer = browser.known("GET", "/download/selection.json", query=query)
    assert answer.status == 400
    assert b"question" in answer.body


def test_forms_cannot_ask(browser: Browser) -> None:
    answer = browser.known("POST", "/api/answer", body=GOOD, headers={"content-type": "text/plain"})
    assert answer.json.keys() == {"error"}


def test_huge_questions_are_cut_off(browser: Browser) -> None:
    assert "at most" in browser.known("POST", "/api/answer", body=b"x" * 2_000_000).json["error"]


def test_overtaken_questions_are_told_so(browser: Browser) -> None:
    browser.known("POST", "/api/answer", body=GOOD, query="page=p&n=9")
    fresh = GOOD.replace(b"2.0", b"2.345")
    answer = browser.known("POST", "/api/search", body=fresh, query="page=p&n=8")
    assert answer.json == {"stale": True}


def test_wrong_methods_and_paths(browser: Browser) -> None:
    assert browser.known("GET", "/api/answer").status == 405
    assert browser.known("GET", "/api/nothing").status == 404


def test_tokens_are_long_and_new() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(len(token) for token in tokens) >= 32


def test_quick_answers_do_not_wait_behind_patient_ones() -> None:
    """More full searches at once than there are threads: as many work as there are cores, and sliders still move."""
    release = threading.Event()
    lock = threading.Lock()
    working: list[int] = []

    class Busy:
        def note(self, page: str, number: int) -> None:
            pass

        def overtaken(self, page: str, number: int) -> Callable[[], bool]:
            return lambda: False

        def answer(self, question: Question) -> dict[str, Any]:
            return {"k": question.k}

        def frontier(self, question: Question, stale: Callable[[], bool]) -> dict[str, Any]:
            with lock:
                working.append(1)
            release.wait(60)
            return {}

    visitor = Browser(application(Busy(), token=TOKEN, port=PORT, vega=Script()))  # type: ignore[arg-type]

    async def crowd() -> Answer:
        patient = [
            asyncio.create_task(visitor.request("POST", f"/{TOKEN}/api/frontier", body=GOOD))
            for _ in range(60)
        ]
        try:
            while len(working) < cores():
                await asyncio.sleep(0.01)
            quick = await asyncio.wait_for(
                visitor.request("POST", f"/{TOKEN}/api/answer", body=GOOD), timeout=30
            )
            assert len(working) == cores()
        finally:
            release.set()
            await asyncio.gather(*patient)
        return quick

    assert asyncio.run(crowd()).json == {"k": 3}
    assert len(working) == 60
