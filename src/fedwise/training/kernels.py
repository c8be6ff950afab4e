"""Kernels: forward, backward and optimiser steps of the built-in networks, over one flat vector.

A batch of 32 rows through a 32-32-32 network is a few microseconds of arithmetic; an autograd graph spends
ten times that on bookkeeping. These kernels do the arithmetic only, and read one-hot inputs as the
positions of their ones, so the first layer is a sum of a few rows of its weight matrix.

Layout of the flat vector: for each layer, the weights as (inputs, outputs) in row-major order, then the
biases. `fedwise.training.model` converts from and to the (outputs, inputs) arrays that travel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..machine_code import compiled

Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

#: No reassociation and no assumption about NaN: results are the same on every call, and a diverging
#: run shows itself. ``contract`` only lets a product and a sum become one instruction.
_compile: Any = compiled(error_model="numpy", fastmath={"contract", "nsz", "arcp"})


@_compile
def _multiply(a: Floats32, w: Floats32, out: Floats32, rows: int) -> None:
    """``out[:rows] += a[:rows] @ w``; four terms at a time keep `out` in registers longer."""
    n_in, n_out = w.shape
    i = 0
    while i + 4 <= n_in:
        for r in range(rows):
            a0, a1, a2, a3 = a[r, i], a[r, i + 1], a[r, i + 2], a[r, i + 3]
            for j in range(n_out):
                out[r, j] += a0 * w[i, j] + a1 * w[i + 1, j] + a2 * w[i + 2, j] + a3 * w[i + 3, j]
        i += 4
    while i < n_in:
        for r in range(rows):
            a0 = a[r, i]
            for j in range(n_out):
                out[r, j] += a0 * w[i, j]
        i += 1


@_compile
def _outer(a: Floats32, d: Floats32, out: Floats32, rows: int) -> None:
    """``out += a[:rows].T @ d[:rows]``."""
    n_in, n_out = out.shape
    r = 0
    while r + 4 <= rows:
        for i in range(n_in):
            a0, a1, a2, a3 = a[r, i], a[r + 1, i], a[r + 2, i], a[r + 3, i]
            for j in range(n_out):
                out[i, j] += a0 * d[r, j] + a1 * d[r + 1, j] + a2 * d[r + 2, j] + a3 * d[r + 3, j]
        r += 4
    while r < rows:
        for i in range(n_in):
            a0 = a[r, i]
            for j in range(n_out):
                out[i, j] += a0 * d[r, j]
        r += 1


@_compile
def _forward(
    theta: Floats32,
    sizes: Ints,
    offsets: Ints,
    hot: npt.NDArray[np.int32],
    dense: Floats32,
    dense_at: Ints,
    rows: Ints,
    acts: Floats32,
) -> None:
    """Fill ``acts[l]`` with the outputs of layer `l` (after ReLU but for the last: logits)."""
    count, layers = rows.shape[0], sizes.shape[0] - 1
    for layer in range(layers):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        at = offsets[layer]
        w = theta[at : at + n_in * n_out].reshape(n_in, n_out)
        bias = theta[at + n_in * n_out : at + n_in * n_out + n_out]
        out = acts[layer]
        for r in range(count):
            for j in range(n_out):
                out[r, j] = bias[j]
        if layer == 0:
            for r in range(count):
                row = rows[r]
                for c in range(hot.shape[1]):
                    i = hot[row, c]
                    for j in range(n_out):
                        out[r, j] += w[i, j]
                for c in range(dense.shape[1]):
                    i, x = dense_at[c], dense[row, c]
                    for j in range(n_out):
                        out[r, j] += x * w[i, j]
        else:
            _multiply(acts[layer - 1], w, out, count)
        if layer < layers - 1:
            for r in range(count):
                for j in range(n_out):
                    out[r, j] = max(out[r, j], np.float32(0.0))


@_compile
def _backward(
    theta: Floats32,
    sizes: Ints,
    offsets: Ints,
    hot: npt.NDArray[np.int32],
    dense: Floats32,
    dense_at: Ints,
    rows: Ints,
    acts: Floats32,
    deltas: Floats32,
    flipped: Floats32,
    grad: Floats32,
) -> None:
    """Fill `grad` from the derivatives of the loss by the logits, which ``deltas[-1][:, 0]`` holds."""
    count, layers = rows.shape[0], sizes.shape[0] - 1
    grad[:] = np.float32(0.0)
    for layer in range(layers - 1, -1, -1):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        at = offsets[layer]
        g = grad[at : at + n_in * n_out].reshape(n_in, n_out)
        g_bias = grad[at + n_in * n_out : at + n_in * n_out + n_out]
        delta = deltas[layer]
        for r in range(count):
            for j in range(n_out):
                g_bias[j] += delta[r, j]
        if layer == 0:
            for r in range(count):
                row = rows[r]
                for c in range(hot.shape[1]):
                    i = hot[row, c]
                    for j in range(n_out):
                        g[i, j] += delta[r, j]
                for c in range(dense.shape[1]):
                    i, x = dense_at[c], dense[row, c]
                    for j in range(n_out):
                        g[i, j] += x * delta[r, j]
        else:
            below = acts[layer - 1]
            _outer(below, delta, g, count)
            w = theta[at : at + n_in * n_out].reshape(n_in, n_out)
            turned = flipped[: n_in * n_out].reshape(n_out, n_in)
            for i in range(n_in):
                for j in range(n_out):
                    turned[j, i] = w[i, j]
            passed = deltas[layer - 1]
            for r in range(count):
                for i in range(n_in):
                    passed[r, i] = np.float32(0.0)
            _multiply(delta, turned, passed, count)
            for r in range(count):
                for i in range(n_in):
                    passed[r, i] = passed[r, i] if below[r, i] > np.float32(0.0) else np.float32(0.0)


@_compile
def _log_slopes(scores: Floats32, y: Floats32, weight: Floats32, rows: Ints, slopes: Floats32) -> float:
    """Loss and its derivative by the score for two classes.

    loss(z, y) = max(z, 0) − z·y + log(1 + e^−|z|) and its derivative is sigmoid(z) − y.
    """
    count = rows.shape[0]
    share = np.float32(1.0) / np.float32(count)
    total = 0.0
    for r in range(count):
        z, label = scores[r, 0], y[rows[r]]
        e = np.exp(-abs(z))
        p = np.float32(1.0) / (np.float32(1.0) + e)
        if z < 0:
            p = np.float32(1.0) - p
        w = weight[rows[r]] if weight.shape[0] else np.float32(1.0)
        total += w * (max(z, np.float32(0.0)) - z * label + math.log1p(e))
        slopes[r, 0] = (p - label) * w * share
    return total


@_compile
def _score_slopes(
    scores: Floats32, y: Floats32, weight: Floats32, rows: Ints, classes: int, slopes: Floats32
) -> float:
    """Loss and its derivative by the scores for classes (softmax) or, with `classes` 0, for a number.

    loss(z, y) = log Σ_c e^z_c − z_y with derivative softmax(z) − [c = y]; or ½(z − y)² with derivative z − y.
    """
    count = rows.shape[0]
    share = np.float32(1.0) / np.float32(count)
    total = 0.0
    for r in range(count):
        label = y[rows[r]]
        w = weight[rows[r]] if weight.shape[0] else np.float32(1.0)
        if classes == 0:
            off = scores[r, 0] - label
            total += 0.5 * w * off * off
            slopes[r, 0] = off * w * share
            continue
        highest = scores[r, 0]
        for c in range(1, classes):
            highest = max(highest, scores[r, c])
        whole = np.float32(0.0)
        for c in range(classes):
            slopes[r, c] = np.exp(scores[r, c] - highest)
            whole += slopes[r, c]
        told = int(label)
        total += w * (math.log(whole) - (scores[r, told] - highest))
        for c in range(classes):
            slopes[r, c] = (slopes[r, c] / whole - (1.0 if c == told else 0.0)) * w * share
    return total


@_compile
def gradient(
    theta: Floats32,
    sizes: Ints,
    offsets: Ints,
    hot: npt.NDArray[np.int32],
    dense: Floats32,
    dense_at: Ints,
    y: Floats32,
    weight: Floats32,
    rows: Ints,
    acts: Floats32,
    deltas: Floats32,
    flipped: Floats32,
    grad: Floats32,
    kind: int = 0,
) -> float:
    """Gradient of the mean weighted loss of `rows` into `grad`; returns the sum of losses.

    For two classes (`kind` 0), more (1), or a number (2).
    """
    _forward(theta, sizes, offsets, hot, dense, dense_at, rows, acts)
    last = sizes.shape[0] - 2
    if kind == 0:
        total: float = _log_slopes(acts[last], y, weight, rows, deltas[last])
    else:
        classes = sizes[last + 1] if kind == 1 else 0
        total = _score_slopes(acts[last], y, weight, rows, classes, deltas[last])
    _backward(theta, sizes, offsets, hot, dense, dense_at, rows, acts, deltas, flipped, grad)
    return total


@_compile
def train(
    theta: Floats32,
    first: Floats32,
    second: Floats32,
    taken: int,
    sizes: Ints,
    offsets: Ints,
    hot: npt.NDArray[np.int32],
    dense: Floats32,
    dense_at: Ints,
    y: Floats32,
    weight: Floats32,
    order: Ints,
    batch: int,
    adam: bool,
    lr: float,
    mu: float,
    anchor: Floats32,
    shift: Floats32,
    summed: Floats32,
    kind: int = 0,
) -> tuple[float, int]:
    """One pass over `order` in batches, updating `theta` and the optimiser's moments in place.

    Every step moves along ``gradient + mu · (theta − anchor) + shift``; `summed` (when not empty) adds up
    the plain gradients, `shift` may be empty. `kind` is that of `task.CODES`.

    Returns
    -------
    loss, steps
        Sum of the row losses seen on the way (NaN stops the pass), and the optimiser's step count.
    """
    layers = sizes.shape[0] - 1
    width = 1
    largest = 1
    for layer in range(layers):
        width = max(width, sizes[layer + 1])
        if layer:
            largest = max(largest, sizes[layer] * sizes[layer + 1])
    acts = np.zeros((layers, batch, width), dtype=np.float32)
    deltas = np.zeros((layers, batch, width), dtype=np.float32)
    flipped = np.empty(largest, dtype=np.float32)
    grad = np.empty_like(theta)
    pull = np.float32(mu)
    total = 0.0
    beta1, beta2, tiny = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
    one = np.float32(1.0)
    for start in range(0, order.shape[0], batch):
        rows = order[start : start + batch]
        seen = gradient(
            theta, sizes, offsets, hot, dense, dense_at, y, weight, rows, acts, deltas, flipped, grad, kind
        )  # fmt: skip
        total += seen
        taken += 1
        if not math.isfinite(seen):
            return math.nan, taken
        if summed.shape[0]:
            for i in range(grad.shape[0]):
                summed[i] += grad[i]
        if mu != 0.0:
            for i in range(grad.shape[0]):
                grad[i] += pull * (theta[i] - anchor[i])
        if shift.shape[0]:
            for i in range(grad.shape[0]):
                grad[i] += shift[i]
        if adam:
            step = np.float32(lr / (1.0 - 0.9**taken))
            root = np.float32(math.sqrt(1.0 - 0.999**taken))
            for i in range(grad.shape[0]):
                g = grad[i]
                m = beta1 * first[i] + (one - beta1) * g
                v = beta2 * second[i] + (one - beta2) * g * g
                first[i] = m
                second[i] = v
                theta[i] -= step * m / (np.sqrt(v) / root + tiny)
        else:
            step = np.float32(lr)
            for i in range(grad.shape[0]):
                theta[i] -= step * grad[i]
    return total, taken


@_compile
def logits(
    theta: Floats32,
    sizes: Ints,
    offsets: Ints,
    hot: npt.NDArray[np.int32],
    dense: Floats32,
    dense_at: Ints,
    out: Floats32,
) -> None:
    """Scores of all rows into `out`, shape (rows, outputs), in blocks that stay in the cache."""
    layers = sizes.shape[0] - 1
    width = 1
    for layer in range(layers):
        width = max(width, sizes[layer + 1])
    block = 64
    acts = np.zeros((layers, block, width), dtype=np.float32)
    for start in range(0, out.shape[0], block):
        rows = np.arange(start, min(start + block, out.shape[0]))
        _forward(theta, sizes, offsets, hot, dense, dense_at, rows, acts)
        for r in range(rows.shape[0]):
            for c in range(out.shape[1]):
                out[start + r, c] = acts[layers - 1, r, c]
