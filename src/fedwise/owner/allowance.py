"""Allowance: how much training an owner still allows, and the noise each round of it must carry."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from ..errors import FedwiseError, LedgerError
from ..files import decode, discard, read_bytes
from ..privacy.subsampled import Steps, sampling, scale_noise
from .entries import Trained
from .ledger import Ledger, kept_folder
from .policy import Policy

#: Most steps of one round: a node must come to an end.
MOST_STEPS = 100_000


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the noise was chosen for: (ε, δ) over `rounds` rounds of `epochs` passes in batches of `batch`."""

    epsilon: float
    delta: float
    rounds: int
    batch: int
    epochs: int
    clip: float


@dataclass(frozen=True)
class Allowance:
    """The training promise of one data set: (ε, δ) over `train_rounds` rounds, over all runs together.

    The noise is set for all rounds at once, so a round more would break the promise: it is refused, also
    after a restart. A round is charged to the owner's ledger when it begins, before rows are read or noise
    is drawn.
    """

    policy: Policy

    def begin(self, *, batch: int, epochs: int, population: float) -> Steps:
        """Charge one more round and return what it does: noise over clip, sampling rate, steps.

        Parameters
        ----------
        batch, epochs
            As the coordinator asks.
        population
            Number of records to expect, from the release or the policy: public, never an exact count. The first
            round decides; a release made later changes nothing.

        Raises
        ------
        BudgetExceeded
            All rounds are used, training began under another promise, or the ledger has too little left.
        """
        policy = self.policy
        assert policy.train_epsilon is not None  # the caller checked
        if not (0 < batch <= 10**9 and 0 < epochs <= 10**4):
            raise FedwiseError(
                "training must be asked with a positive batch and number of epochs, within reason"
            )
        promise = Promise(
            policy.train_epsilon, policy.train_delta, policy.train_rounds, batch, epochs, policy.train_clip
        )
        if policy.ledger is None:
            return _steps(promise, population)
        ledger = policy.open_ledger()
        text = msgspec.json.encode(promise).decode()
        _take_over(ledger, policy.client, promise, text)
        before = [line for line in ledger.training() if line.promise == text]
        steps = _recorded(before[0]) if before else _steps(promise, population)
        ledger.charge_round(
            steps,
            client=policy.client,
            promise=text,
            limit=promise.rounds,
            epsilon=promise.epsilon,
            delta=promise.delta,
        )
        return steps


def _steps(promise: Promise, population: float) -> Steps:
    rate, steps = sampling(max(1.0, population), promise.batch, promise.epochs)
    if steps > MOST_STEPS:
        raise FedwiseError(
            f"training must take at most {MOST_STEPS} steps in a round; ask for a larger batch"
        )
    return Steps(scale_noise(promise.epsilon, promise.delta, rate, steps * promise.rounds), rate, steps)


def _recorded(line: Trained) -> Steps:
    return Steps(line.noise, line.rate, line.steps)


class _Old(msgspec.Struct, frozen=True):
    """``training.json`` of 0.1.0, which counted rounds outside the ledger and held the exact number of rows."""

    promise: dict[str, float]
    noise: float
    used: int


def _take_over(ledger: Ledger, client: str, promise: Promise, text: str) -> None:
    """Charge rounds that 0.1.0 counted in a file of its own, then remove that file."""
    path = kept_folder(ledger.path) / "training.json"
    if not path.exists():
        return
    data = read_bytes(path, what="training record", error=LedgerError)
    old = decode(data, _Old, what=f"training record '{path}'", error=LedgerError)
    wanted = msgspec.to_builtins(promise)
    same = all(old.promise.get(key) == value for key, value in wanted.items())
    rate, steps = sampling(old.promise["rows"], int(old.promise["batch"]), int(old.promise["epochs"]))
    # Two digits, rounded up: the ledger must not keep the exact number of rows that the rate would tell.
    digits = 10.0 ** (math.floor(math.log10(rate)) - 1)
    rate = min(1.0, math.ceil(rate / digits) * digits)
    done = sum(line.kind == "private round" for line in ledger.training())
    for _ in range(done, old.used):
        ledger.charge_round(
            Steps(old.noise, rate, steps),
            client=client,
            promise=text if same else msgspec.json.encode(old.promise).decode(),
            limit=old.used,
            epsilon=promise.epsilon,
            delta=promise.delta,
        )
    discard(path)
