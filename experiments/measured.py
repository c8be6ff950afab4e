"""Measured: trained models on the held-out rows of all clients, in processes, each kept when it is done."""

from __future__ import annotations

import hashlib
import multiprocessing as mp
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import postprocessing
from store import Store
from trained import Models, Recipe

import fedwise as fw
from fedwise.training.encoding import Rows
from fedwise.training.federation import Prepared
from fedwise.training.local import predict
from fedwise.training.metrics import best_threshold, measure_decisions, measure_scores
from fedwise.training.model import Model

#: Metrics of scores.
SCORED = ("auc", "loss", "brier", "calibration_error")
#: Metrics of decisions, each at ½, ``@rate`` and ``@best``. Gaps are of SEX where nothing is said.
DECIDED = (
    "accuracy",
    "balanced_accuracy",
    "f1",
    "positive_rate",
    "spd",
    "eod",
    "mad",
    "spd:WHITE",
    "eod:WHITE",
)
THRESHOLDS = ("", "@rate", "@best")
METRICS = (*SCORED, *(name + threshold for threshold in THRESHOLDS for name in DECIDED))
#: The attribute that gaps are of by default, and that post-processing treats.
ATTRIBUTE = "SEX"


class Job(msgspec.Struct, frozen=True):
    """One model and what is done to its decisions.

    `constraint` is empty, one of `postprocessing.CONSTRAINTS`, or ``shift`` and a number of percent.
    """

    members: tuple[str, ...]
    recipe: Recipe
    constraint: str = ""


def measure(prepared: Prepared, models: Models, job: Job) -> dict[str, float]:
    """All of `METRICS` of a model.

    Post-processed decisions are no scores: ``auc`` is that of the model below them, the other metrics of scores
    and ``@best`` are left out, the metrics without a suffix are of fairlearn's rule, and those at ``@rate``
    of the rule with the same constraint that decides yes for as many rows as there are positives. Shifted
    scores are scores, and measured as such.
    """
    model = Model.named(job.recipe.model, prepared.encoder.width)
    parameters = models.parameters(job.members, job.recipe)
    judged = prepared.held_out
    trained = Rows.concat([prepared.train[client] for client in job.members])
    scores, fitted = predict(model, parameters, judged), predict(model, parameters, trained)
    groups = dict(zip(prepared.encoder.attributes, judged.groups, strict=True))
    found = measure_scores(scores, judged.y, groups, best=best_threshold(fitted, trained.y))
    if not job.constraint:
        return _named(found)
    at = prepared.encoder.attributes.index(ATTRIBUTE)
    kept = postprocessing.thin(len(trained))
    below = fitted[kept], trained.y[kept], trained.groups[at][kept].astype(np.int64)
    here = scores, judged.groups[at].astype(np.int64)
    if job.constraint.startswith("shift"):
        share = int(job.constraint.removeprefix("shift")) / 100
        taken = (share * postprocessing.offsets(*below)).astype(np.float32)
        trained_best = best_threshold(fitted - taken[trained.groups[at]], trained.y)
        return _named(measure_scores(scores - taken[here[1]], judged.y, groups, best=trained_best))
    rule = postprocessing.fit_fairlearn(job.constraint, *below)
    after = measure_decisions(rule(*here), judged.y, groups)
    rate = float((judged.y > 0.5).mean())
    matched = measure_decisions(postprocessing.at_rate(job.constraint, below, here, rate), judged.y, groups)
    return _named(
        {"auc": found["auc"], **after, **{f"{name}@rate": value for name, value in matched.items()}}
    )


def _named(found: Mapping[str, float]) -> dict[str, float]:
    """The metrics of the table by its names; ``eod`` is ``eod:SEX``."""
    out = {}
    for name in METRICS:
        base, at, threshold = name.partition("@")
        full = base if base in found else f"{base}:{ATTRIBUTE}"
        value = found.get(full + at + threshold, found.get(name))
        if value is not None and np.isfinite(value):
            out[name] = float(value)
    return out


def measure_all(
    prepared: Prepared,
    work: Sequence[Job],
    *,
    cache: Path,
    jobs: int = 1,
    on_done: Callable[[int], None] | None = None,
) -> list[dict[str, float]]:
    """Metrics of every job in its order; a job that was measured before costs a file read.

    Parameters
    ----------
    jobs
        Processes; 1 works in this one.
    on_done
        Called with the number of jobs done.
    """
    distinct = list(dict.fromkeys(work))
    found: dict[Job, dict[str, float]] = {}
    if jobs <= 1:
        _begin(prepared, cache)
        for job in distinct:
            found[job] = _work(job)
            if on_done:
                on_done(len(found))
    else:
        pool = ProcessPoolExecutor(
            jobs, mp_context=mp.get_context("spawn"), initializer=_begin, initargs=(prepared, cache)
        )
        with pool:
            futures = {pool.submit(_work, job): job for job in distinct}
            for done in as_completed(futures):
                found[futures[done]] = done.result()
                if on_done:
                    on_done(len(found))
    return [found[job] for job in work]


_SHARED: list[tuple[Prepared, Models, Store]] = []


def _begin(prepared: Prepared, cache: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    _SHARED[:] = [(prepared, Models(cache / "models", prepared), Store(cache / "measures"))]


def _work(job: Job) -> dict[str, float]:
    prepared, models, store = _SHARED[0]
    question: dict[str, Any] = {
        "what": "measure/1",
        "model": models.key(job.members, job.recipe),
        "constraint": job.constraint,
        "code": code_digest(),
    }
    return dict(store.get(question, lambda: measure(prepared, models, job)))


@cache
def code_digest() -> str:
    """Hash of the files that turn scores into metrics: a stored measure belongs to the code that made it."""
    training = Path(fw.__file__).parent / "training"
    here = Path(__file__).parent
    files = [*(training / f"{name}.py" for name in ("metrics", "confusion", "ranking"))]
    files += [here / "postprocessing.py", here / "measured.py"]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
