"""How the folder ``v0_1_0`` was made: by the code of version 0.1.0, from synthetic records only.

Run once, with a checkout of 0.1.0 first on the path, and never again by a later version::

    PYTHONPATH=<0.1.0>/src python tests/compatibility/make_v0_1_0.py tests/compatibility/v0_1_0

The key sets of ``printed.json`` are what the commands of 0.1.0 printed with ``--json``.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import polars as pl

import fedwise as fw
from fedwise.cli.main import main
from fedwise.data import synthetic

CLIENTS = ("AK", "CA", "DE", "MD", "NY", "RI", "VA", "VT")
ROWS = 160

SCHEMA = """
name = "pay"
where = ["AGEP > 16", "WKHP >= 1"]

[columns.AGE]
role = "feature"
bins = [17, 30, 45, 60, 100]
source = ["age", "AGEP"]
model = "scaled"

[columns.SCHOOL]
role = "feature"
bins = [1, 16, 19, 21, 25]
source = "SCHL"

[columns.WORK]
role = "feature"
levels = ["self", "private", "public"]
unknown = "other"
missing = "other"

[columns.WKHP]
role = "feature"
bins = [1, 30, 41, 100]
model = "scaled"
scale = [40, 20]
missing = "other"

[columns.SEX]
role = "sensitive"
levels = [1, 2]
missing = "stop"
unknown = "stop"
model = "one-hot"

[columns.RACE]
role = "sensitive"
rule = "RAC1P == 1"

[columns.PAY]
role = "target"
rule = "PINCP_gt50k == 1"
"""

WORK = {1: "private", 2: "private", 3: "public", 4: "public", 5: "public", 6: "self", 7: "self", 8: "unpaid"}


def rows(name: str, seed: int = 0) -> pl.DataFrame:
    """Synthetic records with a column of text, some of it missing."""
    frame = synthetic.state(name, rows=ROWS, seed=seed)
    work = frame["COW"].cast(pl.Int64).replace_strict(WORK, default=None, return_dtype=pl.String)
    return frame.select("AGEP", "SCHL", "WKHP", "SEX", "RAC1P", "PINCP_gt50k").with_columns(
        work.alias("WORK")
    )


def keys(value: Any) -> Any:
    """The names in a JSON value: those of an object, and of what a list holds, at every depth."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    if isinstance(value, list):
        merged: dict[str, Any] = {}
        for inner in value:
            found = keys(inner)
            if isinstance(found, dict):
                merged.update(found)
        return [merged] if merged else []
    return None


def call(*words: object) -> str:
    """One command of 0.1.0; its standard output."""
    sys.argv = ["fedwise", *map(str, words)]
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        with redirect_stdout(out):
            main()
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise RuntimeError(f"{words} ended with {ended.code}") from None
    out.flush()
    return out.buffer.getvalue().decode()  # type: ignore[attr-defined]


