"""Load: many releases, many nodes, many users, each with its answers checked.

    python benchmarks/load.py                        everything, some minutes
    python benchmarks/load.py --part pool            one part: pool, nodes, twice, stages or explorer
    python benchmarks/load.py --json                 one JSON object on stdout

Bounds (exit code 1 when one fails): 10,000 releases of the income plan loaded and screened in 60 s and 2 GB;
1,000 nodes answer one plan in process and every one is pooled, charged once and chosen from rightly; asked by
two plans, or by one plan with two stages, they take 60 s on two idle cores (beside it, seconds of processor time, which
other work on the machine does not change); 50 users ask the explorer at the same time and no answer differs from the
one computed alone. Each part runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

import fedwise as fw
from fedwise.data import schema as shipped
from fedwise.owner.noise import add_simulated_noise
from fedwise.owner.release import NoisyTable, Release
from fedwise.owner.tables import count
from fedwise.planning import Plan

SIZES = {"pool": 10_000, "nodes": 1_000, "twice": 1_000, "stages": 1_000, "explorer": 50}
#: Greatest value allowed.
BOUNDS = {
    "pool_seconds": 60.0,
    "pool_peak_mb": 2048.0,
    "pool_flagged": 0,
    "nodes_wrong": 0,
    "twice_wrong": 0,
    "twice_seconds": 60.0,
    "stages_wrong": 0,
    "stages_seconds": 60.0,
    "explorer_wrong": 0,
}
#: Kinds of client a pool is made of; more would only take longer to count.
KINDS = 16


def people(schema: fw.Schema, rows: int, seed: int) -> pl.DataFrame:
    """Random rows of any schema without rules, whose columns depend on a hidden trait of each row."""
    rng = np.random.default_rng(seed)
    trait = rng.beta(1 + seed % 4, 2, rows)
    columns: dict[str, Any] = {}
    for column in schema.columns:
        if column.levels:
            place = np.clip(
                (trait + rng.normal(0, 0.3, rows)) * len(column.levels), 0, len(column.levels) - 1
            )
            columns[column.name] = np.array(column.levels)[place.astype(np.int64)]
        elif column.bins:
            low, high = max(float(column.bins[0]), 0.0), float(column.bins[-1])
            columns[column.name] = np.floor(low + (high - low) * trait * rng.random(rows)).astype(np.int64)
    return pl.DataFrame(columns)


def open_schema() -> fw.Schema:
    """The shipped income schema with a plain target in place of its rule."""
    return fw.Schema.parse(_without_rules(shipped("income").to_toml()))


def _without_rules(text: str) -> str:
    lines = ["levels = [0, 1]" if line.startswith("rule = ") else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def write_releases(folder: Path, number: int, plan: Plan) -> None:
    """Release files of honest clients: exact tables of a few kinds, each client with noise of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    exact = [
        count(plan.schema.encode(people(plan.schema, 400 + 100 * kind, kind)), plan.layout)
        for kind in range(KINDS)
    ]
    slices = [plan.layout.slice(j) for j in range(len(plan.tables))]
    rng = np.random.default_rng(1)
    hollow = Release(
        client="CLIENT",
        epsilon=plan.promise_epsilon,
        delta=plan.delta,
        private=True,
        simulated=True,
        plan_digest=plan.digest,
        schema_digest=plan.schema_digest,
        library=fw.__version__,
        tables=(),
        plan=plan,
    )
    # The text around the tables is the same for all: made once, as making it takes most of the time.
    before, _, after = hollow.encode().partition(b'"tables": [\n    \n  ]')
    assert after, "the layout of a release file changed: write these with Release.save"
    for i in range(number):
        noisy = add_simulated_noise(exact[i % KINDS], plan.sigmas, rng)
        tables = [
            NoisyTable(pair=t.pair, shape=t.shape, sigma=t.sigma, counts=noisy[part].tolist())
            for part, t in zip(slices, plan.tables, strict=True)
        ]
        body = b",\n    ".join(msgspec.json.encode(table) for table in tables)
        name = f"c{i:05}"
        text = before.replace(b"CLIENT", name.encode(), 1) + b'"tables": [\n    ' + body + b"\n  ]" + after
        (folder / f"{name}.release.json").write_bytes(text)


def load_pool(folder: Path) -> dict[str, Any]:
    """Load and screen all releases of a directory, as a coordinator does."""
    began, worked = time.perf_counter(), time.process_time()
    pool = fw.Pool.load(folder, accept_flagged=True)
    seconds, work = time.perf_counter() - began, time.process_time() - worked
    return {
        "pool_clients": len(pool),
        "pool_cells": pool.plan.layout.cells,
        "pool_seconds": seconds,
        "pool_cpu_seconds": work,
        "pool_peak_mb": peak_mb(),
        "pool_flagged": len(pool.flags),
    }


