"""Audit of releases end to end: data with and without canaries goes through `fedwise.release`, as owners use it.

Every trial is a whole release of rows that were drawn once, with some of the canaries added: each is in half of
the releases, drawn for each anew. The attacker who asks about one canary knows all other rows. Its best score is
the matched filter (`audit.py`), here scaled to unit noise: N(0, 1) without the canary, N(gμ, 1) with g copies of it.

The risk 1 − confidence is shared by six statistical checks (μ, ε, and four on the noise): an honest release is
called broken with this probability at most. The other checks are exact.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import CheckFailed, ReleaseError
from ..owner.answer import answer
from ..owner.archive import Archive
from ..owner.ledger import Ledger
from ..owner.release import Release, release
from ..planning import Plan
from ..planning import plan as make_plan
from ..privacy.scales import gaussian_epsilon
from .canaries import Canary, cells_of, choose
from .gaussian import mu_bound, mu_bound_of_auc, separation, smallest_detectable
from .outcome import Audit, Check, Mode, Roc
from .rates import auc, auc_theory, epsilon_lower_bound, tpr_at, tpr_theory
from .residuals import COARSE, Found, Residuals

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: `fedwise.release`, or something broken in its place.
Door = Callable[..., Release]

#: Rows that the canaries are added to: the promise is for any rows, and few are fast.
ROWS = 500
#: Two owners with the same rows: their noise must differ too.
CLIENTS = ("audit one", "audit two")
#: Checks that share the risk of a false alarm.
STATISTICAL = 6


@dataclass(frozen=True)
class Trials:
    """Releases of an audit.

    Parameters
    ----------
    present
        Which canaries were in, shape (canaries, releases).
    noise
        Released minus true counts, shape (releases, cells).
    alike
        Whether the files tell nothing but their counts apart.
    """

    canaries: list[Canary]
    present: npt.NDArray[np.bool_]
    noise: Ints
    alike: bool
    seconds: float

    def scores(self, number: int, sigmas: Floats) -> tuple[Floats, Floats]:
        """Scores of one canary, in the releases with and without it."""
        canary = self.canaries[number]
        weights = sigmas**-2.0
        mu = math.sqrt(float(weights.sum()))
        filtered = self.noise[:, canary.cells] @ weights / mu + canary.copies * mu * self.present[number]
        return filtered[self.present[number]], filtered[~self.present[number]]


def audit_releases(
    plan: Plan,
    rows: pl.DataFrame,
    *,
    trials: int,
    seed: int,
    confidence: float,
    door: Door = release,
) -> Audit:
    """Attack 2·`trials` releases, half of them with each canary.

    Parameters
    ----------
    plan, rows
        The request, and rows of its schema; at most `ROWS` of them are drawn.
    seed
        Draws rows, canaries and in which releases they are. The noise has no seed.
    confidence
        An honest release passes with at least this probability.
    door
        What answers a plan; a test puts a broken one here and must see it caught.

    Raises
    ------
    CheckFailed
        A release does not have the tables of its plan.
    """
    rng = np.random.default_rng(seed)
    if rows.height > ROWS:
        rows = rows[np.sort(rng.choice(rows.height, ROWS, replace=False))]
    canaries = choose(plan, rows, rng)
    run = _run(plan, rows, canaries, trials, rng, door)
    residuals = Residuals(plan, run.noise, run.present)
    share = (1 - confidence) / STATISTICAL
    modes = _modes(plan, run, share, trials)
    worst = max(modes, key=lambda mode: mode.mu_lower_bound)
    bound = max(mode.epsilon_lower_bound or 0.0 for mode in modes)
    checks = [
        _judge_mu(plan, worst),
        _judge_epsilon(plan, bound),
        *_judge_noise(residuals, share, rng),
        _counting(plan, rows, canaries, door),
        _files(run),
        _kept(plan, rows, canaries),
    ]
    inside, outside = run.scores(0, plan.sigmas)
    area, error = auc(inside, outside)
    mu = np.array([math.sqrt(float(np.sum(plan.sigmas**-2.0)))])
    return Audit(
        attack="release",
        epsilon=plan.promise_epsilon,
        delta=plan.delta,
        trials=trials,
        auc=area,
        auc_std_error=error,
        auc_theory=auc_theory(mu),
        tpr_at_1_percent=float(tpr_at(inside, outside, np.array([0.01]))[0]),
        tpr_theory=tpr_theory(mu, 0.01),
        epsilon_lower_bound=bound,
        confidence=confidence,
        least_noise=residuals.least_variance(),
        ok=all(check.verdict != "BROKEN" for check in checks),
        roc=Roc.of(inside, outside, mu),
        mu_promised=plan.mu,
        mu_lower_bound=worst.mu_lower_bound,
        epsilon_of_mu=gaussian_epsilon(worst.mu_lower_bound, plan.delta),
        smallest_detectable=min(
            (m.smallest_detectable for m in modes if m.smallest_detectable), default=None
        ),
        worst_mode=worst.name,
        modes=modes,
        checks=checks,
        rows=rows.height,
        releases=len(run.noise),
        findings=[check.says for check in checks if check.verdict == "BROKEN"],
        releases_per_second=len(run.noise) / max(run.seconds, 1e-9),
    )


def _run(
    plan: Plan, rows: pl.DataFrame, canaries: list[Canary], trials: int, rng: np.random.Generator, door: Door
) -> Trials:
    """All releases, and what is left of them without the true counts, which are counted here once more."""
    layout = plan.layout
    base = np.bincount(cells_of(plan.schema.encode(rows), layout).ravel(), minlength=layout.cells)
    half = np.arange(2 * trials) < trials
    present = np.stack([rng.permutation(half) for _ in canaries])
    noise = np.empty((2 * trials, layout.cells), dtype=np.int64)
    rests: dict[str, set[bytes]] = {name: set() for name in CLIENTS}
    frames: dict[bytes, pl.DataFrame] = {}
    start = time.process_time()
    for number in range(2 * trials):
        here = present[:, number]
        if here.tobytes() not in frames:
            frames[here.tobytes()] = _with(rows, canaries, here)
        client = CLIENTS[number % 2]
        made = door(plan, frames[here.tobytes()], client=client, uncharged=True)
        truth = base.copy()
        for canary in (canaries[k] for k in np.flatnonzero(here).tolist()):
            truth[canary.cells] += canary.copies
        noise[number] = read_counts(made, plan) - truth
        rests[client].add(msgspec.json.encode(msgspec.structs.replace(made, tables=())))
    seconds = time.process_time() - start
    return Trials(canaries, present, noise, all(len(seen) == 1 for seen in rests.values()), seconds)


def _with(rows: pl.DataFrame, canaries: Sequence[Canary], present: npt.NDArray[np.bool_]) -> pl.DataFrame:
    return pl.concat([rows, *(canaries[k].rows for k in np.flatnonzero(present).tolist())])


def read_counts(made: Release, plan: Plan) -> Ints:
    """Counts of a release, which must have the tables its plan asks for."""
    try:
        made.verify()
    except ReleaseError as error:
        raise CheckFailed(
            f"the audit stopped: a release does not fit its plan ({error}); do not release with this build"
        ) from None
    if made.plan_digest != plan.digest:
        raise CheckFailed("the audit stopped: a release answers another plan; do not release with this build")
    return np.asarray(made.counts)


def _modes(plan: Plan, run: Trials, share: float, trials: int) -> list[Mode]:
    """What each canary showed; the risk of a bound is shared by the canaries."""
    risk = share / len(run.canaries)
    mu = math.sqrt(float(np.sum(plan.sigmas**-2.0)))
    normal = float(plan.sigmas.min()) >= COARSE
    modes = []
    for number, canary in enumerate(run.canaries):
        inside, outside = run.scores(number, plan.sigmas)
        area, _ = auc(inside, outside)
        copies = canary.copies
        of_auc = mu_bound_of_auc(inside, outside, risk, copies=copies)
        modes.append(
            Mode(
                name=canary.name,
                copies=copies,
                auc=area,
                auc_theory=auc_theory(np.array([copies * mu])),
                mu=separation(inside, outside) / copies,
                mu_lower_bound=mu_bound(inside, outside, risk, copies=copies) if normal else of_auc,
                mu_lower_bound_auc=of_auc,
                epsilon_lower_bound=epsilon_lower_bound(
                    inside, outside, delta=plan.delta, confidence=1 - risk
                )
                if copies == 1
                else None,
                smallest_detectable=smallest_detectable(
                    mu, plan.mu, inside=trials, outside=trials, risk=risk, copies=copies
                )
                if normal
                else None,
            )
        )
    return modes


def _judge_mu(plan: Plan, worst: Mode) -> Check:
    broken = worst.mu_lower_bound > plan.mu
    says = (
        f"a record shows mu of at least {worst.mu_lower_bound:.3g} (canary '{worst.name}'), the plan promises "
        f"{plan.mu:.3g} at most"
    )
    return Check("mu", "BROKEN" if broken else "holds", says)


def _judge_epsilon(plan: Plan, bound: float) -> Check:
    says = (
        f"epsilon is at least {bound:.3g} without any assumption, the plan promises {plan.epsilon:g} at most"
    )
    return Check("epsilon", "BROKEN" if bound > plan.epsilon else "holds", says)


def _judge_noise(residuals: Residuals, share: float, rng: np.random.Generator) -> list[Check]:
    """The four checks of the noise; none where the noise is too coarse for them."""
    fine = {
        "noise": "every table, cell and total carries the planned noise",
        "shift": "counts are right on average, with and without each canary",
        "distribution": "the noise is the discrete Gaussian",
        "independence": "no two releases and no two cells share noise",
    }
    if not residuals.tables:
        says = "the noise is nearly always 0 at this promise; the tests need a standard deviation of 0.8"
        return [Check(name, "not checked", says) for name in fine]
    found: dict[str, Found] = {
        "noise": residuals.too_little(),
        "shift": residuals.shifts(),
        "distribution": residuals.shape(),
        "independence": residuals.dependence(rng),
    }
    return [
        Check(name, "BROKEN", found[name].says, found[name].p_value)
        if found[name].p_value < share
        else Check(name, "holds", says, found[name].p_value)
        for name, says in fine.items()
    ]


def _counting(plan: Plan, rows: pl.DataFrame, canaries: Sequence[Canary], door: Door) -> Check:
    """The same door without noise: a canary must add its copies to one cell of each table, and nothing else."""
    exact = make_plan(plan.schema, math.inf, delta=plan.delta, weights=plan.weights)
    base = np.bincount(cells_of(plan.schema.encode(rows), exact.layout).ravel(), minlength=exact.layout.cells)
    for canary in (None, *canaries):
        data = rows if canary is None else pl.concat([rows, canary.rows])
        seen = read_counts(door(exact, data, client=CLIENTS[0], no_privacy=True), exact)
        truth = base.copy()
        if canary is not None:
            truth[cells_of(plan.schema.encode(canary.rows[:1]), exact.layout)[:, 0]] += canary.copies
        if not np.array_equal(seen, truth):
            whom = "the rows alone" if canary is None else f"canary '{canary.name}'"
            return Check(
                "counting",
                "BROKEN",
                f"counts before noise are wrong with {whom} in {_differing(seen, truth)}",
            )
    return Check(
        "counting", "holds", "each canary adds its copies to one cell of each table, and nothing else"
    )


def _differing(seen: Ints, truth: Ints) -> str:
    return f"{int((seen != truth).sum())} cells"


def _files(run: Trials) -> Check:
    if run.alike:
        return Check("files", "holds", "files of one client differ in their counts only")
    return Check(
        "files", "BROKEN", "files differ in more than their counts: something else depends on the data"
    )


def _kept(plan: Plan, rows: pl.DataFrame, canaries: Sequence[Canary]) -> Check:
    """A plan that comes again must get the same file, at one charge, even if the rows changed."""
    with tempfile.TemporaryDirectory(prefix="fedwise-audit-") as folder:
        path = Path(folder) / "budget.db"

        def ledger() -> Ledger:
            return Ledger(path, epsilon=plan.epsilon, delta=plan.delta)

        given = [
            answer(plan, data, client=CLIENTS[0], ledger=ledger, archive=Archive(path)).release.encode()
            for data in (rows, rows, pl.concat([rows, canaries[0].rows]))
        ]
        charges = ledger().history()
    if len(set(given)) == 1 and len(charges) == 1 and math.isclose(charges[0].mu, plan.mu):
        return Check("reuse", "holds", "a plan that comes again gets the kept release, at one charge")
    return Check(
        "reuse", "BROKEN", "a plan that comes again is drawn or charged again: averages would lose noise"
    )
