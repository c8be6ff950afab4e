"""The privacy audit of the paper's appendix, on the code that really draws the noise.

    python experiments/audit.py            # 200 audits over tasks, ε, attacks and modes
    python experiments/audit.py --quick

Writes AUC and TPR against ε, ROC curves, and the table that explains the paper's noise scales.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parent))

import census
from store import CACHE, RESULTS, Store, write_table

from fedwise.auditing.audit import audit
from fedwise.data import acs, synthetic
from fedwise.planning import plan
from fedwise.privacy.scales import calibrate
from fedwise.schema.schema import Schema

TASKS = ("income2018", "employment2024", "coverage2024", "travel2024")
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
MODES: dict[str, dict[str, str]] = {
    "default": {},
    "paper mode": {"calibration": "rdp", "allocation": "uniform"},
}
DELTA = 1e-5
RECORDS = 25_000
AUDITS = 200

#: The paper's table of optimal federations: task, features it counts, noise scale it prints.
PRINTED = (
    ("ACSIncome", 10, 39.81),
    ("ACSEmployment", 16, 60.62),
    ("ACSPublicCoverage", 19, 71.02),
    ("ACSTravelTime", 16, 60.62),
)


def sigma(tables: int, *, calibration: str, epsilon: float = 1.0) -> float:
    """Noise scale of each of `tables` tables that share one promise evenly."""
    return float(calibrate(epsilon, DELTA, np.full(tables, 1.0 / tables), calibration=calibration)[0][0])


def explain_scales() -> pl.DataFrame:
    """The paper's scales: M = C(K+2, 2) tables by the RDP closed form, where K features and a label have C(K+1, 2).

    K is the number of features the paper prints; one of them is the sensitive attribute, so the variables are
    K features and the label. Two more than K were counted.
    """
    lines = []
    for task, features, printed in PRINTED:
        counted, real = math.comb(features + 2, 2), math.comb(features + 1, 2)
        lines.append(
            {
                "task": task,
                "features": features,
                "printed": printed,
                "tables_counted": counted,
                "sigma_counted": sigma(counted, calibration="rdp"),
                "tables_real": real,
                "sigma_real": sigma(real, calibration="rdp"),
                "sigma_tight": sigma(real, calibration="tight"),
            }
        )
    return pl.DataFrame(lines)


def records(name: str, folder: Path | None) -> tuple[pl.DataFrame, Schema]:
    """25,000 records of a task, drawn evenly from all states together."""
    source = census.SOURCES[name]
    if source.file:
        loaded = acs.read(source.task, (folder or census.RECORDS) / source.file, year=source.year)
        rows, schema = pl.concat(loaded.clients.values()), loaded.schema
    else:
        rows, schema = pl.concat(synthetic.states(seed=1, scale=0.02).values()), synthetic.schema()
    return rows.sample(min(RECORDS, rows.height), seed=0), schema


def run(
    tasks: Sequence[str], *, audits: int, trials: int, store: Store, folder: Path | None = None,
    epsilons: Sequence[float] = EPSILONS, out: Path | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """The grid of tasks, ε, attacks and modes, repeated until there are `audits`; written to `out` on the way."""
    grid = [
        (task, epsilon, attack, mode)
        for task in tasks
        for epsilon in epsilons
        for mode in MODES
        for attack in ("single", "joint")
    ]
    data: dict[str, tuple[pl.DataFrame, Schema]] = {}
    answers = []
    for number in range(max(audits, len(grid))):
        task, epsilon, attack, mode = grid[number % len(grid)]
        seed = number // len(grid)

        def answer(
            task: str = task,
            epsilon: float = epsilon,
            attack: Any = attack,
            mode: str = mode,
            seed: int = seed,
        ) -> Any:
            if task not in data:
                data[task] = records(task, folder)
            rows, schema = data[task]
            made = plan(schema, epsilon, delta=DELTA, **MODES[mode])
            return msgspec.to_builtins(audit(made, rows, attack=attack, trials=trials, seed=seed))

        question = {"what": "audit/1", "task": task, "epsilon": epsilon, "attack": attack, "mode": mode,
                    "seed": seed, "trials": trials}  # fmt: skip
        found = store.get(question, answer)
        answers.append({"task": task, "mode": mode, "seed": seed, **found})
        if number % 10 == 9:
            print(f"[audit] {number + 1} done", flush=True)
            if out is not None:
                write(answers, out)
    return answers


def write(found: Sequence[dict[str, Any]], out: Path) -> None:
    """The audits as a table, and the ROC curves of the first round."""
    flat = pl.DataFrame([{key: value for key, value in line.items() if key != "roc"} for line in found])
    columns = (
        "task", "mode", "attack", "epsilon", "seed", "trials", "auc", "auc_std_error", "auc_theory",
        "tpr_at_1_percent", "tpr_theory", "epsilon_lower_bound", "ok",
    )  # fmt: skip
    write_table(flat.select(columns), out / "audit.csv")
    roc = [
        {"task": line["task"], "mode": line["mode"], "attack": line["attack"], "epsilon": line["epsilon"],
         "fpr": fpr, "tpr": tpr, "theory": theory}
        for line in found
        if line["seed"] == 0 and line["epsilon"] in (0.1, 1.0, 5.0)
        for fpr, tpr, theory in zip(line["roc"]["fpr"], line["roc"]["tpr"], line["roc"]["theory"], strict=True)
    ]  # fmt: skip
    write_table(pl.DataFrame(roc), out / "audit_roc.csv")
    write_table(explain_scales(), out / "noise_scales.csv")


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one task, 20 audits of 200 targets")
    parser.add_argument("--tasks", default=None)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--cache", type=Path, default=CACHE / "audits")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    tasks = options.tasks.split(",") if options.tasks else list(TASKS[:1] if options.quick else TASKS)
    tasks = [task if census.available(task, options.data) else "synthetic" for task in tasks]
    found = run(
        list(dict.fromkeys(tasks)), audits=20 if options.quick else AUDITS, trials=200 if options.quick else 1000,
        store=Store(options.cache), folder=options.data, out=options.out,
    )  # fmt: skip
    write(found, options.out)
    worst = max(line["epsilon_lower_bound"] / line["epsilon"] for line in found)
    print(f"[audit] {len(found)} audits, largest lower bound {worst:.0%} of the promise", flush=True)


if __name__ == "__main__":
    main()
