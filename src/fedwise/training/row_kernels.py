"""Row kernels: the gradients of single rows, clipped, put on the grid and added up as integers.

Each row goes through the network alone, so its integers are a function of the row and the parameters: no
other row of the batch, and no size of the batch, can change them by a rounding. Layout of the flat vector
as in `kernels`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled

Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

#: No assumption about NaN and infinity, and no reassociation: with it ``x − x`` may become 0, and by that
#: the compiler's own test for a finite number would call NaN one. Norms are compared with `_HUGE` for this
#: reason: NaN fails every comparison.
_compile: Any = compiled(error_model="numpy", fastmath={"contract", "nsz"})
_HUGE = 1e300


@_compile
def _forward(
    theta: Floats32,
    sizes: Ints,
    offsets: Ints,
    hot: npt.NDArray[np.int32],
    dense: Floats32,
    dense_at: Ints,
    row: int,
    acts: Floats32,
) -> None:
    """Fill ``acts[l]`` with the outputs of layer `l` for one row (after ReLU but for the logit)."""
    layers = sizes.shape[0] - 1
    for layer in range(layers):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        at = offsets[layer]
        w = theta[at : at + n_in * n_out].reshape(n_in, n_out)
        bias = theta[at + n_in * n_out : at + n_in * n_out + n_out]
        out = acts[layer]
        for j in range(n_out):
            out[j] = bias[j]
        if layer == 0:
            for c in range(hot.shape[1]):
                i = hot[row, c]
                for j in range(n_out):
                    out[j] += w[i, j]
            for c in range(dense.shape[1]):
                i, x = dense_at[c], dense[row, c]
                for j in range(n_out):
                    out[j] += x * w[i, j]
        else:
            below = acts[layer - 1]
            for i in range(n_in):
                x = below[i]
                for j in range(n_out):
                    out[j] += x * w[i, j]
        if layer < layers - 1:
            for j in range(n_out):
                out[j] = max(out[j], np.float32(0.0))


@_compile
def _backward(theta: Floats32, sizes: Ints, offsets: Ints, acts: Floats32, deltas: Floats32) -> None:
    """Fill ``deltas[l]``, the derivatives by the outputs of layer `l`, from ``deltas[-1]``."""
    for layer in range(sizes.shape[0] - 2, 0, -1):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        at = offsets[layer]
        w = theta[at : at + n_in * n_out].reshape(n_in, n_out)
        delta, passed, below = deltas[layer], deltas[layer - 1], acts[layer - 1]
        for i in range(n_in):
            total = np.float32(0.0)
            if below[i] > np.float32(0.0):
                for j in range(n_out):
                    total += delta[j] * w[i, j]
            passed[i] = total


@_compile
def _squared_norm(
    sizes: Ints, hot: npt.NDArray[np.int32], dense: Floats32, row: int, acts: Floats32, deltas: Floats32
) -> float:
    """Σ over layers of |delta|²·(|inputs|² + 1): the squared norm of the row's gradient."""
    total = 0.0
    for layer in range(sizes.shape[0] - 1):
        inputs = 1.0  # the bias
        if layer == 0:
            inputs += hot.shape[1]
            for c in range(dense.shape[1]):
                inputs += np.float64(dense[row, c]) * np.float64(dense[row, c])
        else:
            for i in range(sizes[layer]):
                inputs += np.float64(acts[layer - 1, i]) * np.float64(acts[layer - 1, i])
        outputs = 0.0
        for j in range(sizes[layer + 1]):
            outputs += np.float64(deltas[layer, j]) * np.float64(deltas[layer, j])
        total += outputs * inputs
    return total


@_compile
def _add(
    sizes: Ints,
    offsets: Ints,
    hot: npt.NDArray[np.int32],
    dense: Floats32,
    dense_at: Ints,
    row: int,
    acts: Floats32,
    deltas: Floats32,
    scale: float,
    sign: int,
    total: Ints,
) -> np.int64:
    """Add ``sign · trunc(scale · gradient)`` to `total`; returns the squared norm of the integers."""
    squares = np.int64(0)
    for layer in range(sizes.shape[0] - 1):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        at = offsets[layer]
        out = total[at : at + n_in * n_out].reshape(n_in, n_out)
        bias = total[at + n_in * n_out : at + n_in * n_out + n_out]
        delta = deltas[layer]
        ones = 1 + (hot.shape[1] if layer == 0 else 0)
        for j in range(n_out):
            q = np.int64(np.float64(delta[j]) * scale)
            squares += ones * q * q
            q *= sign
            bias[j] += q
            if layer == 0:
                for c in range(hot.shape[1]):
                    out[hot[row, c], j] += q
        count = dense.shape[1] if layer == 0 else n_in
        for c in range(count):
            i = dense_at[c] if layer == 0 else c
            x = dense[row, c] if layer == 0 else acts[layer - 1, c]
            if x == np.float32(0.0):
                continue
            factor = np.float64(x) * scale
            for j in range(n_out):
                q = np.int64(np.float64(delta[j]) * factor)
                squares += q * q
                out[i, j] += sign * q
    return squares


