"""Allowance: how many private training rounds an owner's promise still covers."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ..errors import BudgetExceeded, LedgerError
from ..files import decode, read_bytes, write_new
from ..owner.archive import Shelf
from ..owner.policy import Policy
from ..training.accounting import calibrate
from ..training.encoding import Rows
from ..training.local import ClientState, Instruction, Settings, Update
from ..training.model import Model, Vector
from ..training.private import private_update, sampling


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the noise was calibrated for. Kept beside the ledger, for the owner only."""

    epsilon: float
    delta: float
    rounds: int
    rows: int
    batch: int
    epochs: int
    clip: float


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A promise, its noise multiplier, and the rounds begun under it."""

    promise: Promise
    noise: float
    used: int = 0


@dataclass(frozen=True)
class Allowance:
    """The training promise of one data set: (ε, δ) over `rounds` local updates, over all runs together.

    The noise is calibrated for all rounds at once, so a round more would break the promise: it is
    refused, also after a restart. A round counts when it begins, before any noise is drawn.
    """

    policy: Policy

    def update(
        self,
        model: Model,
        parameters: Vector,
        rows: Rows,
        *,
        instruction: Instruction,
        client: str,
        round: int,
        state: ClientState | None = None,
    ) -> Update:
        """One private local update, counted first.

        Raises
        ------
        BudgetExceeded
            All rounds are used, or training began under another promise.
        """
        noise = self._begin(self._promise(len(rows), instruction.settings))
        return private_update(
            model,
            parameters,
            rows,
            instruction=instruction,
            client=client,
            round=round,
            noise_multiplier=noise,
            clip=self.policy.train_clip,
            state=state,
            seed=self.policy.simulated_seed,
        )

    def _promise(self, rows: int, settings: Settings) -> Promise:
        policy = self.policy
        assert policy.train_epsilon is not None  # the caller checked
        return Promise(
            epsilon=policy.train_epsilon,
            delta=policy.train_delta,
            rounds=policy.train_rounds,
            rows=rows,
            batch=settings.batch,
            epochs=settings.epochs,
            clip=policy.train_clip,
        )

    def _begin(self, promise: Promise) -> float:
        """Count one more round and return its noise multiplier."""
        if self.policy.ledger is None:
            return _calibrated(promise)
        shelf = Shelf(self.policy.ledger)
        path = shelf.directory / "training.json"
        with shelf.locked():
            if path.exists():
                data = read_bytes(path, what="training record", error=LedgerError)
                account = decode(data, Account, what=f"training record '{path}'", error=LedgerError)
                if account.promise != promise:
                    raise BudgetExceeded(
                        "training began under another promise, on other rows or with other settings; two promises "
                        "add up, so this one is refused"
                    )
            else:
                # The accountant takes seconds; every later round finds the number in the file.
                account = Account(promise, _calibrated(promise))
            if account.used >= promise.rounds:
                raise BudgetExceeded(
                    f"training promise covers {promise.rounds} rounds and all are used; one more would break it"
                )
            account = msgspec.structs.replace(account, used=account.used + 1)
            write_new(path, msgspec.json.encode(account), force=True, error=LedgerError)
        return account.noise


def _calibrated(promise: Promise) -> float:
    rate, steps = sampling(promise.rows, promise.batch, promise.epochs)
    return calibrate(promise.epsilon, promise.delta, rate, steps * promise.rounds)
