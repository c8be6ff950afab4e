"""The privacy audit of the paper's appendix, on the code that really draws the noise.

    python experiments/audit.py            # 200 audits over tasks, ε, attacks and modes
    python experiments/audit.py --quick
    python experiments/audit.py --power    # only how often noise too small is found, by each bound

Writes AUC and TPR against ε, ROC curves, the table that explains the paper's noise scales, and the power of the bounds.
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

from fedwise.auditing.audit import TOLERANCE, audit
from fedwise.auditing.canaries import REACH
from fedwise.auditing.gaussian import mu_bound
from fedwise.auditing.rates import auc, auc_theory, epsilon_lower_bound
from fedwise.auditing.releases import STATISTICAL
from fedwise.data import acs, synthetic
from fedwise.planning import plan
from fedwise.privacy.scales import calibrate, gaussian_mu
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
#: The power study: budgets, and what the noise is divided by.
POWER_EPSILONS = (0.5, 1.0, 2.0)
FACTORS = (1.0, 1.2, 1.5, 2.0, 4.0)

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


def power(*, audits: int = 400, seed: int = 0) -> pl.DataFrame:
    """How often each test of an audit finds noise divided by a factor; a factor of 1 is an honest release.

    Scores are drawn from their law, N(0, 1) and N(gμ, 1): the checks themselves are the library's. The two old ones
    see 1,000 single targets in and out at confidence 0.999. The bound on μ sees 100 releases with and without a
    repeated canary, with its share of the same risk.
    """
    rng = np.random.default_rng(seed)
    lines = []
    for epsilon in POWER_EPSILONS:
        mu = gaussian_mu(epsilon, DELTA)
        copies, share = math.ceil(REACH / mu), 0.001 / STATISTICAL / 5
        for factor in FACTORS:
            seen = {"epsilon_bound": 0, "auc_check": 0, "mu_bound": 0}
            for _ in range(audits):
                inside, outside = rng.normal(factor * mu, 1, 1000), rng.normal(0, 1, 1000)
                seen["epsilon_bound"] += epsilon_lower_bound(inside, outside, delta=DELTA) > epsilon
                area, error = auc(inside, outside)
                seen["auc_check"] += area - auc_theory(np.array([mu])) > TOLERANCE * error
                inside, outside = rng.normal(copies * factor * mu, 1, 100), rng.normal(0, 1, 100)
                seen["mu_bound"] += mu_bound(inside, outside, share, copies=copies) > mu
            found = {name: hits / audits for name, hits in seen.items()}
            lines.append({"epsilon": epsilon, "factor": factor, "audits": audits, "copies": copies, **found})
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
    parser.add_argument("--power", action="store_true", help="only the power of the bounds")
    parser.add_argument("--tasks", default=None)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--cache", type=Path, default=CACHE / "audits")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if not options.quick:
        write_table(power(), options.out / "audit_power.csv")
    if options.power:
        return
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
