"""Benchmark of doubles: beside MST and AIM at the same ε, on single clients.

    python benchmarks/doubles.py [--rival PYTHON] [--clients WY MN] [--draws 3] [--epsilon 1] [--model-size MB]

MST and AIM see one client's rows and spend all of ε on them. A double is drawn from the client's release of the same ε;
other clients' releases help it (ACSIncome 2018, all states). The double of the client's release alone is shown too: it
knows what MST and AIM know. Measured for each: mean distance (half the sum of absolute differences) of pair tables and
of 60 triples to the client's own rows, and the AUC of a logistic regression of one-hot levels trained on the records,
on held-out rows of the client and of all clients. PYTHON is that of an environment with dpmm (benchmarks/rivals.py);
without it, what earlier runs kept in build/doubles or wrote to docs/results/doubles.csv is shown beside the doubles.

Nothing was tuned for it. Each rival's records are kept as they are made, so a run that was stopped goes on. Writes
docs/results/doubles.csv and doubles.md. Needs the census records in ../shared/data.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
from rehearsal_pools import Real, load, split_all
from rehearsal_pools import states as frames_of
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fedwise.doubling.drawer import Drawer
from fedwise.estimation import estimate
from fedwise.pool.pool import Pool

ROOT = Path(__file__).parents[1]
BUILD, OUT = ROOT / "build" / "doubles", ROOT / "docs" / "results"
TASK = "income2018"
RIVALS = ("MST", "AIM")
#: Triples of variables whose tables are compared, of all there are.
TRIPLES = 60
MEASURES = {"pairs": "pairs", "triples": "triples", "auc": "AUC", "auc_all": "AUC on all states"}
#: What the records are of, in the order of the page.
KINDS = {
    "real": "the client's own rows",
    "double": "double, all releases of the pool",
    "alone": "double, the client's release alone",
    "MST": "MST",
    "AIM": "AIM",
}


@dataclass(frozen=True, eq=False)
class Client:
    """A client's rows to learn from, held-out ones, and those of all clients, as codes: shape (rows, variables)."""

    name: str
    rows: np.ndarray
    held: np.ndarray
    others: np.ndarray
    sizes: tuple[int, ...]
    target: int

    def measured(self, codes: np.ndarray) -> dict[str, float]:
        """How far records are from the client's rows, and what a model trained on them is worth on rows."""
        every = list(itertools.combinations(range(len(self.sizes)), 3))
        some = [every[i] for i in np.random.default_rng(0).permutation(len(every))[:TRIPLES]]
        inputs = [v for v in range(len(self.sizes)) if v != self.target]
        model = LogisticRegression(C=10, max_iter=300)
        model.fit(self._one_hot(codes, inputs), codes[:, self.target])

        def auc(rows: np.ndarray) -> float:
            scores = model.decision_function(self._one_hot(rows, inputs))
            return float(roc_auc_score(rows[:, self.target], scores))

        return {
            "pairs": self._distance(codes, itertools.combinations(range(len(self.sizes)), 2)),
            "triples": self._distance(codes, some),
            "auc": auc(self.held),
            "auc_all": auc(self.others),
        }

    def _distance(
        self, codes: np.ndarray, tables: Iterator[tuple[int, ...]] | list[tuple[int, ...]]
    ) -> float:
        """Mean over tables of half the sum of absolute differences of their shares."""

        def shares(given: np.ndarray, variables: tuple[int, ...]) -> np.ndarray:
            key = np.zeros(len(given), np.int64)
            for v in variables:
                key = key * self.sizes[v] + given[:, v]
            cells = int(np.prod([self.sizes[v] for v in variables]))
            return np.bincount(key, minlength=cells) / len(given)

        return float(np.mean([np.abs(shares(codes, v) - shares(self.rows, v)).sum() / 2 for v in tables]))

    def _one_hot(self, codes: np.ndarray, variables: list[int]) -> np.ndarray:
        return np.concatenate(
            [np.eye(self.sizes[v], dtype=np.float32)[codes[:, v]] for v in variables], axis=1
        )