def make() -> None:
    printed: dict[str, Any] = {}

    def note(name: str, *words: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(call(*words, "--json"))
        printed[name] = keys(found)
        return found

    # Schema, data and plans.
    fw.Schema.parse(SCHEMA).save("schema.toml")
    Path("data").mkdir()
    for name in CLIENTS:
        rows(name).write_csv(f"data/{name}.csv")
    Path("plans").mkdir()
    note("plan", "plan", "schema.toml", "--epsilon", "3", "-o", "plans/tight.json")
    note("draft", "plan", "--init", "data/CA.csv", "-o", "draft.toml")
    call("plan", "schema.toml", "--epsilon", "3", "--calibration", "rdp", "--allocation", "uniform", "-o",
         "plans/rdp.json")  # fmt: skip
    call("plan", "schema.toml", "--epsilon", "inf", "-o", "plans/exact.json")

    # Releases of three kinds, and the ledger of every owner beside its data.
    for name in CLIENTS:
        words = ("release", "plans/tight.json", f"data/{name}.csv", "--client", name, "--ledger",
                 f"ledgers/{name}.db", "--budget", "10", "-o", f"releases/{name}.release.json")  # fmt: skip
        Path("ledgers").mkdir(exist_ok=True)
        note("release", *words) if name == "AK" else call(*words)
        call("release", "plans/tight.json", f"data/{name}.csv", "--client", name, "--simulated", "--seed", "1",
             "-o", f"simulated/{name}.release.json")  # fmt: skip
        call("release", "plans/exact.json", f"data/{name}.csv", "--client", name, "-o",
             f"exact/{name}.release.json")  # fmt: skip
    call("release", "plans/rdp.json", "data/CA.csv", "--client", "CA", "--ledger", "ledgers/CA.db", "-o",
         "second/CA.release.json")  # fmt: skip
    note("inspect", "inspect", "releases")
    note("inspect one", "inspect", "releases/CA.release.json")
    note("budget", "budget", "ledgers/CA.db")
    for name in set(CLIENTS) - {"AK", "CA"}:
        Path(f"ledgers/{name}.db").unlink()

    # What the coordinator makes of them.
    Path("weights.toml").write_text("[weights]\nalpha = 1.5\nbeta = 2\ngamma = 0.25\nlam = 1\n")
    for kind in ("releases", "simulated", "exact"):
        found = note("select", "select", kind, "-k", "3", "--evidence", "full", "--weights", "weights.toml",
                     "-o", f"selections/{kind}.json")  # fmt: skip
        assert len(found["clients"]) == 3
    note("select sizes", "select", "releases", "-k", "2:4", "-o", "selections/sizes.json")
    found = note("frontier", "frontier", "releases", "-k", "2:4", "--pareto", "5")
    Path("frontier.json").write_text(json.dumps(found, indent=2) + "\n")

    # Runs: a pool, a selection with privacy, and one to go on with.
    small = ("--data", "data", "--schema", "schema.toml", "--model", "logistic", "--bootstrap", "20")
    note("train", "train", *small, "--pool", "releases", "-k", "3", "--rounds", "3", "-o", "runs/pool")
    note("train private", "train", *small, "--selection", "selections/releases.json", "--plan",
         "plans/tight.json", "--epsilon", "5", "--rounds", "2", "-o", "runs/private")  # fmt: skip
    call("train", *small, "--clients", "CA,NY,VT", "--rounds", "2", "--strategy", "scaffold", "-o",
         "runs/stopped")  # fmt: skip
    reopen(Path("runs/stopped"), rounds=4)
    shutil.copytree("runs/stopped", "runs/finished")
    call("train", "--resume", "-o", "runs/finished")
    note("predict", "predict", "runs/pool", "data/DE.csv", "-o", "predictions.csv")
    note("compare", "compare", *small[:6], "--federation", "three=CA,NY,VT", "--random", "1", "-k", "3",
         "--strategies", "fedavg,fedprox", "--seeds", "1", "--rounds", "2", "--workers", "1", "-o",
         "comparison.parquet")  # fmt: skip
    note(
        "audit",
        "audit",
        "schema.toml",
        "data/CA.csv",
        "--epsilon",
        "1",
        "--trials",
        "200",
        "-o",
        "audit.json",
    )
    note("report", "report", "runs/private", "--releases", "releases", "--no-frontier", "--no-forecast")
    flower_node()
    Path("printed.json").write_text(json.dumps(printed, indent=1) + "\n")


def reopen(run: Path, *, rounds: int) -> None:
    """As a run of more rounds that was stopped: its checkpoint is there, its model is not."""
    config = json.loads((run / "config.json").read_text())
    config["config"]["rounds"] = rounds
    (run / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (run / "model.safetensors").unlink()


def flower_node() -> None:
    """A node's policy, its ledger with the release kept beside it, and its record of training rounds."""
    from fedwise.flower.allowance import Allowance
    from fedwise.flower.policy import Policy
    from fedwise.flower.shelf import Shelf
    from fedwise.train.encoding import Encoder
    from fedwise.train.local import Instruction, Settings
    from fedwise.train.model import Model

    Path("node").mkdir()
    Path("node/policy.toml").write_text(
        'client = "CA"\nschema = "../schema.toml"\ndata = "../data/CA.csv"\nledger = "budget.db"\n'
        "max_epsilon = 3.0\nbudget_epsilon = 4.0\nbudget_delta = 1e-5\n"
        "train_epsilon = 2.0\ntrain_rounds = 5\n"
    )
    policy = Policy.load("node/policy.toml")
    plan = fw.Plan.load("plans/tight.json")
    shelf = Shelf(Path("node/budget.db"))
    with shelf.locked():
        made = fw.release(plan, policy.data, client=policy.client, ledger=policy.open_ledger())
        shelf.keep(made)
    encoder = Encoder(plan.schema)
    encoded = encoder.encode(policy.data)
    model = Model.named("logistic", encoder.width)
    for number in (1, 2):
        Allowance(policy).update(
            model, model.initial(0), encoded, instruction=Instruction(Settings()), client="CA", round=number
        )


if __name__ == "__main__":
    assert fw.__version__ == "0.1.0"
    assert not (Path(fw.__file__).parent / "owner").exists(), "this is not the code of 0.1.0"
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    make()
