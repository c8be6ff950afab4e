"""fedwise demo: the whole story on synthetic states, in about a minute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import JsonOption, SeedOption, note, print_json, print_table, progress, say
from .inputs import bar

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from ..pool.pool import Pool
    from ..schema.schema import Schema
    from ..search import Selection

    Tell = Callable[[object], None]


#: Metrics of the closing table, with their headings.
_SHOWN = {"balanced_accuracy": "balanced accuracy", "f1": "F1", "spd": "SPD", "eod": "EOD"}


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for everything the demo makes.")
    ] = Path("demo"),
    k: Annotated[int, typer.Option("-k", "--size", help="Size of the federation.")] = 5,
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Privacy budget of each release.")] = 1.0,
    scale: Annotated[float, typer.Option("--scale", help="Share of the states' natural sizes.")] = 1.0,
    rounds: Annotated[int, typer.Option("--rounds", help="Training rounds; 0 leaves training out.")] = 5,
    rehearsal: Annotated[
        bool,
        typer.Option("--rehearsal/--no-rehearsal", help="Rehearse the chosen federation (some seconds)."),
    ] = True,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Run the whole story on 50 synthetic states: plan, release, select, rehearse, train, report.

    Example: fedwise demo
    """
    began = time.perf_counter()
    # The story is the result, unless a machine asked for one object.
    tell = note if json else say
    rounds = _rounds(rounds, tell)
    output.mkdir(parents=True, exist_ok=True)
    tell("fedwise demo: choose who trains before anyone trains\n")
    schema, clients = _clients(output, scale, seed, tell)
    pool = _releases(output, schema, clients, epsilon, tell)
    selection = _select(output, pool, k, seed, tell)
    verdict = rehearse_demo(output, pool, selection, seed, tell) if rehearsal else None
    outcome = _train(output, schema, clients, selection, rounds, seed, tell) if rounds > 0 else None
    report = _report(output, tell)
    seconds = time.perf_counter() - began
    if json:
        print_json(
            {
                "output": str(output),
                "clients": selection.clients,
                "loss": selection.loss,
                "rehearsal": verdict,
                "training": outcome,
                "report": str(report) if report else None,
                "seconds": seconds,
                "synthetic": True,
            }
        )
        return
    tell(f"\ndone in {seconds:.0f} s. Everything is in {output}/")
    if report is not None:
        tell(f"open the report: {report}")
    tell(
        f"explore the trade-offs in a browser: fedwise explore {output}/releases\n"
        "All people in this demo are synthetic. Use your own data: docs/quickstart.md"
    )


def _rounds(asked: int, tell: Tell) -> int:
    """No rounds where training is not installed, said before anything is done."""
    from ..errors import MissingExtra
    from ..training.model import check_extra

    try:
        check_extra()
    except MissingExtra:
        if asked > 0:
            tell("training (step 5) is left out: it needs pip install 'fedwise[train]'")
        return 0
    return asked


def _clients(output: Path, scale: float, seed: int, tell: Tell) -> tuple[Schema, dict[str, pl.DataFrame]]:
    from ..data import synthetic

    schema = synthetic.schema()
    clients = synthetic.states(seed=seed, scale=scale)
    folder = output / "clients"
    folder.mkdir(exist_ok=True)
    schema.save(output / "schema.toml", force=True)
    for name, frame in clients.items():
        frame.write_parquet(folder / f"{name}.parquet")
    rows = sum(frame.height for frame in clients.values())
    tell(f"1. {len(clients)} synthetic states hold {rows:,} records that must not leave ({folder}/)")
    return schema, clients


def _releases(
    output: Path, schema: Schema, clients: dict[str, pl.DataFrame], epsilon: float, tell: Tell
) -> Pool:
    import shutil
    from functools import partial

    from ..data.split import split
    from ..owner.answer import answer
    from ..owner.archive import Archive
    from ..owner.ledger import Ledger
    from ..owner.release import SUFFIX
    from ..planning import plan as make_plan
    from ..pool.pool import Pool

    plan = make_plan(schema, epsilon)
    plan.save(output / "plan.json", force=True)
    tell(
        f"2. the plan asks each state for {len(plan.tables)} tables with noise: epsilon {epsilon:g}, delta "
        f"{plan.delta:g} for all of them together (plan.json)"
    )
    ledgers = output / "ledgers"
    ledgers.mkdir(exist_ok=True)
    with progress() as bar:
        task = bar.add_task("3. releasing", total=len(clients), best="")
        for name, frame in clients.items():
            path = ledgers / f"{name}.db"
            # A second run of the demo has new data, so each state starts a new ledger.
            for file in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
                file.unlink(missing_ok=True)
            archive = Archive(path)
            shutil.rmtree(archive.directory, ignore_errors=True)
            training, _ = split(frame, client=name)
            answer(
                plan,
                training,
                client=name,
                ledger=partial(Ledger, path, epsilon, plan.delta),
                archive=archive,
                output=output / "releases" / f"{name}{SUFFIX}",
                force=True,
            )
            bar.update(task, advance=1, best=name)
    pool = Pool.load(output / "releases")
    tell(
        f"3. {len(pool)} states released noisy tables; each charged its own ledger first; all pass the "
        "consistency screen"
    )
    return pool


