"""Codebook: the public rule from an extractor's numbers to codes, bound by a digest.

One safetensors file: the arrays, and everything else as JSON in its header. Nothing in it is executed. A few of the
public records it was fitted on are kept with what the extractor made of them, so another extractor is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import FedwiseError, MissingExtra
from ..files import read_bytes, write_new
from ..schema.mark import CODEBOOK, codebook_mark
from ..schema.schema import Column, Role
from .extractor import extract

Floats = npt.NDArray[np.float64]
Kind = Literal["pca", "kmeans"]

FORMAT = "fedwise/codebook/1"
#: How far an extractor's numbers may be from those it gave when the codebook was fitted, relative to their size.
TOLERANCE = 1e-2
_ARRAYS = {"pca": ("centre", "components", "edges"), "kmeans": ("centres",)}


@dataclass(frozen=True, eq=False)
class Codebook:
    """How numbers become codes.

    Make one with `fedwise.features.fit`.

    Parameters
    ----------
    kind
        ``pca``: the number's principal components, each in bins; ``kmeans``: the nearest of some centres.
    arrays
        ``centre`` (numbers,), ``components`` (columns, numbers) and ``edges`` (columns, bins − 1); or ``centres``
        (codes, numbers).
    source
        Which public records it was fitted on, in words.
    extractor
        Name of the extractor, for people.
    prefix
        Of the columns' names.
    examples, extracted
        Some public records, and what the extractor made of them.
    """

    kind: Kind
    arrays: Mapping[str, Floats]
    source: str
    extractor: str = ""
    prefix: str = "feature"
    examples: npt.NDArray[np.float32] | list[str] = field(default_factory=list)
    extracted: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def inputs(self) -> int:
        """Numbers that the extractor must give."""
        return int(self.arrays["centres" if self.kind == "kmeans" else "components"].shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        if self.kind == "kmeans":
            return (f"{self.prefix}_code",)
        return tuple(f"{self.prefix}_{i + 1}" for i in range(len(self.arrays["components"])))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns for a schema: features with a level for each code."""
        size = len(self.arrays["centres"]) if self.kind == "kmeans" else self.arrays["edges"].shape[1] + 1
        return tuple(Column(name, Role.FEATURE, levels=tuple(range(size))) for name in self.names)

    @property
    def digest(self) -> str:
        """SHA-256 over everything it says; the schema's key ``codebook``."""
        return _digest(self._tensors(), self._notes())

    def encode(self, numbers: npt.NDArray[Any]) -> npt.NDArray[np.int16]:
        """Codes of an extractor's numbers: shape (records, numbers) to (records, columns)."""
        found = np.asarray(numbers, dtype=np.float64)
        if found.ndim != 2 or found.shape[1] != self.inputs:
            got = found.shape[1] if found.ndim == 2 else found.shape
            raise FedwiseError(
                f"extractor must give {self.inputs} numbers for each record, as codebook {self.digest[:12]} was "
                f"fitted, got {got}; use the extractor named there: {self.extractor}"
            )
        if self.kind == "kmeans":
            centres = self.arrays["centres"]
            distance = (centres**2).sum(axis=1) - 2 * found @ centres.T
            return np.asarray(distance.argmin(axis=1)[:, None], dtype=np.int16)
        scores = (found - self.arrays["centre"]) @ self.arrays["components"].T
        columns = [np.searchsorted(edges, scores[:, i]) for i, edges in enumerate(self.arrays["edges"])]
        return np.stack(columns, axis=1).astype(np.int16)

    def apply(self, records: Any, extractor: Any = None) -> pl.DataFrame:
        """The feature columns of records, with the column ``codebook`` that a release asks for.

        Raises
        ------
        FedwiseError
            The extractor gives another number of numbers, or others than it gave when the codebook was fitted.
        """
        numbers = extract(extractor, records)
        codes = self.encode(numbers)
        if len(self.examples):
            again = extract(extractor, self.examples)
            size = float(np.abs(self.extracted).max(initial=0.0)) or 1.0
            if not np.allclose(again, self.extracted, atol=TOLERANCE * size, rtol=0):
                raise FedwiseError(
                    f"extractor must be the one codebook {self.digest[:12]} was fitted with ({self.extractor}): it "
                    "gives other numbers for the codebook's own examples; use that version of it"
                )
        return pl.DataFrame(
            {
                **{name: codes[:, i] for i, name in enumerate(self.names)},
                CODEBOOK: [codebook_mark(self.digest)] * len(codes),
            }
        )

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write one safetensors file."""
        try:
            from safetensors.numpy import save
        except ImportError:
            raise MissingExtra("saving a codebook", "train") from None
        notes = {"fedwise": json.dumps({**self._notes(), "digest": self.digest}, sort_keys=True)}
        write_new(Path(path), save(self._tensors(), metadata=notes), force=force)

    @classmethod
    def load(cls, path: str | Path, *, digest: str | None = None) -> Codebook:
        """Read what `save` wrote, and refuse one that was edited, or another than `digest`.

        Raises
        ------
        FedwiseError
            The file is no codebook, was edited or damaged, or is not the one asked for.
        """
        what = f"codebook '{path}'"
        tensors, notes = _read(Path(path), what)
        told = notes.pop("digest", "")
        try:
            found = _parse(tensors, notes)
        except (KeyError, TypeError, ValueError, IndexError):
            raise FedwiseError(
                f"{what} is not a codebook of fedwise; fit one with fedwise features fit"
            ) from None
        if found.digest != told:
            raise FedwiseError(
                f"{what} does not match its digest: it was edited or damaged; ask for a new copy"
            )
        if digest is not None and found.digest != digest:
            raise FedwiseError(
                f"{what} must be the one of the plan, {digest[:12]}, got {found.digest[:12]}; ask the coordinator "
                "for its codebook"
            )
        return found

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        out: dict[str, npt.NDArray[Any]] = {
            name: np.ascontiguousarray(self.arrays[name]) for name in self.arrays
        }
        if isinstance(self.examples, np.ndarray):
            out["examples"] = np.ascontiguousarray(self.examples)
        out["extracted"] = np.ascontiguousarray(self.extracted)
        return out

    def _notes(self) -> dict[str, Any]:
        texts = self.examples if isinstance(self.examples, list) else []
        return {
            "format": FORMAT, "kind": self.kind, "source": self.source, "extractor": self.extractor,
            "prefix": self.prefix, "texts": texts, "public": True,
        }  # fmt: skip

    def __str__(self) -> str:
        sizes = ", ".join(f"{column.name} ({column.size})" for column in self.columns)
        return (
            f"codebook {self.digest[:12]}: {self.kind} of {self.inputs} numbers from {self.extractor}\n"
            f"fitted on public records: {self.source}\ncolumns: {sizes}"
        )


def _digest(tensors: Mapping[str, npt.NDArray[Any]], notes: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(notes, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name}\0{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _read(path: Path, what: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtra("reading a codebook", "train") from None
    read_bytes(
        path, what="codebook", error=FedwiseError
    )  # says what is wrong with the path, and bounds its size
    try:
        with safe_open(path, framework="np") as file:
            names = list(file.keys())
            notes = json.loads(file.metadata()["fedwise"])
            return {name: file.get_tensor(name) for name in names}, dict(notes)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        raise FedwiseError(f"{what} is damaged or not a codebook of fedwise; ask for a new copy") from None


def _parse(tensors: dict[str, npt.NDArray[Any]], notes: dict[str, Any]) -> Codebook:
    kind = notes["kind"]
    if notes["format"] != FORMAT or notes["public"] is not True or not isinstance(notes["texts"], list):
        raise ValueError
    arrays = {name: np.asarray(tensors[name], dtype=np.float64) for name in _ARRAYS[kind]}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError
    examples: Any = tensors.get("examples", notes["texts"])
    return Codebook(
        kind, arrays, str(notes["source"]), str(notes["extractor"]), str(notes["prefix"]), examples,
        np.asarray(tensors["extracted"], dtype=np.float64),
    )  # fmt: skip
