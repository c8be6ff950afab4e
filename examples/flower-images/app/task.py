"""The task: public codebook and schema, what a node holds, and the network."""

from functools import cache

import numpy as np
import polars as pl
import torch
from flwr.app import Context
from sklearn.datasets import load_digits
from torch import nn

from fedwise import Column, Schema
from fedwise.features import fit

PUBLIC, TEST = 300, 300


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """All images, between 0 and 1, and their labels."""
    found = load_digits()
    return (found.images / 16).astype(np.float32), found.target


def public_images() -> np.ndarray:
    """The first images play the public records: no node holds them."""
    return digits()[0][:PUBLIC]


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """The next images play the test."""
    images, labels = digits()
    return images[PUBLIC : PUBLIC + TEST], labels[PUBLIC : PUBLIC + TEST]


def flat(images: np.ndarray) -> np.ndarray:
    """The extractor: pixels as they are. Any torch module, ONNX session or transformer may stand here."""
    return np.asarray(images).reshape(len(images), -1)


CODEBOOK = fit(
    public_images(), flat, public="first 300 images of scikit-learn's digits", kind="kmeans", codes=16
)
SCHEMA = Schema(
    (*CODEBOOK.columns, Column("digit", "target", levels=tuple(range(10)))),
    name="digits",
    codebook=CODEBOOK.digest,
)


def images(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """What a simulated node holds; the labels of every third one are shuffled."""
    number, nodes = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    pixels, labels = digits()
    own = np.arange(PUBLIC + TEST + number, len(labels), nodes)
    told = labels[own]
    if number % 3 == 2:
        told = np.random.default_rng(number).permutation(told)
    return pixels[own], told


def features(context: Context) -> pl.DataFrame:
    """What a node counts: features and label. Pixels are never counted."""
    pixels, labels = images(context)
    return CODEBOOK.apply(pixels, flat).with_columns(digit=pl.Series(labels))


def network(seed: int = 0) -> nn.Module:
    """A small convolutional network."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 16, 10),
    )  # fmt: skip


def train(
    module: nn.Module, pixels: np.ndarray, labels: np.ndarray, *, epochs: int = 2, seed: int = 0
) -> float:
    """Train in place; the mean loss met on the way."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64))
    optimizer, total, steps = torch.optim.Adam(module.parameters(), lr=3e-3), 0.0, 0
    for _ in range(epochs):
        for chosen in torch.randperm(len(x), generator=generator).split(16):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x[chosen]), y[chosen])
            loss.backward()
            optimizer.step()
            total, steps = total + float(loss.detach()), steps + 1
    return total / max(steps, 1)


def accuracy(module: nn.Module) -> float:
    """Share of the test images that are told rightly."""
    pixels, labels = held_out()
    with torch.no_grad():
        told = module(torch.from_numpy(pixels)).argmax(dim=1).numpy()
    return float((told == labels).mean())
