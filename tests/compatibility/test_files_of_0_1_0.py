"""Files of 0.1.0: all of them are still read, and the commands still print what they printed then."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.cli.main import main

FILES = Path(__file__).parent / "v0_1_0"
ROOT = Path(__file__).parents[2]
CLIENTS = ("AK", "CA", "DE", "MD", "NY", "RI", "VA", "VT")
PRINTED: dict[str, Any] = json.loads((FILES / "printed.json").read_text())

Command = Callable[..., str]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, and the place where commands run."""
    folder = tmp_path / "old"
    shutil.copytree(FILES, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Standard output of a command that ends well."""

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["fedwise", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        assert ended.value.code in (None, 0), shown.err
        return shown.out

    return run


def lacking(then: Any, now: Any, at: str = "") -> list[str]:
    """Names of 0.1.0 that are not in what is printed now. Objects keyed by client are looked at as values."""
    if isinstance(then, dict):
        if not isinstance(now, dict):
            return [f"{at} is no object"]
        return [
            line
            for name, inner in then.items()
            if name not in CLIENTS
            for line in ([f"{at}.{name}"] if name not in now else lacking(inner, now[name], f"{at}.{name}"))
        ]
    if isinstance(then, list) and then:
        merged: dict[str, Any] = {}
        for item in now if isinstance(now, list) else []:
            merged.update(item if isinstance(item, dict) else {})
        return lacking(then[0], merged, f"{at}[]")
    return [] if then is None or isinstance(now, list) else [f"{at} is no list"]


def check_keys(name: str, text: str) -> dict[str, Any]:
    found = json.loads(text)
    assert lacking(PRINTED[name], found) == []
    assert isinstance(found, dict)
    return found


def test_the_check_of_names_can_fail() -> None:
    then = {"a": None, "b": [{"c": None}], "d": {"CA": None}, "e": []}
    assert lacking(then, {"a": 1, "b": [{"c": 1, "new": 2}], "d": {"NY": 1}, "e": [], "new": 3}) == []
    assert lacking(then, {"b": [{}], "d": 3, "e": 4}) == [".a", ".b[].c", ".d is no object", ".e is no list"]


def test_schema_and_plans(old: Path) -> None:
    schema = fw.Schema.load("schema.toml")
    assert schema.name == "pay"
    for kind, epsilon in (("tight", 3.0), ("rdp", 3.0), ("exact", math.inf)):
        plan = fw.Plan.load(old / "plans" / f"{kind}.json")
        assert plan.schema == schema
        assert plan.epsilon == epsilon
        # Equal digests: an owner's ledger and saved release are found again under the old plan.
        written = json.loads((old / "plans" / f"{kind}.json").read_text())
        assert plan.schema_digest == schema.digest == written["schema_digest"]
        assert plan.digest == written["digest"]
        again = fw.plan(schema, epsilon, calibration=plan.calibration, allocation=plan.allocation)
        assert again.digest == plan.digest
    with pytest.raises(fw.FedwiseError, match="levels"):
        fw.Schema.load("draft.toml")


@pytest.mark.parametrize(
    ("folder", "label"), [("releases", "private"), ("simulated", "simulated"), ("exact", "not private")]
)
def test_releases(old: Path, folder: str, label: str) -> None:
    pool = fw.Pool.load(old / folder)
    assert pool.clients == CLIENTS
    for name in CLIENTS:
        release = fw.Release.load(old / folder / f"{name}.release.json")
        assert release.client == name
        assert release.label == label
        kind = "exact" if folder == "exact" else "tight"
        assert release.plan == fw.Plan.load(old / "plans" / f"{kind}.json")


def test_exact_tables_count_as_they_did(old: Path, call: Command) -> None:
    """The rows of 0.1.0 give the codes, and so the counts, that they gave then."""
    call("release", "plans/exact.json", "data/CA.csv", "--client", "CA", "--no-privacy", "-o", "again.json")
    before, now = fw.Release.load("exact/CA.release.json"), fw.Release.load("again.json")
    assert [table.counts for table in now.tables] == [table.counts for table in before.tables]


def test_simulated_noise_is_what_it_was(old: Path, call: Command) -> None:
    words = ("--client", "NY", "--simulated", "--seed", "1", "-o", "again.json")
    call("release", "plans/tight.json", "data/NY.csv", *words)
    before, now = fw.Release.load("simulated/NY.release.json"), fw.Release.load("again.json")
    assert [table.counts for table in now.tables] == [table.counts for table in before.tables]


def test_ledgers_remember_and_refuse(old: Path, call: Command) -> None:
    one, two = fw.Ledger("ledgers/AK.db"), fw.Ledger("ledgers/CA.db")
    assert [charge.client for charge in one.history()] == ["AK"]
    assert one.balance().epsilon == 10.0
    assert one.balance().spent == pytest.approx(3.0, abs=1e-4)
    assert len(two.history()) == 2
    plans = [fw.Plan.load(f"plans/{kind}.json").digest for kind in ("tight", "rdp")]
    assert [charge.plan for charge in two.history()] == plans
    found = check_keys("budget", call("budget", "ledgers/CA.db", "--json"))
    assert found["balance"]["spent"] == pytest.approx(4.0289, abs=1e-3)
    # The old charges count: a plan that fits an empty ledger of 4 does not fit this one.
    node = fw.Ledger("node/budget.db")
    with pytest.raises(fw.FedwiseError) as caught:
        fw.release(fw.Plan.load("plans/rdp.json"), "data/CA.csv", client="CA", ledger=node)
    assert caught.value.exit_code == 3
    assert len(node.history()) == 1


def test_weights_and_selections(old: Path) -> None:
    weights = fw.Weights.load(old / "weights.toml")
    assert (weights.alpha, weights.beta, weights.gamma, weights.lam) == (1.5, 2.0, 0.25, 1.0)
    for name in ("releases", "simulated", "exact", "sizes"):
        path = old / "selections" / f"{name}.json"
        selection = fw.Selection.load(path)
        written = json.loads(path.read_text())
        assert list(selection.clients) == written["clients"]
        assert selection.loss == written["loss"]
        assert selection.terms.signal == written["terms"]["signal"]


@pytest.mark.parametrize(
    ("folder", "tolerance", "evidence"),
    [("exact", 1e-9, "full"), ("simulated", 1e-6, "none"), ("releases", 1e-6, "none")],
)
def test_the_same_federation_is_chosen(
    old: Path, call: Command, folder: str, tolerance: float, evidence: str
) -> None:
    found = json.loads(
        call("select", folder, "-k", "3", "--evidence", evidence, "--weights", "weights.toml", "--json")
    )
    before = fw.Selection.load(f"selections/{folder}.json")
    assert found["clients"] == list(before.clients)
    assert found["loss"] == pytest.approx(before.loss, abs=tolerance)
    if folder == "exact":  # the last of the three that 0.1.0 printed
        assert lacking(PRINTED["select"], found) == []


def test_json_of_the_coordinators_commands(old: Path, call: Command) -> None:
    check_keys("inspect", call("inspect", "releases", "--json"))
    check_keys("inspect one", call("inspect", "releases/CA.release.json", "--json"))
    check_keys("select sizes", call("select", "releases", "-k", "2:4", "--json"))
    found = check_keys("frontier", call("frontier", "releases", "-k", "2:4", "--pareto", "5", "--json"))
    before = json.loads((old / "frontier.json").read_text())
    assert [p["clients"] for p in found["points"]] == [p["clients"] for p in before["points"]]
    check_keys("plan", call("plan", "schema.toml", "--epsilon", "3", "--json"))
    check_keys("draft", call("plan", "--init", "data/CA.csv", "--json"))
    words = ("--client", "DE", "--ledger", "new.db", "-o", "new.json", "--json")
    check_keys("release", call("release", "plans/tight.json", "data/DE.csv", *words))


def test_runs_are_read(old: Path) -> None:
    from fedwise.training.run import Run

    for name, federation in (("pool", None), ("private", None), ("finished", ("CA", "NY", "VT"))):
        run = Run.open(old / "runs" / name)
        assert len(run.manifest.federation) == 3
        assert federation in (None, run.manifest.federation)
        assert np.isfinite(run.parameters()).all()
        assert run.metrics()["round"].max() == run.manifest.config.rounds


def test_predictions_are_what_they_were(old: Path, call: Command) -> None:
    check_keys("predict", call("predict", "runs/pool", "data/DE.csv", "-o", "again.csv", "--json"))
    before, now = pl.read_csv("predictions.csv"), pl.read_csv("again.csv")
    assert now["row"].equals(before["row"])
    assert now["prediction"].equals(before["prediction"])
    np.testing.assert_allclose(now["probability"], before["probability"], atol=1e-6)


def test_a_stopped_run_goes_on_to_the_same_end(old: Path, call: Command) -> None:
    from fedwise.training.run import Run

    call("train", "--resume", "-o", "runs/stopped")
    now, before = Run.open("runs/stopped"), Run.open("runs/finished")
    np.testing.assert_allclose(now.parameters(), before.parameters(), atol=1e-6)
    # Every line of then is there with its value; the last round has metrics that are new.
    same = before.metrics().join(now.metrics(), on=["round", "rows", "client", "metric", "attribute"])
    assert same.height == before.metrics().height < now.metrics().height
    np.testing.assert_allclose(same["value_right"], same["value"], atol=1e-6)


def test_json_of_training(old: Path, call: Command) -> None:
    small = (
        "--data",
        "data",
        "--schema",
        "schema.toml",
        "--model",
        "logistic",
        "--bootstrap",
        "20",
        "--json",
    )
    check_keys("train", call("train", *small, "--pool", "releases", "-k", "3", "--rounds", "1", "-o", "run"))
    words = ("--selection", "selections/releases.json", "--plan", "plans/tight.json", "--epsilon", "5")
    check_keys("train private", call("train", *small, *words, "--rounds", "1", "-o", "private"))
    words = ("--federation", "three=CA,NY,VT", "--strategies", "fedavg", "--seeds", "1", "--rounds", "1")
    text = call("compare", *small[:6], *words, "--workers", "1", "-o", "c.parquet", "--json")
    check_keys("compare", text)
    assert set(pl.read_parquet_schema("comparison.parquet")) <= set(pl.read_parquet_schema("c.parquet"))


def test_json_of_audit(old: Path, call: Command) -> None:
    words = ("--epsilon", "1", "--trials", "200", "--json")
    check_keys("audit", call("audit", "schema.toml", "data/CA.csv", *words))


@pytest.mark.parametrize("page", ["runs/private", "runs/finished", "selections/exact.json"])
def test_reports_of_old_runs_and_selections(old: Path, call: Command, page: str) -> None:
    releases = "exact" if "exact" in page else "releases"
    words = ("--releases", releases, "--no-frontier", "--no-forecast")
    text = call(
        "report", page, *words, "--audit", "audit.json", "--comparison", "comparison.parquet", "--json"
    )
    if page == "runs/private":
        check_keys("report", text)
    call("report", page, *words, "-o", "page.html")
    assert "<html" in (old / "page.html").read_text(encoding="utf-8")


def test_a_flower_node_goes_on_where_it_was(old: Path) -> None:
    """The policy is read, the kept release is sent again, and rounds begun under 0.1.0 count."""
    from flower import quiet as _  # noqa: F401, I001  (flwr logs while it is imported)
    from flwr.serverapp.strategy import FedAvg

    from fedwise.flower import InProcessGrid, Policy, release_app, select_federation, train_app
    from fedwise.flower.training import write_vector
    from fedwise.training.encoding import Encoder
    from fedwise.training.local import Settings
    from fedwise.training.model import Model
    from flower.kit import first

    policy = Policy.load("node/policy.toml")
    assert (policy.client, policy.train_rounds) == ("CA", 5)
    plan = fw.Plan.load("plans/tight.json")
    model = Model.named("logistic", Encoder(plan.schema).width)
    app = release_app(policy="unused.toml")
    train_app(
        app, schema=plan.schema, policy="unused.toml", model=model, settings=Settings(), weight="released"
    )
    grid = InProcessGrid(app, [{"policy": "node/policy.toml"}])
    federation = select_federation(grid, plan, k=1, select=first, timeout=30, poll=0.01, grace=0.0)
    kept = next(Path("node/budget.db.releases").glob("CA-*.release.json"))
    assert np.array_equal(federation.pool.matrix, fw.Pool.of([fw.Release.load(kept)]).matrix)
    assert len(fw.Ledger("node/budget.db").history()) == 1
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    start = write_vector(model, model.initial(0))
    result = strategy.start(grid=federation.grid, initial_arrays=start, num_rounds=4, timeout=30)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]
    # The rounds that 0.1.0 counted beside the ledger are in it now, and its file with the exact count is gone.
    assert fw.Ledger("node/budget.db").balance().rounds == 5
    assert not Path("node/budget.db.releases/training.json").exists()


def test_the_six_lines_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are printed there; five more owners release before the coordinator selects."""
    from fedwise.data import schema, synthetic

    monkeypatch.chdir(tmp_path)
    schema("income").save("income.toml")
    synthetic.state("CA", rows=2000).write_parquet("people.parquet")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"## Six lines\s+```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    owner, mark, coordinator = block.group(1).partition("selection = ")
    assert mark
    space: dict[str, Any] = {}
    exec(owner, space)
    for name in ("AK", "DE", "MD", "RI", "VA"):
        ledger = fw.Ledger(f"{name}.db", epsilon=1.0, delta=1e-5)
        made = fw.release(space["plan"], synthetic.state(name, rows=2000), client=name, ledger=ledger)
        made.save(f"releases/{name}.release.json")
    exec(mark + coordinator, space)
    assert len(space["selection"].clients) == 5
    assert "certificate" in capsys.readouterr().out