def doubles(real: Real, clients: list[Client], epsilon: float, draw: int) -> Iterator[dict[str, object]]:
    """Doubles of one draw of the noise, from all releases and from each client's alone."""
    pool = real.pool(epsilon, draw)
    together = Drawer(estimate(pool), seed=draw)
    for client in clients:
        at = pool.clients.index(client.name)
        lone = Pool((client.name,), pool.plan, pool.matrix[at : at + 1], simulated=pool.simulated)
        for kind in ("double", "alone"):
            began = time.process_time()
            drawer = together if kind == "double" else Drawer(estimate(lone), seed=draw)
            codes = drawer.codes(client.name, len(client.rows)).astype(np.int64)
            spent = time.process_time() - began
            yield line(client, kind, draw, epsilon) | client.measured(codes) | {"seconds": spent}


def rival(client: Client, method: str, draw: int, options: argparse.Namespace) -> dict[str, object] | None:
    """Records of a rival, or what earlier ones came to; ``None`` where it never ran and nothing can run it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    limit = options.model_size if method == "AIM" else None
    name = f"{client.name}-{method}-{options.epsilon:g}-{draw}" + (f"-{limit:g}MB" if limit else "")
    kept = BUILD / f"{name}.npz"
    if not kept.exists():
        if not options.rival:
            about = {"client": client.name, "records": method, "draw": draw, "epsilon": options.epsilon}
            found = stored().filter(**about) if len(stored()) else stored()
            return found.row(0, named=True) if len(found) else None
        given, out = BUILD / f"{client.name}.rows.npz", BUILD / f"{name}.part.npz"
        np.savez(given, codes=client.rows, sizes=np.array(client.sizes))
        script = str(Path(__file__).with_name("rivals.py"))
        run = [options.rival, script, method, str(given), str(out), "--epsilon", str(options.epsilon)]
        run += ["--seed", str(draw)] + (["--model-size", str(limit)] if limit else [])
        subprocess.run(run, check=True)
        given.unlink()
        out.rename(kept)
    found = np.load(kept)
    spent = {"seconds": float(found["seconds"]), "limit": limit}
    return (
        line(client, method, draw, options.epsilon) | client.measured(found["codes"].astype(np.int64)) | spent
    )


@cache
def stored() -> pl.DataFrame:
    """What earlier runs came to, read before this one writes: nothing of a rival depends on this library."""
    return pl.read_csv(OUT / "doubles.csv") if (OUT / "doubles.csv").exists() else pl.DataFrame()


def line(client: Client, kind: str, draw: int, epsilon: float) -> dict[str, object]:
    """What a row of the table is about."""
    return {
        "client": client.name, "rows": len(client.rows), "records": kind, "draw": draw, "epsilon": epsilon,
        "limit": None,
    }  # fmt: skip


def write(table: pl.DataFrame) -> None:
    """The table for machines and the page for people."""
    table.write_csv(OUT / "doubles.csv", float_precision=5)
    epsilon, drawn = table["epsilon"][0], table.filter(pl.col("records") != "real")
    limits = drawn["limit"].drop_nulls().unique().to_list()
    lines = [
        "# Doubles beside MST and AIM",
        "",
        "Made by `python benchmarks/doubles.py --rival PYTHON`, which says how. Single clients of ACSIncome 2018, "
        f"ε = {epsilon:g}, δ = 1e-5; MST and AIM are those of `dpmm`. Distances of pair tables and of {TRIPLES} "
        "triples to the client's rows: less is better. AUC: a logistic regression trained on the records, tested on "
        "held-out rows of the client (few: of Wyoming 613) and of all states. Means over draws of the noise, with "
        "their range in brackets.",
        "",
        "**They do not know the same.** MST and AIM see one client's rows. A double of the pool draws on all clients' "
        "releases: what the pool has in common needs no budget of this client's. That is how doubles are used; the "
        "double of the client's release alone is what the release itself is worth. The plan behind it asks all pair "
        "tables, for the choice of clients, where MST and AIM choose a few for the sake of the records.",
        "",
        "| client | rows | records of | draws | pairs | triples | AUC, client | AUC, all states | processor s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (client,), part in table.sort("rows").group_by("client", maintain_order=True):
        for kind, words in KINDS.items():
            those = part.filter(records=kind)
            if not len(those):
                continue
            cells = [_range(those[name]) for name in MEASURES]
            cells.append("" if kind == "real" else f"{those['seconds'].mean():.1f}")
            count = "" if kind == "real" else len(those)
            lines.append(f"| {client} | {those['rows'][0]:,} | {words} | {count} | {' | '.join(cells)} |")
    if limits:
        lines += [
            "",
            f"AIM's model was held to {limits[0]:g} MB for lack of time: its authors ask for 80, the default, in "
            "comparisons, with which they say a run can take many hours. With more it may come closer. Processor "
            "seconds of a double of the pool are those of one more client once the pool's model is fitted.",
        ]
    lines += ["", verdict(drawn), ""]
    there = set(drawn.select("records", "client").iter_rows())
    wanted = itertools.product(RIVALS, table["client"].unique(maintain_order=True))
    left = [f"{method} of {client}" for method, client in wanted if (method, client) not in there]
    if left:
        lines += [f"Not measured: {', '.join(left)}.", ""]
    (OUT / "doubles.md").write_text("\n".join(lines))


def _range(values: pl.Series) -> str:
    mean = f"{values.mean():.4f}"
    return mean if len(values) == 1 else f"{mean} ({values.min():.4f} to {values.max():.4f})"


def verdict(drawn: pl.DataFrame) -> str:
    """Where doubles are better than each rival, in words."""
    said = []
    for kind in ("double", "alone"):
        better, worse = [], []
        for (client,), part in drawn.group_by("client", maintain_order=True):
            mine = part.filter(records=kind)
            for method in RIVALS:
                other = part.filter(records=method)
                for name in MEASURES:
                    if len(other) and len(mine):
                        ahead = float(mine[name].mean()) - float(other[name].mean())  # type: ignore[arg-type]
                        won = ahead > 0 if name.startswith("auc") else ahead < 0
                        (better if won else worse).append(f"{MEASURES[name]} of {client} against {method}")
        lost = f"; not in {', '.join(worse)}" if worse else ""
        if better or worse:
            said.append(f"The {KINDS[kind]}, is better in {len(better)} of {len(better) + len(worse)}{lost}.")
    return " ".join(said) if said else "No rival was run."


def main() -> int:
    """Draw, compare, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rival", help="python of an environment with dpmm")
    parser.add_argument("--methods", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--clients", nargs="+", default=["WY", "MN"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--model-size", type=float, help="largest model of AIM in MB; its own default is 80")
    options = parser.parse_args()
    stored()
    real = load(TASK, cap=None)
    train, test = split_all(frames_of(TASK)[0], 0.2, seed=0)
    schema = real.schema
    everyone = schema.encode(pl.concat(test.values())).T.astype(np.int64)
    clients = [
        Client(
            name, *(schema.encode(part[name]).T.astype(np.int64) for part in (train, test)), everyone,
            schema.sizes, schema.target,
        )
        for name in options.clients
    ]  # fmt: skip
    rows = [line(c, "real", 0, options.epsilon) | c.measured(c.rows) | {"seconds": 0.0} for c in clients]
    for draw in range(options.draws):
        rows += doubles(real, clients, options.epsilon, draw)
    # The quick rival first, of every client, then the next draw: a run that is stopped has some of all.
    for method, draw, client in itertools.product(options.methods, range(options.draws), clients):
        found = rival(client, method, draw, options)
        if found is not None:
            rows.append(found)
            print(found, flush=True)
        write(pl.DataFrame(rows, infer_schema_length=None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