def measure_pool(number: int) -> dict[str, Any]:
    """Write the files here, read them in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        write_releases(Path(folder), number, fw.plan(open_schema()))
        made = time.perf_counter() - began
        size = sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20
        program = "import sys; sys.path.insert(0, sys.argv[1]); import json, pathlib, load; "
        program += "print(json.dumps(load.load_pool(pathlib.Path(sys.argv[2]))))"
        words = [sys.executable, "-c", program, str(Path(__file__).parent), folder]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
    return {"pool_files_mb": size, "pool_writing_seconds": made, **json.loads(done.stdout)}


def measure_nodes(number: int, *, k: int = 10, **options: Any) -> dict[str, Any]:
    """One plan to many nodes in this process, each with rows, policy and ledger of its own.

    `options` are passed on to `fedwise.select`.
    """
    from fedwise.flower import InProcessGrid, release_app, select_federation
    from fedwise.owner.ledger import Ledger

    logging.getLogger("flwr").setLevel(logging.WARNING)  # two lines for every node otherwise
    plan = fw.plan(open_schema())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        homes = make_owners(root, number, budget=1.0)
        grid = InProcessGrid(release_app(), [{"policy": str(home / "policy.toml")} for home in homes])
        marks: list[tuple[float, float]] = []

        def mark() -> None:
            """The time on the wall, and the work of this process: other work on the machine moves the first only."""
            marks.append((time.perf_counter(), time.process_time()))

        def timed(pool: fw.Pool, size: int, **given: Any) -> Any:
            mark()
            found = fw.select(pool, size, **given)
            mark()
            return found

        mark()
        federation = select_federation(
            grid, plan, k=k, save=root / "releases", poll=0.05, timeout=3600, select=timed, **options
        )
        peak = peak_mb()
        # The same choice from the files, by the ordinary way.
        direct = fw.select(fw.Pool.load(root / "releases"), k, seed=0, **options)
        wrong = (
            len(federation.absent)
            + sum(name != home.name for name, home in zip(federation.pool.clients, homes, strict=True))
            + sum(len(Ledger(home / "book.db").history()) != 1 for home in homes)
            + (direct.clients != federation.selection.clients)
            + (direct.loss != federation.selection.loss)
            + (set(federation.grid.get_node_ids()) != {1001 + int(name[1:]) for name in direct.clients})
        )
    return {
        "nodes": number,
        "nodes_answer_seconds": marks[1][0] - marks[0][0],
        "nodes_answer_cpu_seconds": marks[1][1] - marks[0][1],
        "nodes_select_seconds": marks[2][0] - marks[1][0],
        "nodes_select_cpu_seconds": marks[2][1] - marks[1][1],
        "nodes_peak_mb": peak,
        "nodes_wrong": int(wrong),
        "nodes_federation": list(direct.clients),
    }


def make_owners(root: Path, number: int, *, budget: float) -> list[Path]:
    """A folder for each owner, with rows, policy and room in a ledger."""
    schema = open_schema()
    (root / "schema.toml").write_text(schema.to_toml())
    frames = [people(schema, 400 + 100 * kind, kind) for kind in range(KINDS)]
    homes = [root / f"n{i:04}" for i in range(number)]
    for i, home in enumerate(homes):
        home.mkdir()
        frames[i % KINDS].write_parquet(home / "rows.parquet")
        (home / "policy.toml").write_text(
            f'client = "{home.name}"\nschema = "../schema.toml"\ndata = "rows.parquet"\n'
            f'max_epsilon = 1.0\nledger = "book.db"\nbudget_epsilon = {budget}\nbudget_delta = 2e-5\n'
        )
    return homes


def measure_twice(number: int, *, k: int = 10) -> dict[str, Any]:
    """Two plans: ε = 0.1 to all nodes in this process, 0.9 to a tenth of them, then the choice by the summed tables."""
    from fedwise.coordinator.choice import Choice
    from fedwise.coordinator.gathering import gather
    from fedwise.coordinator.inquiry import Waiting, inquire
    from fedwise.flower import InProcessGrid, release_app
    from fedwise.flower.channel import FlowerChannel

    _hush()
    first, second = (fw.plan(open_schema(), epsilon=epsilon) for epsilon in (0.1, 0.9))
    with tempfile.TemporaryDirectory() as folder:
        homes = make_owners(Path(folder), number, budget=2.0)
        grid = InProcessGrid(release_app(), [{"policy": str(home / "policy.toml")} for home in homes])
        channel, waiting = FlowerChannel(grid), Waiting(3600.0, None, number, number, 0.05)
        began, worked = time.perf_counter(), time.process_time()
        pool = gather(channel, first, waiting, least=number)
        likely = fw.select(pool.pool, max(number // 10, k), method="greedy", evidence="none").clients
        again = inquire(channel, second, waiting, only=[pool.nodes[name] for name in likely])
        both = fw.Pool.of(
            [*(made for made in pool.releases if made.client in likely), *again.releases.values()]
        )
        chosen = Choice(k, 0, None, {"evidence": "none"}).of(both)
        seconds, work = time.perf_counter() - began, time.process_time() - worked
        wrong = (
            len(pool.absent)
            + len(again.absent)
            + _wrongly_charged(homes, likely)
            + (not set(chosen.clients) <= set(likely))
        )
    return {
        "twice_nodes": number,
        "twice_seconds": seconds,
        "twice_cpu_seconds": work,
        "twice_wrong": int(wrong),
        "twice_peak_mb": peak_mb(),
    }


def measure_stages(number: int, *, k: int = 10) -> dict[str, Any]:
    """One plan with two stages, ε = 0.1 and 1, in one call: everybody answers, a tenth on a shortlist again, choice."""
    from fedwise.flower import InProcessGrid, release_app, select_federation

    _hush()
    plan = fw.plan(open_schema(), epsilon=1.0, stages=[0.1, 1.0])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        homes = make_owners(root, number, budget=1.0)
        grid = InProcessGrid(release_app(), [{"policy": str(home / "policy.toml")} for home in homes])
        asked = max(number // 10, k)
        began, worked = time.perf_counter(), time.process_time()
        federation = select_federation(
            grid, plan, k=k, poll=0.05, timeout=3600, min_releases=number, save=root / "releases", evidence="none",
            shortlist={"size": asked},
        )  # fmt: skip
        seconds, work = time.perf_counter() - began, time.process_time() - worked
        direct = fw.select(fw.Pool.load(root / "releases"), k, seed=0, evidence="none")
        spent = {one.client: one.stage for one in federation.pool.spendings}
        twice = [name for name, stage in spent.items() if stage == 2]
        wrong = (
            len(federation.absent)
            + abs(len(twice) - asked)
            + _wrongly_charged(homes, twice)
            + (direct.clients != federation.selection.clients)
            + (direct.loss != federation.selection.loss)
        )
    return {
        "stages_nodes": number,
        "stages_asked_again": len(twice),
        "stages_seconds": seconds,
        "stages_cpu_seconds": work,
        "stages_wrong": int(wrong),
        "stages_peak_mb": peak_mb(),
    }


def _hush() -> None:
    """Several lines for every node otherwise."""
    for name in ("flwr", "fedwise"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _wrongly_charged(homes: Sequence[Path], twice: Sequence[str]) -> int:
    """Owners whose ledger has not one charge for each question."""
    from fedwise.owner.ledger import Ledger

    charged = {home.name: len(Ledger(home / "book.db").history()) for home in homes}
    return sum(count != 1 + (name in twice) for name, count in charged.items())


def questions(clients: Sequence[str], users: int, each: int) -> list[list[dict[str, Any]]]:
    """What every user asks: sizes, weights and constraints that no other user has."""
    rng = np.random.default_rng(2)
    asked = []
    for _ in range(users):
        mine = []
        for _ in range(each):
            names = rng.permutation(clients)[:3].tolist()
            weights = dict(
                zip(("alpha", "beta", "gamma", "lam"), rng.uniform(0.1, 3.0, 4).tolist(), strict=True)
            )
            size = int(rng.integers(2, min(8, len(clients) - 2)))
            mine.append({"k": size, "weights": weights, "include": names[:1], "exclude": names[1:]})
        asked.append(mine)
    return asked


def measure_explorer(
    users: int, *, clients: int = 24, each: int = 5, patient: int | None = None
) -> dict[str, Any]:
    """Users who ask at the same time: quick answers while they move sliders, then the final one.

    `patient` users wait for the final answer; default all.
    """
    from fedwise.explore.question import Question
    from fedwise.explore.session import METHOD, SEED, Session

    plan = fw.plan(open_schema())
    with tempfile.TemporaryDirectory() as folder:
        write_releases(Path(folder), clients, plan)
        pool = fw.Pool.load(folder)
        asked = questions(pool.clients, users, each)
        waiting = users if patient is None else patient
        alone = Session(pool)
        expected = []
        for mine in asked:
            decoded = [Question.decode(json.dumps(question)) for question in mine]
            quick = [alone.answer(question) for question in decoded]
            last = decoded[-1]
            settled = None
            if len(expected) < waiting:
                settled = fw.select(
                    pool, last.k, weights=last.weights, method=METHOD, seed=SEED, **last.constraints
                )
            expected.append((quick, settled))
        words = [sys.executable, "-m", "fedwise.cli.main", "explore", folder, "--no-open", "--json"]
        server = subprocess.Popen(words, stdout=subprocess.PIPE)
        try:
            where = _read_address(server)
            began = time.perf_counter()
            with ThreadPoolExecutor(users) as crowd:
                heard = list(crowd.map(lambda i: _use(where, i, asked[i], patient=i < waiting), range(users)))
            seconds = time.perf_counter() - began
            peak = _peak_of(server.pid)
        finally:
            server.terminate()
            server.wait(60)
            assert server.stdout is not None
            server.stdout.close()
    wrong = 0
    for (quick, settled), (answers, final, _) in zip(expected, heard, strict=True):
        wrong += sum(_differs(theirs, ours) for theirs, ours in zip(answers, quick, strict=True))
        if settled is not None:
            ours = json.loads(settled.encode())
            wrong += {**final.get("selection", {}), "seconds": 0} != {**ours, "seconds": 0}
    quick_ms = [seconds * 1000 for _, _, spent in heard for seconds in spent[:each]]
    settled_ms = [seconds * 1000 for _, _, spent in heard for seconds in spent[each:]]
    return {
        "explorer_users": users,
        "explorer_answers": users * each + waiting,
        "explorer_seconds": seconds,
        "explorer_wrong": int(wrong),
        "explorer_quick_p50_ms": float(np.percentile(quick_ms, 50)),
        "explorer_quick_p95_ms": float(np.percentile(quick_ms, 95)),
        "explorer_settled_p50_ms": float(np.percentile(settled_ms, 50)),
        "explorer_settled_p95_ms": float(np.percentile(settled_ms, 95)),
        "explorer_peak_mb": peak,
    }


def _differs(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Whether an answer is another than the one computed alone; the time and the command line aside."""
    drop = {"seconds", "command"}
    plain = json.loads(msgspec.json.encode(ours))
    return {k: v for k, v in theirs.items() if k not in drop} != {
        k: v for k, v in plain.items() if k not in drop
    }


