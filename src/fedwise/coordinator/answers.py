"""Answers: what came back from the nodes, sorted into releases to trust and nodes to leave out, with reasons."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import ReleaseError
from ..owner import envelope
from ..owner.release import Release
from ..owner.score import Score
from ..planning import Plan
from ..pool.screen import flagged
from .channel import Failure, Node, order

Kind = Literal["silent", "declined", "failed", "version", "invalid", "duplicate", "flagged"]


class Absence(NamedTuple):
    """A node whose release is not in the pool, and why. Holds no text written by the node."""

    node: Node
    client: str | None
    kind: Kind
    reason: str

    def __str__(self) -> str:
        return f"{self.client or f'node {self.node}'} ({self.kind}): {self.reason}"


class Sorted(NamedTuple):
    """Trusted releases by node, and everyone else."""

    releases: dict[Node, Release]
    absent: list[Absence]
    #: Clients whose release is of older data than their owner has now: version of the release, version now.
    stale: dict[str, tuple[int | None, int]]


def sort_answers(
    asked: Iterable[Node],
    replies: Mapping[Node, bytes | Failure],
    plan: Plan,
    *,
    accept_flagged: bool = False,
    stage: int = 1,
    score: Score | None = None,
) -> Sorted:
    """Read every reply, and leave out what cannot be trusted.

    Parameters
    ----------
    asked
        All nodes.
    replies
        The replies that came, by node.
    plan
        The plan that was asked; a release must answer exactly this one, an earlier edition of it, or the same tables
        under a smaller promise where its owner allows less.
    accept_flagged
        Keep releases that fail the screen.
    stage
        The stage of the plan that was asked.
    score
        What that stage scores by.
    """
    releases: dict[Node, Release] = {}
    absent: list[Absence] = []
    current: dict[Node, int] = {}
    for node in sorted(asked, key=order):
        found = _read(node, replies.get(node), plan, current)
        if isinstance(found, Release) and found.number != stage:
            found = Absence(node, found.client, "invalid", "its release answers another stage of the plan")
        if isinstance(found, Release) and found.scored and (score is None or found.score != score.digest):
            found = Absence(node, found.client, "invalid", "its release answers another score")
        if isinstance(found, Absence):
            absent.append(found)
        else:
            releases[node] = found
    absent += _drop_doubles(releases)
    if releases and not accept_flagged and score is None:  # one number each: there is nothing to screen
        absent += _drop_flagged(releases, plan)
    stale = {
        releases[node].client: (releases[node].version, now)
        for node, now in current.items()
        if node in releases and (releases[node].version is None or (releases[node].version or 0) < now)
    }
    return Sorted(releases, sorted(absent, key=lambda absence: order(absence.node)), stale)


def _read(
    node: Node, reply: bytes | Failure | None, plan: Plan, current: dict[Node, int]
) -> Release | Absence:
    """A node's release, or why there is none; the version of its data now is noted in `current`."""
    if reply is None:
        return Absence(node, None, "silent", "no answer in time")
    if isinstance(reply, Failure):
        return Absence(node, None, "failed", reply.reason)
    answer = envelope.read_answer(reply)
    if answer is None:
        return Absence(node, None, "version", "it speaks another version of fedwise; update the node")
    if answer.refusal is not None:
        return Absence(node, answer.client, "declined", answer.refusal.sentence)
    try:
        found = Release.decode(answer.release or b"")
    except ReleaseError:
        # The error may quote the file, which a node wrote: it is not repeated.
        return Absence(node, None, "version", "its release cannot be read by this version of fedwise")
    except Exception:
        return Absence(node, None, "invalid", "its release does not hold together")
    # A node whose data did not change answers a later edition with the release it has.
    if not (_allows_less(found, plan) or found.plan.question == plan.question) or (
        found.plan.number > plan.number
    ):
        return Absence(node, found.client, "invalid", "its release answers another plan")
    if answer.data_version is not None:
        current[node] = answer.data_version
    return found


def _allows_less(found: Release, plan: Plan) -> bool:
    """Whether a release answers this plan's tables under a smaller promise, since its owner allows no more."""
    if isinstance(found.asked, msgspec.UnsetType) or found.asked.plan != plan.digest:
        return False
    asked = [(table.pair, table.shape) for table in plan.tables]
    return (
        found.plan.schema_digest == plan.schema_digest
        and [(table.pair, table.shape) for table in found.plan.tables] == asked
        and found.plan.private
        and found.plan.epsilon < plan.epsilon
        and found.plan.delta == plan.delta
    )


def _drop_doubles(releases: dict[Node, Release]) -> list[Absence]:
    """Keep one node for each client, and one client for each set of noisy counts.

    The same release from two nodes is one client that came back under a new node id: the later id stays.
    Two different releases of one name, or one set of counts under two names, cannot be told apart from
    an impostor, so none of them stays.
    """
    absent: list[Absence] = []
    prints = {node: hashlib.sha256(found.counts.tobytes()).hexdigest() for node, found in releases.items()}
    by_client: dict[str, list[Node]] = defaultdict(list)
    by_print: dict[str, list[Node]] = defaultdict(list)
    for node, found in releases.items():
        by_client[found.client].append(node)
        by_print[prints[node]].append(node)
    for client, nodes in by_client.items():
        if len(nodes) == 1:
            continue
        same = len({prints[node] for node in nodes}) == 1
        reason = (
            "the same client answered from another node too" if same else "two nodes answer under this name"
        )
        absent += [Absence(node, client, "duplicate", reason) for node in (nodes[:-1] if same else nodes)]
    for nodes in by_print.values():
        # Scores are single numbers, which may well be equal.
        private = releases[nodes[0]].private and not releases[nodes[0]].scored
        if len({releases[node].client for node in nodes}) > 1 and private:
            reason = "its noisy counts are a copy of another client's"
            absent += [Absence(node, releases[node].client, "duplicate", reason) for node in nodes]
    once = {absence.node: absence for absence in reversed(absent)}
    for node in once:
        del releases[node]
    return list(once.values())


def _scales(releases: dict[Node, Release], nodes: list[Node]) -> npt.NDArray[np.float64]:
    """Noise of each release: that of its stage, or its owner's own."""
    return np.stack([releases[node].sigmas for node in nodes])


def _drop_flagged(releases: dict[Node, Release], plan: Plan) -> list[Absence]:
    nodes = list(releases)
    clients = [releases[node].client for node in nodes]
    flags = flagged(
        clients, np.stack([releases[node].counts for node in nodes]), plan, _scales(releases, nodes)
    )
    at = dict(zip(clients, nodes, strict=True))
    for flag in flags:
        del releases[at[flag.client]]
    return [Absence(at[flag.client], flag.client, "flagged", flag.reason) for flag in flags]
