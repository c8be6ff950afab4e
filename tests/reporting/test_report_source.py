"""Where the parts of a report come from: run directories, selection files, comparisons, baselines."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import fedwise as fw
from conftest import SMALL
from fedwise.cli.report import report as command
from fedwise.reporting.source import CHOSEN, split_comparison
from fedwise.search.selection import Selection
from reporting.report_kit import make_releases, metrics

#: Files of 0.1.0, real runs among them.
OLD = Path(__file__).parents[1] / "compatibility" / "v0_1_0"


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    for number, found in enumerate(make_releases(fw.Schema.parse(SMALL))):
        found.save(folder / f"{number}.release.json")
    return folder


def test_run_directory_brings_everything(run: Path, releases: Path, selection: Selection) -> None:
    values = fw.report(run, releases=releases).values
    assert values.verdict.loss == selection.loss
    assert values.training is not None
    labels = list(dict.fromkeys(curve.label for curve in values.training.curves))
    assert labels == [CHOSEN, "Random federations", "everyone"]
    assert next(c.seeds for c in values.training.curves if c.label == "Random federations") == 2
    assert [audit.attack for audit in values.audits] == ["single", "joint"]
    assert values.digests["Training data"] == "ab" * 32
    assert values.commands[0].startswith("fedwise select elsewhere/ -k 3 --method")
    assert values.commands[1].startswith("fedwise train --data clients/ --schema run/schema.toml --selection")
    assert str(run.parent) not in json.dumps(msgspec.to_builtins(values))


def test_selection_file_alone(run: Path, releases: Path) -> None:
    values = fw.report(run / "selection.json").values
    assert values.training is None
    assert values.clients == []
    assert fw.report(run / "selection.json", releases=releases).values.clients


def test_values_in_memory_give_the_same_report_as_their_files(
    run: Path, releases: Path, selection: Selection
) -> None:
    pool = fw.Pool.load(releases)
    assert fw.report(selection, releases=pool).values.clients == fw.report(run, releases=pool).values.clients
    assert fw.report(selection).to_dict() == fw.report(run / "selection.json").to_dict()


def test_a_run_in_memory_is_its_directory(tmp_path: Path) -> None:
    place = OLD / "runs" / "private"
    page = tmp_path / "report.html"
    made = fw.report(fw.Run.open(place), page, releases=OLD / "releases", forecast=False)
    assert made.to_dict() == fw.report(place, releases=OLD / "releases", forecast=False).to_dict()
    assert made.values.training is not None
    assert page.read_text(encoding="utf-8") == made.html()
    with pytest.raises(fw.FedwiseError, match="--force"):
        fw.report(place, page, releases=OLD / "releases", forecast=False)


def test_run_of_given_clients_is_described(run: Path, releases: Path, selection: Selection) -> None:
    (run / "selection.json").unlink()
    values = fw.report(run, releases=releases).values
    assert values.verdict.method == "given"
    assert values.verdict.clients == list(selection.clients)
    assert values.verdict.loss == pytest.approx(selection.loss, abs=1e-9)
    assert "nothing is proven" in values.verdict.statement
    with pytest.raises(fw.FedwiseError, match="--releases"):
        fw.report(run)


def test_training_says_what_it_did_not_protect(run: Path) -> None:
    assert "no differential privacy" in fw.report(run).values.privacy.training[0]
    costs = [
        {
            "client": "CA",
            "selected": True,
            "release": 1.0,
            "training": 2.0,
            "joint": 2.345,
            "summed": 3.0,
            "delta": 2e-5,
        },
        {
            "client": "NY",
            "selected": False,
            "release": 1.0,
            "training": 0.0,
            "joint": 1.0,
            "summed": 1.0,
            "delta": 1e-5,
        },
    ]
    (run / "privacy.json").write_text(json.dumps(costs))
    notes = fw.report(run).values.privacy.training
    assert "2.345" in notes[1]
    assert "1.000" in notes[2]


@pytest.mark.parametrize("infinite", [None, "inf"])
def test_costs_without_bound_are_said_to_have_none(run: Path, infinite: str | None) -> None:
    """A run with a plan but without DP-SGD has an infinite epsilon, which version 0.1.0 wrote as null."""
    costs = [
        {
            "client": "CA",
            "selected": True,
            "release": 1.0,
            "training": infinite,
            "joint": infinite,
            "delta": 1e-5,
        },
        {"client": "NY", "selected": False, "release": 1.0, "training": 0.0, "joint": 1.0, "delta": 1e-5},
    ]
    (run / "privacy.json").write_text(json.dumps(costs))
    notes = fw.report(run).values.privacy.training
    assert notes[1:] == [
        "Clients chosen: no bound on ε, release and training together.",
        "Clients not chosen: ε at most 1.000 at δ = 1e-05, release and training together, from one accountant.",
    ]


def test_baselines_join_the_comparison(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    metrics(0.4, 5).write_parquet(other / "metrics.parquet")
    training = fw.report(run, baselines={"Plain": [other, other / "metrics.parquet"]}).values.training
    assert training is not None
    found = {m.label: m for m in training.final if m.metric == "f1"}
    assert found["Plain"].value == pytest.approx(metrics(0.4, 5).filter(metric="f1", rows="all")["value"][-1])


def test_final_values_and_intervals() -> None:
    from fedwise.view.outcomes import outcome_of

    one, two = metrics(0.5, 0), metrics(0.5, 1)
    last = [frame.filter(metric="spd", rows="all")["value"][-1] for frame in (one, two)]
    both = outcome_of({"A": [one, two]})
    single = outcome_of({"A": one})
    assert both is not None
    assert single is not None
    spd = next(m for m in both.final if m.metric == "spd")
    assert spd.value == pytest.approx(sum(last) / 2)
    assert (spd.low, spd.high) == (min(last), max(last))
    spd = next(m for m in single.final if m.metric == "spd")
    assert (spd.low, spd.high) == pytest.approx((last[0] - 0.01, last[0] + 0.01))
    assert both.attributes == ["SEX"]
    assert outcome_of({"A": one.filter(pl.col("rows") == "training")}) is None


def test_comparison_with_strategies_names_them() -> None:
    table = pl.concat(
        metrics(0.5, 0).select(pl.lit("mine").alias("federation"), pl.lit(name).alias("strategy"), pl.all())
        for name in ("fedavg", "fedprox")
    )
    assert list(split_comparison(table)) == [f"{CHOSEN} · fedavg", f"{CHOSEN} · fedprox"]
    with pytest.raises(fw.FedwiseError, match="fedwise compare"):
        split_comparison(metrics(0.5, 0))


@pytest.mark.parametrize("part", ["releases", "audit", "comparison"])
def test_parts_that_do_not_exist_are_named(run: Path, part: str) -> None:
    with pytest.raises(fw.FedwiseError, match="nowhere"):
        fw.report(run, **{part: "nowhere"})  # type: ignore[arg-type]


def test_damaged_parts_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(fw.FedwiseError, match="does not exist"):
        fw.report(tmp_path / "nothing")
    (run / "audit.json").write_text('{"audits": [{"auc": "high"}]}')
    with pytest.raises(fw.FedwiseError, match=r"audit\.json"):
        fw.report(run)
    (run / "audit.json").unlink()
    (run / "metrics.parquet").write_bytes(b"not parquet")
    with pytest.raises(fw.FedwiseError, match=r"metrics\.parquet"):
        fw.report(run)


@pytest.mark.parametrize(
    ("said", "label"),
    [
        (("not private", "not private"), "not private"),
        (("simulated", "simulated"), "simulated"),
        (("simulated", "not private"), "not private"),
        (("simulated", None), "not checked"),
        (("private", "private"), "not checked"),  # no comparison is: the word is not fedwise's
        (("nonsense", "not private"), "not checked"),
        (None, "not checked"),
    ],
)
def test_a_comparison_says_whether_its_trainings_were_private(
    tmp_path: Path, selection: Selection, said: tuple[str | None, ...] | None, label: str
) -> None:
    """Of the chosen federation, which is the first; the demo's report has nothing else."""
    parts = [
        metrics(0.5, seed).select(pl.lit(name).alias("federation"), pl.lit(seed).alias("seed"), pl.all())
        for name in ("chosen", "random 1")
        for seed in (0, 1)
    ]
    if said is not None:
        words = (*said, "simulated", "simulated")
        parts = [
            part.with_columns(pl.lit(word, pl.String).alias("privacy"))
            for part, word in zip(parts, words, strict=True)
        ]
    pl.concat(parts).write_parquet(tmp_path / "comparison.parquet")
    selection.save(tmp_path / "selection.json")
    values = fw.report(tmp_path).values
    assert values.privacy.training_label == label
    assert ("whether training was private" in values.checked) == (label != "not checked")
    assert ("whether training was private" in " ".join(values.unchecked).lower()) == (label == "not checked")


def invoke(*words: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, done.exception


def test_command_writes_one_page(run: Path, releases: Path, tmp_path: Path) -> None:
    page = tmp_path / "out" / "page.html"
    code, _, error = invoke(
        str(run), "--releases", str(releases), "-o", str(page), "--baseline", f"Again={run}"
    )
    assert (code, error) == (0, None)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    _, _, error = invoke(str(run), "-o", str(page))
    assert isinstance(error, fw.FedwiseError)
    assert "--force" in str(error)


def test_command_prints_the_same_as_json(run: Path, releases: Path) -> None:
    code, out, _ = invoke(str(run), "--releases", str(releases), "--json")
    assert code == 0
    assert json.loads(out) == json.loads(msgspec.json.encode(fw.report(run, releases=releases).to_dict()))


def test_command_explains_a_bad_baseline(run: Path) -> None:
    _, _, error = invoke(str(run), "--baseline", "oops")
    assert "LABEL=RUN" in str(error)


def test_command_names_the_label_and_what_was_not_checked(run: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, [str(run), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.exception
    assert "privacy of the releases: simulated" in done.stdout
    assert "privacy of the training: not private" in done.stdout
    assert "not checked" in done.stdout
