"""Extractor: whatever turns records into numbers: a torch module, an ONNX session, a transformer, a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FedwiseError

Floats = npt.NDArray[np.float64]

#: Records given to an extractor at a time.
_BATCH = 512


def extract(extractor: Any, records: Any) -> Floats:
    """Numbers of each record, shape (records, numbers).

    Parameters
    ----------
    extractor
        A ``torch.nn.Module``, an ONNX Runtime session, an object with ``transform`` (scikit-learn), any function of
        a batch of records, or ``None`` for records that are numbers already.
    records
        An array with a record in each line, or a list of texts.

    Raises
    ------
    FedwiseError
        The extractor does not give one line of finite numbers for each record.
    """
    if len(records) == 0:
        raise FedwiseError("records must hold at least one record, got none")
    parts = [_batch(extractor, records[at : at + _BATCH]) for at in range(0, len(records), _BATCH)]
    found = np.concatenate(parts)
    if found.shape[0] != len(records):
        raise FedwiseError(
            f"extractor must give one line for each record, got {found.shape[0]} for {len(records)}"
        )
    if not np.isfinite(found).all():
        raise FedwiseError("extractor must give finite numbers, got NaN or infinity; check its input")
    return found


def _batch(extractor: Any, records: Any) -> Floats:
    if extractor is None:
        out: Any = records
    elif hasattr(extractor, "state_dict") and hasattr(extractor, "eval"):
        out = _by_torch(extractor, records)
    elif hasattr(extractor, "get_inputs") and hasattr(extractor, "run"):
        name = extractor.get_inputs()[0].name
        out = extractor.run(None, {name: np.asarray(records, dtype=np.float32)})[0]
    elif hasattr(extractor, "transform"):
        out = extractor.transform(_flat(records))
        out = out.toarray() if hasattr(out, "toarray") else out
    elif callable(extractor):
        out = extractor(records)
    else:
        raise FedwiseError(
            "extractor must be a torch module, an ONNX session, a transformer or a function, got "
            f"{type(extractor).__name__}"
        )
    try:
        found = np.asarray(out, dtype=np.float64)
    except (TypeError, ValueError):
        raise FedwiseError(
            "extractor must give numbers; pass an extractor for records that are not numbers"
        ) from None
    return found.reshape(len(found), -1) if found.ndim else found.reshape(1, -1)


def _by_torch(module: Any, records: Any) -> Any:
    import torch

    was = module.training
    module.eval()
    try:
        with torch.no_grad():
            return module(torch.from_numpy(np.asarray(records, dtype=np.float32))).numpy()
    finally:
        module.train(was)


def _flat(records: Any) -> Any:
    """Arrays as the table a transformer wants; lists of texts as they are."""
    if isinstance(records, np.ndarray):
        return records.reshape(len(records), -1)
    return records


def name_of(extractor: Any) -> str:
    """A readable name of an extractor, for people."""
    if extractor is None:
        return "the records as they are"
    kind = extractor if hasattr(extractor, "__qualname__") else type(extractor)
    return f"{kind.__module__}.{kind.__qualname__}"[:200]


def examples_of(records: Any, count: int) -> npt.NDArray[np.float32] | list[str]:
    """The first public records, to be kept beside what was extracted from them."""
    first: Sequence[Any] = records[:count]
    if isinstance(first[0], str):
        return [str(text)[:2000] for text in first]
    return np.asarray(first, dtype=np.float32)
