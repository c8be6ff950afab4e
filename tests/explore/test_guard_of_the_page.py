"""The explorer's guard and what is no request of HTTP: start and end of the server pass, sockets do not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the explore extra")

from fedwise.explore.guard import Guard


@pytest.mark.parametrize(("kind", "passed"), [("lifespan", True), ("websocket", False)])
def test_only_the_servers_own_messages_pass_without_a_token(kind: str, passed: bool) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    async def never(*_: object) -> None:
        raise AssertionError("the guard neither reads nor answers")

    guard = Guard(app, token="t", hosts=frozenset({"127.0.0.1:1"}))
    asyncio.run(guard({"type": kind, "path": "/t/", "headers": []}, never, never))  # type: ignore[arg-type]
    assert seen == ([kind] if passed else [])