@_compile
def _slopes(scores: Floats32, label: float, classes: int, slopes: Floats32) -> None:
    """Derivative of one row's loss by its scores: softmax(z) − [c = y], or z − y for a number (`classes` 0)."""
    if classes == 0:
        slopes[0] = scores[0] - label
        return
    highest = scores[0]
    for c in range(1, classes):
        highest = max(highest, scores[c])
    whole = np.float32(0.0)
    for c in range(classes):
        slopes[c] = np.exp(scores[c] - highest)
        whole += slopes[c]
    for c in range(classes):
        slopes[c] /= whole
    slopes[int(label)] -= np.float32(1.0)


@_compile
def clipped_sum(
    theta: Floats32,
    sizes: Ints,
    offsets: Ints,
    hot: npt.NDArray[np.int32],
    dense: Floats32,
    dense_at: Ints,
    y: Floats32,
    chosen: Ints,
    clip: float,
    unit: int,
    margin: float,
    total: Ints,
    kind: int = 0,
) -> None:
    """Add the clipped gradients of the `chosen` rows to `total`, in units of clip / `unit`.

    `kind` is that of `task.CODES`: two classes, more, or a number.

    A gradient with an entry that is not finite counts as zero. Each entry is cut toward zero, so no norm
    grows; that the integers of a row have a norm of at most `unit` is checked on the integers themselves.
    """
    layers = sizes.shape[0] - 1
    width = 1
    for layer in range(layers):
        width = max(width, sizes[layer + 1])
    acts = np.zeros((layers, width), dtype=np.float32)
    deltas = np.zeros((layers, width), dtype=np.float32)
    one = np.float32(1.0)
    for n in range(chosen.shape[0]):
        row = chosen[n]
        _forward(theta, sizes, offsets, hot, dense, dense_at, row, acts)
        if kind == 0:
            z = acts[layers - 1, 0]
            p = one / (one + np.exp(-abs(z)))
            if z < 0:
                p = one - p
            deltas[layers - 1, 0] = p - y[row]
        else:
            _slopes(acts[layers - 1], y[row], sizes[layers] if kind == 1 else 0, deltas[layers - 1])
        _backward(theta, sizes, offsets, acts, deltas)
        squares = _squared_norm(sizes, hot, dense, row, acts, deltas)
        if not 0.0 < squares < _HUGE:
            continue
        scale = unit * margin / max(clip, math.sqrt(squares))
        reached = _add(sizes, offsets, hot, dense, dense_at, row, acts, deltas, scale, 1, total)
        if reached > unit * unit:
            _add(sizes, offsets, hot, dense, dense_at, row, acts, deltas, scale, -1, total)


@_compile
def clipped_rows(gradients: Floats32, clip: float, unit: int, margin: float, total: Ints) -> None:
    """As `clipped_sum`, for gradients that are there already, shape (rows, parameters)."""
    for n in range(gradients.shape[0]):
        gradient = gradients[n]
        # Four sums at a time: one would wait for each addition.
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for i in range(0, gradient.shape[0] - 3, 4):
            s0 += np.float64(gradient[i]) * np.float64(gradient[i])
            s1 += np.float64(gradient[i + 1]) * np.float64(gradient[i + 1])
            s2 += np.float64(gradient[i + 2]) * np.float64(gradient[i + 2])
            s3 += np.float64(gradient[i + 3]) * np.float64(gradient[i + 3])
        for i in range(gradient.shape[0] // 4 * 4, gradient.shape[0]):
            s0 += np.float64(gradient[i]) * np.float64(gradient[i])
        squares = s0 + s1 + s2 + s3
        if not 0.0 < squares < _HUGE:
            continue
        scale = unit * margin / max(clip, math.sqrt(squares))
        reached = np.int64(0)
        for i in range(gradient.shape[0]):
            q = np.int64(np.float64(gradient[i]) * scale)
            reached += q * q
            total[i] += q
        if reached > unit * unit:
            for i in range(gradient.shape[0]):
                total[i] -= np.int64(np.float64(gradient[i]) * scale)
