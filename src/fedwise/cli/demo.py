"""fedwise demo: the whole story on synthetic states, in about a minute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import JsonOption, SeedOption, print_json, print_table, progress, stderr

if TYPE_CHECKING:
    import polars as pl

    from ..pool import Pool
    from ..schema import Schema
    from ..search import Selection


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for everything the demo makes.")
    ] = Path("demo"),
    k: Annotated[int, typer.Option("--k", "-k", help="Size of the federation.")] = 5,
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy budget of each release.")] = 1.0,
    scale: Annotated[float, typer.Option("--scale", help="Share of the states' natural sizes.")] = 0.25,
    rounds: Annotated[int, typer.Option("--rounds", help="Training rounds; 0 leaves training out.")] = 5,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Run the whole story on 50 synthetic states: plan, release, select, train, report.

    Example: fedwise demo
    """
    began = time.perf_counter()
    console = stderr()
    output.mkdir(parents=True, exist_ok=True)
    console.print("[bold]fedwise demo[/bold]: choose who trains before anyone trains\n")
    schema, clients = _clients(output, scale, seed)
    pool = _releases(output, schema, clients, epsilon)
    selection = _select(output, pool, k, seed)
    outcome = _train(output, schema, clients, selection, rounds, seed) if rounds > 0 else None
    report = _report(output)
    seconds = time.perf_counter() - began
    if json:
        print_json(
            {
                "output": str(output),
                "clients": selection.clients,
                "loss": selection.loss,
                "training": outcome,
                "report": str(report) if report else None,
                "seconds": seconds,
                "synthetic": True,
            }
        )
        return
    console.print(f"\ndone in {seconds:.0f} s. Everything is in {output}/", markup=False)
    if report is not None:
        console.print(f"open the report: {report}", markup=False)
    console.print(
        f"explore the trade-offs in a browser: fedwise explore {output}/releases\n"
        "All people in this demo are synthetic. Use your own data: docs/quickstart.md",
        markup=False,
    )


def _clients(output: Path, scale: float, seed: int) -> tuple[Schema, dict[str, pl.DataFrame]]:
    from ..data import synthetic

    schema = synthetic.schema()
    clients = synthetic.states(seed=seed, scale=scale)
    folder = output / "clients"
    folder.mkdir(exist_ok=True)
    schema.save(output / "schema.toml")
    for name, frame in clients.items():
        frame.write_parquet(folder / f"{name}.parquet")
    rows = sum(frame.height for frame in clients.values())
    stderr().print(
        f"1. {len(clients)} synthetic states hold {rows:,} records that must not leave ({folder}/)",
        markup=False,
    )
    return schema, clients


def _releases(output: Path, schema: Schema, clients: dict[str, pl.DataFrame], epsilon: float) -> Pool:
    from ..data.split import split
    from ..plan import plan as make_plan
    from ..pool import Pool
    from ..privacy.ledger import Ledger
    from ..release import SUFFIX
    from ..release import release as make_release

    console = stderr()
    plan = make_plan(schema, epsilon)
    plan.save(output / "plan.json", force=True)
    console.print(
        f"2. the plan asks each state for {len(plan.tables)} tables with noise: epsilon {epsilon:g}, delta "
        f"{plan.delta:g} for all of them together (plan.json)",
        markup=False,
    )
    ledgers = output / "ledgers"
    ledgers.mkdir(exist_ok=True)
    with progress() as bar:
        task = bar.add_task("3. releasing", total=len(clients), best="")
        for name, frame in clients.items():
            book = ledgers / f"{name}.db"
            # A second run of the demo starts a new story with new data, so each state gets a new book.
            for file in (book, book.with_name(book.name + "-wal"), book.with_name(book.name + "-shm")):
                file.unlink(missing_ok=True)
            training, _ = split(frame, client=name)
            made = make_release(
                plan, training, client=name, ledger=Ledger(book, epsilon=epsilon, delta=plan.delta)
            )
            made.save(output / "releases" / f"{name}{SUFFIX}", force=True)
            bar.update(task, advance=1, best=name)
    pool = Pool.load(output / "releases")
    console.print(
        f"3. {len(pool)} states released noisy tables; each charged its own ledger first; all pass the "
        "consistency screen",
        markup=False,
    )
    return pool


def _select(output: Path, pool: Pool, k: int, seed: int) -> Selection:
    from ..search import select

    with progress() as bar:
        task = bar.add_task("4. searching", total=1, best="")

        def show(done: int, total: int, best: float) -> None:
            bar.update(task, completed=done, total=max(total, 1), best=f"best loss {best:.4f}")

        selection = select(pool, k, seed=seed, progress=show)
    selection.save(output / "selection.json", force=True)
    stderr().print(
        f"4. the best federation of {k}, from noisy tables alone (selection.json):\n", markup=False
    )
    stderr().print(str(selection), markup=False)
    return selection


def _train(
    output: Path,
    schema: Schema,
    clients: dict[str, pl.DataFrame],
    selection: Selection,
    rounds: int,
    seed: int,
) -> dict[str, Any] | None:
    import numpy as np

    from ..errors import MissingExtra

    console = stderr()
    try:
        from ..train.federation import prepare
        from ..train.simulate import Config, simulate

        prepared = prepare(clients, schema)
    except (ImportError, MissingExtra):
        console.print("5. training left out: it needs pip install 'fedwise[train]'", markup=False)
        return None
    rng = np.random.default_rng(seed)
    names = sorted(clients)
    federations = {"chosen": list(selection.clients)}
    for number in (1, 2, 3):
        federations[f"random {number}"] = sorted(
            rng.choice(names, len(selection.clients), replace=False).tolist()
        )
    config = Config(rounds=rounds, seed=seed, evaluate_every=1, replicates=100)
    attribute = schema.columns[schema.sensitive[0]].name
    rows, outcome = [], {}
    with progress() as bar:
        task = bar.add_task("5. training", total=rounds * len(federations), best="")
        for label, federation in federations.items():
            bar.update(task, best=label)
            run = simulate(prepared, federation, config, on_round=lambda _: bar.update(task, advance=1))
            found = {
                "federation": federation,
                "balanced_accuracy": run.value("balanced_accuracy"),
                "f1": run.value("f1"),
                "spd": run.value("spd", attribute=attribute),
                "eod": run.value("eod", attribute=attribute),
            }
            outcome[label] = found
            rows.append(
                [
                    label,
                    ", ".join(federation),
                    *(f"{found[m]:.4f}" for m in ("balanced_accuracy", "f1", "spd", "eod")),
                ]
            )
    print_table(
        f"5. {rounds} rounds of FedAvg each, tested on the same held-out rows of all {len(clients)} states",
        ["federation", "clients", "balanced accuracy", "F1", "SPD", "EOD"],
        rows,
        right=["balanced accuracy", "F1", "SPD", "EOD"],
    )
    return outcome


def _report(output: Path) -> Path | None:
    try:
        from ..report import build_report
    except ImportError:
        return None
    path = output / "report.html"
    build_report(output, path)
    stderr().print(f"6. report written to {path}", markup=False)
    return path
