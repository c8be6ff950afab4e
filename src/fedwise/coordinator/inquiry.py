"""Inquiry: one plan sent to nodes, their answers collected; who connects or comes back meanwhile is asked too."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from ..errors import FedwiseError
from ..owner import envelope
from ..owner.score import Score
from ..planning import Plan
from .answers import Sorted, sort_answers
from .channel import Channel, Failure, Node, order
from .exchange import Exchange

#: Seconds a node whose request was lost has to come back.
_RETURN = 20.0
#: Seconds between two lines of the log while nodes are waited for.
_NEWS = 10.0


@dataclass(frozen=True)
class Waiting:
    """How long, and for whom, a coordinator waits.

    Parameters
    ----------
    timeout
        Seconds for everything.
    grace
        Seconds to wait for stragglers after the last answer, once `enough` have answered. Default: all of
        `timeout`.
    enough
        Answers after which `grace` runs.
    expected
        Wait for this many nodes to connect.
    poll
        Seconds between looks.
    log
        Where news go; an adapter gives its engine's.
    """

    timeout: float = 600.0
    grace: float | None = None
    enough: int = 1
    expected: int = 1
    poll: float = 1.0
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("fedwise"))

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise FedwiseError(f"timeout must be above 0 seconds, got {self.timeout}")


def inquire(
    channel: Channel[Any],
    plan: Plan,
    waiting: Waiting,
    *,
    only: Collection[Node] | None = None,
    skip: Collection[Node] = (),
    accept_flagged: bool = False,
    stage: int = 1,
    score: Score | None = None,
) -> Sorted:
    """Send a plan and sort what comes back.

    Parameters
    ----------
    channel
        The engine.
    plan
        The public request.
    waiting
        How long, and for whom.
    only
        Nodes to ask: nobody else gets a message. Default: everyone who is or comes online. A second stage asks
        its shortlist this way.
    skip
        Nodes that are not asked, such as those whose answer is there already.
    accept_flagged
        Keep releases that fail the screen.
    stage
        Which stage of the plan is asked.
    score
        What a stage that asks for a score scores by.
    """
    exchange = _collect(
        channel, envelope.request(plan.encode(), stage=stage, score=score), waiting, only=only, skip=set(skip)
    )
    replies: dict[Node, bytes | Failure] = {
        node: channel.read(reply) for node, reply in exchange.answers.items()
    }
    return sort_answers(
        exchange.asked, replies, plan, accept_flagged=accept_flagged, stage=stage, score=score
    )


def _collect(
    channel: Channel[Any],
    request: bytes,
    waiting: Waiting,
    *,
    only: Collection[Node] | None,
    skip: set[Node],
) -> Exchange[Any]:
    """Ask every node, also those that connect or come back while we wait.

    The request lives no longer than the timeout, so no node answers it much later. A node that was restarted
    may have been listed before it was back: its request is lost, and sent again. Asking twice is safe, as
    a node keeps its answer and never draws a second one for a plan.
    """
    exchange: Exchange[Any] = Exchange(channel, timeout=waiting.timeout, grace=waiting.grace)
    patience = _RETURN if waiting.grace is None else min(waiting.grace, _RETURN)
    expected = waiting.expected if only is None else len(set(only) - skip)
    told = time.monotonic()
    while True:
        online = set(channel.online()) - skip
        if only is not None:
            online &= set(only)
        exchange.forget(exchange.lost & online)
        fresh = sorted(online - exchange.asked, key=order)
        if fresh and exchange.left > 0:
            exchange.sent(channel.ask(fresh, request, seconds=max(exchange.left, 1.0)))
        exchange.pull()
        over = exchange.over(enough=waiting.enough) and not (exchange.lost and exchange.quiet < patience)
        if exchange.left <= 0 or (over and len(exchange.asked) >= expected):
            return exchange
        if time.monotonic() - told >= _NEWS:
            told = time.monotonic()
            _tell(exchange, waiting, expected, connected=len(online))
        exchange.sleep(waiting.poll)


def _tell(exchange: Exchange[Any], waiting: Waiting, expected: int, *, connected: int) -> None:
    """A line of the log on what is missing."""
    answered, asked = len(exchange.answers), len(exchange.asked)
    if asked < expected:
        waiting.log.info(
            "fedwise: waiting for nodes: %d of %d connected, %d answered, %.0f s left; start more nodes or set "
            "expected=%d",
            connected, expected, answered, exchange.left, max(connected, 1),
        )  # fmt: skip
    else:
        waiting.log.info(
            "fedwise: waiting for answers: %d of %d nodes answered, %.0f s left",
            answered,
            asked,
            exchange.left,
        )