def _read_address(server: subprocess.Popen[bytes]) -> tuple[str, int, str]:
    assert server.stdout is not None
    text = b""
    while not text.rstrip().endswith(b"}"):
        line = server.stdout.readline()
        if not line:
            raise RuntimeError("the explorer did not start")
        text += line
    url = json.loads(text)["url"]
    host, _, rest = url.removeprefix("http://").partition(":")
    port, _, path = rest.partition("/")
    return host, int(port), "/" + path


def _use(
    where: tuple[str, int, str], user: int, asked: list[dict[str, Any]], *, patient: bool
) -> tuple[list[dict[str, Any]], dict[str, Any], list[float]]:
    """One user's page: every question, then for the `patient` the final answer to the last; and seconds of each."""
    host, port, path = where
    connection = http.client.HTTPConnection(host, port, timeout=600)
    answers, spent = [], []
    wanted = [("answer", question) for question in asked] + [("search", asked[-1])] * patient
    for number, (route, question) in enumerate(wanted):
        began = time.perf_counter()
        connection.request(
            "POST",
            f"{path}api/{route}?page=user{user}&n={min(number, len(asked) - 1)}",
            json.dumps(question),
            {"content-type": "application/json"},
        )
        answers.append(json.loads(connection.getresponse().read()))
        spent.append(time.perf_counter() - began)
    connection.close()
    return answers[: len(asked)], answers[-1], spent


