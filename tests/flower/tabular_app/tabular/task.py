"""An app of somebody who never heard of fedwise: logistic regression of income on age and sex, in NumPy."""

import numpy as np
import polars as pl


def load_data(path):
    frame = pl.read_parquet(path)
    x = np.column_stack([np.ones(frame.height), frame["AGE"] / 100, frame["SEX"] == 2]).astype(float)
    y = (frame["INCOME"] > 50_000).to_numpy().astype(float)
    cut = int(0.8 * len(y))
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def chances(w, x):
    return 1 / (1 + np.exp(-x @ w))


def fit(w, x, y, epochs, lr):
    for _ in range(10 * epochs):
        w = w - lr * x.T @ (chances(w, x) - y) / len(y)
    return w


def log_loss(w, x, y):
    p = np.clip(chances(w, x), 1e-9, 1 - 1e-9)
    return float(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)))
