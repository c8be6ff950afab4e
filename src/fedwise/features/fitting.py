"""Fitting: a codebook from public records. Private rows must not come here, and the caller has to say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError, nearest
from .codebook import Codebook, Kind
from .extractor import examples_of, extract, name_of

Floats = npt.NDArray[np.float64]

#: Public records kept in the codebook, so that another extractor is noticed.
_EXAMPLES = 4
#: Files beside which no public record lies: an owner's ledger, policy and release folder.
_PRIVATE = ("policy.toml", "budget.db", "ledger.db")


def fit(
    records: Any,
    extractor: Any = None,
    *,
    public: str,
    kind: Kind = "pca",
    components: int = 4,
    bins: int = 4,
    codes: int = 16,
    prefix: str = "feature",
    seed: int = 0,
) -> Codebook:
    """Fit a codebook on public records.

    Its centres and edges are functions of these records, and everybody sees them: fitted on private rows it would
    publish them without noise. So `public` must say which public records they are; it is kept in the codebook and
    shown with it.

    Parameters
    ----------
    records
        An array with a record in each line, or a list of texts.
    extractor
        What turns records into numbers: see `extractor.extract`. ``None`` for records that are numbers already.
    public
        Which public records these are, in words: ``"MNIST test images"``.
    kind
        ``pca``: the first `components` principal components, each in `bins` bins of equal count; ``kmeans``: the
        nearest of `codes` centres.
    seed
        Of the first centres.

    Raises
    ------
    FedwiseError
        It was not said that the records are public, or a setting is not possible.
    """
    if not isinstance(public, str) or not public.strip():
        raise FedwiseError(
            "public must say which public records these are, such as 'MNIST test images'; never fit a codebook on "
            "private rows, its centres would publish them"
        )
    if kind not in ("pca", "kmeans"):
        raise FedwiseError(f"kind must be pca or kmeans, got '{kind}'{nearest(str(kind), ('pca', 'kmeans'))}")
    for name, value, least in (("components", components, 1), ("bins", bins, 2), ("codes", codes, 2)):
        if not least <= value <= 1000:
            raise FedwiseError(f"{name} must be between {least} and 1000, got {value}")
    numbers = extract(extractor, records)
    if len(numbers) < max(bins, codes if kind == "kmeans" else 2):
        raise FedwiseError(f"records must be more than the codes asked for, got {len(numbers)}; give more")
    if kind == "kmeans":
        arrays = {"centres": cluster(numbers, codes, np.random.default_rng(seed))}
    else:
        arrays = _principal(numbers, components, bins)
    examples = examples_of(records, _EXAMPLES)
    return Codebook(
        kind, arrays, public.strip(), name_of(extractor), prefix, examples, extract(extractor, examples)
    )


def refuse_private(path: Path) -> None:
    """Refuse a file that lies beside an owner's policy or ledger: what lies there is private."""
    folder = path.resolve().parent
    beside = next((name for name in _PRIVATE if (folder / name).exists()), None)
    if beside is not None:
        raise FedwiseError(
            f"records '{path}' must be public, but they lie beside '{beside}' of a data owner; fit the codebook on "
            "public records from elsewhere"
        )


def _principal(numbers: Floats, components: int, bins: int) -> dict[str, Floats]:
    """Centre, components of largest variance, and edges at equal shares of the public records."""
    if components > numbers.shape[1]:
        raise FedwiseError(
            f"components must be at most the {numbers.shape[1]} numbers of the extractor, got {components}"
        )
    centre = numbers.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(numbers - centre, rowvar=False).reshape(len(centre), -1))
    chosen = vectors[:, ::-1][:, :components].T
    # A direction has two signs; the largest entry is made positive so that machines agree.
    largest = np.abs(chosen).argmax(axis=1)
    chosen = chosen * np.sign(chosen[np.arange(components), largest])[:, None]
    scores = (numbers - centre) @ chosen.T
    edges = np.quantile(scores, np.arange(1, bins) / bins, axis=0).T
    return {
        "centre": centre,
        "components": np.ascontiguousarray(chosen),
        "edges": np.ascontiguousarray(edges),
    }


def cluster(numbers: Floats, codes: int, rng: np.random.Generator, *, passes: int = 50) -> Floats:
    """Centres by k-means (Lloyd), started by k-means++ (Arthur and Vassilvitskii 2007). Shape (codes, numbers)."""
    centres: Floats = numbers[rng.integers(len(numbers))][None]
    nearest_square = ((numbers - centres[0]) ** 2).sum(axis=1)
    while len(centres) < codes:
        total = nearest_square.sum()
        chance = nearest_square / total if total > 0 else None
        fresh = numbers[rng.choice(len(numbers), p=chance)]
        centres = np.concatenate([centres, fresh[None]])
        nearest_square = np.minimum(nearest_square, ((numbers - fresh) ** 2).sum(axis=1))
    for _ in range(passes):
        distance = (centres**2).sum(axis=1) - 2 * numbers @ centres.T
        member = distance.argmin(axis=1)
        size = np.bincount(member, minlength=codes)
        sums = np.zeros_like(centres)
        np.add.at(sums, member, numbers)
        moved = np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], centres)
        if np.allclose(moved, centres):
            break
        centres = moved
    return centres
