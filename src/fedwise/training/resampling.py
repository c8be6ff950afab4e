"""Resampling: bootstrap replicates of every metric, without touching the rows more than once.

Resampling rows and counting cells is a multinomial draw of the counts, so each metric of counts is drawn
exactly. Mean loss and Brier score are resampled as they are up to `EXACT_ROWS` rows and by their normal limit
above; AUC likewise by distinct scores, or by `SCORE_BINS` groups of neighbouring ones; the rate-matched metrics
by at most `MATCHED_BINS` such groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .confusion import confusion, fairness, overall
from .encoding import Rows
from .local import log_losses
from .model import Vector
from .ranking import Ranking, auc, decide, probability

Floats = npt.NDArray[np.float64]
Draws = dict[tuple[str, str], Floats]

#: Up to this many rows the bootstrap resamples losses and distinct scores as they are.
EXACT_ROWS = 20_000
#: Groups of neighbouring scores for AUC above that.
SCORE_BINS = 2_048
#: Groups of neighbouring scores for the rate-matched metrics; within one, yes is shared evenly.
MATCHED_BINS = 256


def resample(
    logits: Vector,
    rows: Rows,
    attributes: Sequence[str],
    *,
    replicates: int,
    rng: np.random.Generator,
    best: float | None = None,
) -> Draws:
    """Replicates of every metric of `metrics.evaluate` but the calibration error, by metric and attribute."""
    out: Draws = {}
    _at_threshold(out, "", logits > 0, rows, attributes, replicates, rng)
    out["loss", ""] = _means(log_losses(logits, rows.y), replicates, rng)
    ranking = Ranking.of(logits, rows.y > 0.5)
    down, up, exact = ranking.down, ranking.up, ranking.auc()
    if len(up) > SCORE_BINS and len(rows) > EXACT_ROWS:
        edges = np.linspace(0, len(up), SCORE_BINS, endpoint=False).astype(np.int64)
        down, up = np.add.reduceat(down, edges), np.add.reduceat(up, edges)
    pairs = _draw(np.stack([down, up]), replicates, rng)
    out["auc", ""] = auc(pairs[:, 0], pairs[:, 1]) + (exact - float(auc(down, up)))
    out["brier", ""] = _means((probability(logits) - rows.y) ** 2, replicates, rng)
    _rate_matched(out, logits, ranking, rows, attributes, replicates, rng)
    if best is not None and not math.isnan(best):
        _at_threshold(out, "@best", decide(logits, best), rows, attributes, replicates, rng)
    return out


def _draw(counts: Floats, replicates: int, rng: np.random.Generator) -> Floats:
    count = round(float(counts.sum()))
    flat = rng.multinomial(count, counts.ravel() / count, size=replicates).astype(np.float64)
    return flat.reshape(replicates, *counts.shape)


def _means(values: Floats, replicates: int, rng: np.random.Generator) -> Floats:
    """Means of resampled values."""
    count = len(values)
    if count > EXACT_ROWS:
        return rng.normal(values.mean(), values.std() / math.sqrt(count), size=replicates)
    return np.array([values[rng.integers(count, size=count)].mean() for _ in range(replicates)])


def _at_threshold(
    out: Draws,
    suffix: str,
    decided: npt.NDArray[np.bool_],
    rows: Rows,
    attributes: Sequence[str],
    replicates: int,
    rng: np.random.Generator,
) -> None:
    """Metrics of decisions at a fixed threshold."""
    whole = confusion(rows.y, decided, np.zeros(len(rows), dtype=np.int64))[0]
    _collect(out, suffix, "", [overall(one) for one in _draw(whole, replicates, rng)])
    for i, attribute in enumerate(attributes):
        counts = confusion(rows.y, decided, rows.groups[i])
        _collect(out, suffix, attribute, [fairness(one) for one in _draw(counts, replicates, rng)])


def _rate_matched(
    out: Draws,
    logits: Vector,
    ranking: Ranking,
    rows: Rows,
    attributes: Sequence[str],
    replicates: int,
    rng: np.random.Generator,
) -> None:
    """Metrics at the rate-matched threshold, found again in every replicate."""
    distinct = len(ranking.scores)
    bins = min(distinct, MATCHED_BINS)
    first = np.linspace(0, distinct, bins, endpoint=False).astype(np.int64)
    # Few distinct scores are their own bins; many are joined, and the difference that makes is taken out.
    at = np.searchsorted(ranking.scores[first], logits.astype(np.float64), side="right") - 1
    exact = decide(logits, *ranking.matched())
    everyone = np.zeros(len(rows), dtype=np.int64)
    for attribute, group in [("", everyone), *zip(attributes, rows.groups, strict=True)]:
        counts = _by_bin(at, group, rows.y, bins)
        drawn = _matched(_draw(counts, replicates, rng))
        measure = fairness if attribute else lambda one: overall(one[0])
        shift = {
            name: value - measure(_matched(counts[None])[0])[name]
            for name, value in measure(confusion(rows.y, exact, group)).items()
        }
        found = [{name: v + shift[name] for name, v in measure(one).items()} for one in drawn]
        _collect(out, "@rate", attribute, found)


def _by_bin(at: npt.NDArray[Any], group: npt.NDArray[Any], y: npt.NDArray[Any], bins: int) -> Floats:
    """Rows by bin of score, group and target."""
    groups = int(group.max(initial=0)) + 1
    cell = (at * groups + group.astype(np.int64)) * 2 + (y > 0.5)
    return np.bincount(cell, minlength=bins * groups * 2).astype(np.float64).reshape(bins, groups, 2)


def _matched(counts: Floats) -> Floats:
    """Expected counts by group, target and decision when as many are decided yes as there are positives.

    Shape (batch, bins, groups, 2) to (batch, groups, 2, 2); bins by increasing score.
    """
    size = counts.sum(axis=(2, 3))
    wanted = counts[..., 1].sum(axis=(1, 2))
    above = np.cumsum(size[:, ::-1], axis=1)[:, ::-1] - size
    share = np.clip((wanted[:, None] - above) / np.maximum(size, 1.0), 0.0, 1.0)
    yes = np.einsum("rb,rbgy->rgy", share, counts)
    return np.stack([counts.sum(axis=1) - yes, yes], axis=-1)


def _collect(out: Draws, suffix: str, attribute: str, drawn: list[dict[str, float]]) -> None:
    for name in drawn[0]:
        out[name + suffix, attribute] = np.array([one[name] for one in drawn])
