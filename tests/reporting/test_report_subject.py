"""The report names its subject, every attribute, what was not checked, and how it is made again."""

from __future__ import annotations

import io
import json
import math
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.cli.main import main
from fedwise.rehearsal.performance import Performance, Rehearsed, with_figures
from fedwise.reporting import Imprint, Report
from fedwise.search import select
from fedwise.search.selection import RehearsedMetric, RehearsedSummary
from fedwise.view.verdict import noise_verdict
from reporting.report_kit import make_pool, make_releases, metrics
from reporting.test_report_labels import header, section, text

TWO = """
name = "stays"
where = ["AGE > 17"]

[columns.AGE]
role = "feature"
bins = [0, 18, 40, 65, 120]

[columns.SEX]
role = "sensitive"
levels = [1, 2]

[columns.REGION]
role = "sensitive"
levels = ["north", "south", "islands"]

[columns.RICH]
role = "target"
rule = "INCOME > 50000"
"""
FIVE = ("a", "b", "c", "d", "e")


def residents(rows: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    sex, region = rng.integers(1, 3, rows), rng.choice(3, rows, p=[0.5, 0.4, 0.1])
    income = rng.normal(
        45_000 + 6_000 * (sex == 1) - 4_000 * (region == 2) * (seed % 2), 15_000, rows
    ).round()
    names = np.array(["north", "south", "islands"])
    return pl.DataFrame(
        {"AGE": rng.integers(0, 90, rows), "SEX": sex, "REGION": names[region], "INCOME": income}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A consortium's folder: rows of five clients with two attributes, their releases, a selection and two runs."""
    place = tmp_path_factory.mktemp("stays")
    schema = fw.Schema.parse(TWO)
    plan = fw.plan(schema, 2.0)
    (place / "clients").mkdir()
    for i, name in enumerate(FIVE):
        frame = residents(1500 + 100 * i, i)
        frame.write_parquet(place / "clients" / f"{name}.parquet")
        found = fw.release(plan, frame, client=name, simulated=True, seed=i)
        found.save(place / "releases" / f"{name}.release.json")
    pool = fw.Pool.load(place / "releases")
    groups = {"a": "x", "b": "x", "c": "y"}
    rules = fw.Constraints(exclude=("e",), min_records=2000.0, groups=groups, max_per_group=1)
    chosen = select(pool, 2, constraints=rules, seed=1)
    chosen.save(place / "selection.json")
    for run, rounds, lr in (("run", 3, 0.01), ("other", 2, 0.02)):
        settings = fw.Training(rounds=rounds, lr=lr, model="logistic", replicates=0)
        fw.train(place / "clients", schema, chosen, settings, output=place / run, plan=plan)
    return place


@pytest.fixture(scope="module")
def page(folder: Path) -> Report:
    return fw.report(
        folder / "run",
        releases=folder / "releases",
        baselines={"Shorter": [folder / "other"]},
        imprint=Imprint(asked_by="the board", date="2026-01-02"),
    )


def test_the_subject_comes_first(page: Report) -> None:
    said = header(page.html())
    for part in (
        "Task stays", "Predicts RICH: INCOME > 50000", "AGE > 17", "SEX (1, 2)", "REGION (north, south, islands)",
        "Features AGE", "Asked by the board", "2026-01-02", f"fedwise {fw.__version__}", "simulated",
    ):  # fmt: skip
        assert part in said
    assert said.index("Predicts") < said.index("The federation")


def test_every_attribute_has_its_groups_and_gaps(page: Report) -> None:
    people = section(page.html(), "people")
    assert people.index("SEX") < people.index("REGION") < people.index("islands")
    by_name = {found.name: found for found in page.values.attributes}
    assert [len(found.rows) for found in by_name.values()] == [2, 3]
    for found in by_name.values():
        assert sum(row.share for row in found.rows) == pytest.approx(1, abs=1e-6)
        assert all(0 <= (row.positives or 0) <= 1 for row in found.rows)
    islands = by_name["REGION"].rows[2]
    assert islands.share_of_all == pytest.approx(0.1, abs=0.03)
    training = section(page.html(), "training")
    assert "Equal opportunity gap (EOD) of SEX" in training
    assert "Equal opportunity gap (EOD) of REGION" in training
    assert {m.attribute for m in page.values.verdict.forecast} >= {"SEX", "REGION"}
    assert {"gap-eod", "gap-eod-2"} <= set(page.specs)


def test_runs_with_other_settings_and_unfinished_ones_are_named(page: Report) -> None:
    found = {alert.title: alert.text for alert in page.values.alerts}
    unlike = found["'Shorter' was trained with other settings"]
    assert "rounds: 3 for the chosen federation, 2 here" in unlike
    assert "learning rate: 0.01 for the chosen federation, 0.02 here" in unlike
    assert "Chosen federation" in found["training stopped before it converged"]


def test_the_same_settings_raise_no_warning(folder: Path) -> None:
    same = fw.report(folder / "run", baselines={"Again": [folder / "run"]}).values
    assert not any("other settings" in alert.title for alert in same.alerts)
    assert any("same settings" in line for line in same.checked)
    table = fw.report(folder / "run", baselines={"Table": [folder / "run" / "metrics.parquet"]}).values
    assert any("same settings" in line for line in table.unchecked)


def test_the_commands_give_the_same_again(
    page: Report, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line is run as it stands, in a folder with the same names."""
    before = fw.Selection.load(folder / "selection.json")
    (folder / "selection.json").rename(folder / "before.json")
    monkeypatch.chdir(folder)
    assert [line.split()[0] for line in page.values.commands] == ["printf", "fedwise", "fedwise", "fedwise"]
    for line in page.values.commands:
        if line.startswith("printf"):
            words = shlex.split(line)
            Path(words[-1]).write_text("\n".join(words[2:-2]) + "\n")
            continue
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        out, err = redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(io.StringIO())
        with out, err, suppress(SystemExit):
            main()
    again = fw.Selection.load("selection.json")
    assert (again.clients, again.loss, again.constraints) == (before.clients, before.loss, before.constraints)
    assert fw.Run.open("run-again").metrics().equals(fw.Run.open("run").metrics())
    assert "Predicts RICH" in header(Path("report.html").read_text())


def test_without_releases_nothing_is_called_clear(folder: Path) -> None:
    values = fw.report(folder / "run").values
    bare = fw.report(folder / "run").html()
    assert "Not in this report" in header(bare)
    assert "what left the clients was not checked" in header(bare)
    assert values.privacy.label in ("not checked", "simulated")
    assert any("fail the screen" in line for line in values.unchecked)
    assert any("too small" in line for line in values.unchecked)
    alone = text(Report.of(None, fw.Selection.load(folder / "run" / "selection.json")).html())
    assert "not checked: neither the plan nor the releases are part of this report" in alone
    for clear in ("None:", "no flagged release", "What left each client"):
        assert clear not in alone


def test_exact_and_simulated_tables_say_so(small_schema: fw.Schema) -> None:
    exact = make_pool(small_schema, FIVE[:3], epsilon=math.inf)
    said = header(Report.of(exact, select(exact, 2), frontier=False, forecast=False).html())
    assert "No noise. The tables are exact" in said
    assert "Privacy of the releases not private" in said
    noisy = make_pool(small_schema, FIVE[:3])
    said = header(Report.of(noisy, select(noisy, 2), frontier=False, forecast=False).html())
    assert "Privacy of the releases simulated" in said


def test_one_verdict_on_the_noise(pool: fw.Pool, selection: fw.Selection) -> None:
    found = Report.of(pool, selection, frontier=False, forecast=False).values.verdict.noise
    assert found is not None
    assert found.text.startswith("An honest redraw of the noise changes")
    assert f"all {selection.redraws} redraws" in found.text
    assert "% of that is at stake" in found.text
    silent = noise_verdict(
        msgspec.structs.replace(selection, certificate=fw.Certificate(statement="", noise_statement=""))
    )
    assert silent.level == "unknown"
    assert "not measured" in silent.text


def test_noise_alone_is_called_so(small_schema: fw.Schema) -> None:
    tiny = fw.Pool.of(make_releases(small_schema, FIVE, epsilon=0.1, rows=40))
    found = Report.of(tiny, select(tiny, 2, seed=0), frontier=False, forecast=False).values.verdict.noise
    assert found is not None
    assert found.level == "poor"
    assert "hardly better than a random choice" in found.head


def test_redraws_measure_what_noise_costs(pool: fw.Pool, selection: fw.Selection) -> None:
    certificate = selection.certificate
    changed = sum(1 - selection.frequency.get(name, 0.0) for name in selection.clients)
    assert certificate.redraw_changes == pytest.approx(changed)
    assert 0 <= certificate.redraw_regret <= certificate.redraw_regret_bound  # type: ignore[operator]
    assert (certificate.redraw_regret_bound == 0) == (changed == 0)
    assert selection.redrawn_text in str(selection)


def test_a_rehearsal_has_a_section(selection: fw.Selection, tmp_path: Path) -> None:
    values = {"auc": (0.81, 0.82), "loss": (0.5, 0.51), "eod:SEX@rate": (0.1, 0.12)}
    lower = {name: tuple(value - 0.1 for value in found) for name, found in values.items()}
    performances = [
        Performance(role="federation", clients=selection.clients, stages=(0, 1), values=values),
        *(Performance(role="random", clients=("x", str(i)), stages=(0, 1), values=lower) for i in range(3)),
        Performance(role="all", clients=("x",), stages=(0, 1), values=lower),
    ]
    found = Rehearsed(performances=with_figures(performances), settings={"rounds": 5}, label="simulated")
    folder = tmp_path / "run"
    folder.mkdir()
    selection.save(folder / "selection.json")
    found.save(folder / "rehearsal.json")
    report = fw.report(folder)
    said = section(report.html(), "rehearsal")
    assert "AUC" in said
    assert "EOD of SEX, rate-matched" in said
    assert "0.8150" in said
    assert "simulated" in said
    assert report.values.rehearsal is not None
    assert report.values.rehearsal.same
    json.dumps(report.to_dict())


def test_the_quick_rehearsal_of_a_selection_is_shown_and_is_no_forecast_of_levels(
    pool: fw.Pool, selection: fw.Selection
) -> None:
    metrics = (
        RehearsedMetric(metric="auc", value=0.7, random=0.6, beside_random="better"),
        RehearsedMetric(metric="loss", value=None),
    )
    quick = RehearsedSummary(
        verdict="Better than random.", metrics=metrics, random=8, stages=3, shortened=True
    )
    carried = msgspec.structs.replace(selection, rehearsal=quick)
    report = Report.of(pool, carried, frontier=False, forecast=False)
    said = section(report.html(), "rehearsal")
    assert "a short training was run" in said
    assert "0.7000" in said
    assert "not known" in said
    assert "Nothing was trained or rehearsed" not in report.html()
    without = Report.of(pool, selection, frontier=False, forecast=False).html()
    assert "Nothing was trained or rehearsed here." in without


def test_a_loss_that_still_falls_is_seen() -> None:
    from fedwise.view.outcomes import Curve

    def curve(*mean: float) -> Curve:
        rounds = list(range(len(mean)))
        return Curve(label="x", metric="loss", seeds=1, rounds=rounds, mean=list(mean), low=[], high=[])

    assert curve(1.0, 0.9, 0.8, 0.7).still_falling
    assert not curve(1.0, 0.5, 0.499, 0.499).still_falling
    assert not curve(0.5, 0.6, 0.7).still_falling
    assert not curve(1.0, 0.5).still_falling
    assert metrics(0.6, 0).height  # the kit's tables have a loss that rises