def peak_mb() -> float:
    """Largest memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _peak_of(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), float("nan"))


MEASURES = {
    "pool": measure_pool,
    "nodes": measure_nodes,
    "twice": measure_twice,
    "stages": measure_stages,
    "explorer": measure_explorer,
}


def main() -> int:
    """Measure, print, and say by the exit code whether every bound holds."""
    parser = argparse.ArgumentParser(description="Many releases, nodes and users.")
    parser.add_argument("--part", choices=tuple(MEASURES), action="append", help="only this; repeatable")
    parser.add_argument("--size", type=int, help="another number of releases, nodes or users")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    parts = options.part or list(MEASURES)
    found: dict[str, Any] = {}
    if len(parts) == 1:
        found = MEASURES[parts[0]](options.size or SIZES[parts[0]])
    else:
        for part in parts:
            words = [sys.executable, __file__, "--part", part, "--json"]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
            found |= json.loads(done.stdout)
    failed = [name for name, bound in BOUNDS.items() if name in found and found[name] > bound]
    found |= {"load_average": os.getloadavg()[0], "bounds": BOUNDS, "failed": failed}
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            bound = f"   bound {BOUNDS[name]}" if name in BOUNDS else ""
            print(f"{name:<24} {f'{value:.1f}' if isinstance(value, float) else value}{bound}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