def _select(output: Path, pool: Pool, k: int, seed: int, tell: Tell) -> Selection:
    from ..search import select

    with progress() as bar:
        task = bar.add_task("4. searching", total=1, best="")

        def show(done: int, total: int, best: float) -> None:
            bar.update(task, completed=done, total=max(total, 1), best=f"best loss {best:.4f}")

        selection = select(pool, k, seed=seed, progress=show)
    selection.save(output / "selection.json", force=True)
    tell(f"4. the best federation of {k}, from noisy tables alone (selection.json):\n")
    tell(selection)
    return selection


def rehearse_demo(output: Path, pool: Pool, selection: Selection, seed: int, tell: Tell) -> str | None:
    """A quick rehearsal of the chosen federation: its file for the report, and its verdict."""
    from ..errors import MissingExtra
    from ..rehearsal.quick import quick_rehearsal

    try:
        with bar("5. rehearsing", "AUC") as best:
            found = quick_rehearsal(selection, pool, seed=seed, progress=best)
    except (ImportError, MissingExtra):
        tell("\n5. rehearsal left out: it needs pip install 'fedwise[train]'")
        return None
    if found is None:
        return None
    found.save(output / "rehearsal.json", force=True)
    tell(f"\n5. rehearsed on artificial doubles of the states, before anyone trains: {found.verdict()}")
    return found.verdict()


def _train(
    output: Path,
    schema: Schema,
    clients: dict[str, pl.DataFrame],
    selection: Selection,
    rounds: int,
    seed: int,
    tell: Tell,
) -> dict[str, Any] | None:
    import numpy as np
    import polars as pl

    from ..errors import MissingExtra

    try:
        from ..training.comparison import jobs, train_jobs
        from ..training.federation import prepare
        from ..training.simulate import Config

        prepared = prepare(clients, schema)
    except (ImportError, MissingExtra):
        tell("6. training left out: it needs pip install 'fedwise[train]'")
        return None
    rng = np.random.default_rng(seed)
    federations = {"chosen": list(selection.clients)}
    for number in (1, 2, 3):
        drawn = rng.choice(sorted(clients), len(selection.clients), replace=False)
        federations[f"random {number}"] = sorted(drawn.tolist())
    config = Config(rounds=rounds, seed=seed, replicates=100)
    work = jobs(federations, strategies=["fedavg"], samplers=["full"], seeds=[seed], config=config)
    with progress() as bar:
        task = bar.add_task("6. training", total=len(work), best="")
        table = train_jobs(
            prepared,
            work,
            on_done=lambda job, _: bar.update(task, advance=1, best=f"{job.federation} trained"),
        )
    table.write_parquet(output / "comparison.parquet")
    final = table.filter((pl.col("round") == rounds) & (pl.col("rows") == "all"))
    outcome, rows = {}, []
    for label, members in federations.items():
        own = final.filter(pl.col("federation") == label)
        found = {m: float(own.filter(pl.col("metric") == m)["value"][0]) for m in _SHOWN}
        outcome[label] = {"federation": members, **found}
        rows.append([label, ", ".join(members), *(f"{found[m]:.4f}" for m in _SHOWN)])
    if tell is say:
        print_table(
            f"6. {rounds} rounds of FedAvg each, tested on the same held-out rows of all {len(clients)} states",
            ["federation", "clients", *_SHOWN.values()],
            rows,
            right=list(_SHOWN.values()),
        )
    return outcome


def _report(output: Path, tell: Tell) -> Path | None:
    try:
        from ..reporting import report as build
    except ImportError:
        return None
    path = output / "report.html"
    build(output, path, force=True)
    tell(f"7. report written to {path}")
    return path
