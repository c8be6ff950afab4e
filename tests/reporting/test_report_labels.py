"""What is not private, simulated or not checked says so in the header, the captions, the alerts and the JSON."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fedwise as fw
from conftest import SMALL
from fedwise.reporting import Report
from fedwise.search import select
from fedwise.search.selection import Selection
from reporting.report_kit import charged_release, make_pool, make_releases, metrics, people

FOUR = ("a", "b", "c", "d")
DP_SGD = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0}


def text(page: str) -> str:
    """What a person reads, without marks and charts."""
    plain = re.sub(r"<(svg|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", plain)).split())


def header(page: str) -> str:
    return text(page[page.index("<header") : page.index("</header>")])


def section(page: str, name: str) -> str:
    start = page.index(f'<section id="{name}"')
    return text(page[start : page.index("</section>", start)])


def save(releases: Any, folder: Path) -> Path:
    for number, found in enumerate(releases):
        found.save(folder / f"{number}.release.json")
    return folder


def real_releases(plan: fw.Plan, *names: str) -> list[fw.Release]:
    """Releases with noise of the operating system."""
    return [charged_release(plan, people(3000, i), name) for i, name in enumerate(names)]


@pytest.fixture(scope="module")
def exact(small_schema: fw.Schema) -> fw.Pool:
    return make_pool(small_schema, FOUR, epsilon=math.inf)


@pytest.fixture(scope="module")
def private(small_schema: fw.Schema) -> fw.Pool:
    return fw.Pool.of(real_releases(fw.plan(small_schema, 1.0), *FOUR))


@pytest.fixture(scope="module")
def mixed(small_schema: fw.Schema) -> fw.Pool:
    """Three clients with real noise, and one whose noise was seeded."""
    plan = fw.plan(small_schema, 1.0)
    seeded = fw.release(plan, people(3000, 9), client="seeded", simulated=True, seed=9)
    return fw.Pool.of([*real_releases(plan, "a", "b", "c"), seeded])


def test_exact_counts_without_releases_are_not_called_private(exact: fw.Pool) -> None:
    report = Report.of(None, select(exact, 2, evidence="none"))
    said = report.to_dict()["privacy"]
    assert said["label"] == "not private"
    assert said["epsilon"] == "inf"
    page = report.html()
    assert "not private" in header(page)
    assert "not private" in page[page.index("<title>") : page.index("</title>")]
    assert report.values.alerts[0].level == "stop"
    assert "No privacy promise" in section(page, "privacy")
    assert "exact counts: it is not private" in text(page)


def test_exact_counts_with_releases_claim_nothing_about_noise(exact: fw.Pool) -> None:
    page = Report.of(exact, select(exact, 2, evidence="none"), frontier=False).html()
    assert "Computed from exact counts, not private; terms in bits." in section(page, "clients")
    promise = section(page, "privacy")
    assert "no promise about any record" in promise
    # Exact zeros show which categories do not occur, and exact sums how many records there are.
    assert "Which categories occur" not in promise
    assert "number of records" not in promise
    assert "noisy" not in text(page)
    # There is no noise, so there is no error bar for it.
    assert "±" not in header(page)
    assert "Intervals (95%) hold the privacy noise" not in page
    assert "Only released, estimated or aggregate numbers" not in page


def test_simulated_releases_are_called_so_with_and_without_releases(small_schema: fw.Schema) -> None:
    pool = make_pool(small_schema, FOUR)
    chosen = select(pool, 2, evidence="none")
    for report in (Report.of(None, chosen), Report.of(pool, chosen, frontier=False)):
        page = report.html()
        assert report.to_dict()["privacy"]["label"] == "simulated"
        assert "simulated" in header(page)
        assert "simulated" in page[page.index("<title>") : page.index("</title>")]
        assert "simulated noise: it is not private" in text(page)
        assert (report.values.alerts[0].level, report.values.alerts[0].title) == ("stop", "simulated noise")
        # The plan's promise presumes real noise: it is never stated as kept.
        assert "It holds whatever the reader already knows" not in page
    assert "releases with simulated noise" in section(page, "clients")
    assert "protects nobody" in section(page, "privacy")


def test_one_seeded_release_makes_the_whole_pool_simulated(mixed: fw.Pool) -> None:
    chosen = select(mixed, 2, exclude=["seeded"], evidence="none")
    for pool in (None, mixed):
        report = Report.of(pool, chosen, frontier=False)
        assert report.to_dict()["privacy"]["label"] == "simulated"
        assert "simulated" in header(report.html())


def test_a_release_without_a_ledger_is_called_not_charged(small_schema: fw.Schema, tmp_path: Path) -> None:
    plan = fw.plan(small_schema, 1.0)
    uncharged = fw.release(plan, people(3000, 9), client="d", uncharged=True)
    pool = fw.Pool.of([*real_releases(plan, "a", "b", "c"), uncharged])
    chosen = fw.select(pool, 2, evidence="none")
    for report in (Report.of(pool, chosen), Report.of(None, chosen)):
        assert report.values.privacy.label == "not charged"
        page = report.html()
        assert '<span class="stamp">not charged</span>' in page
        assert "made without a ledger" in text(page)
    assert "differential privacy" in section(Report.of(pool, chosen).html(), "privacy")


def test_real_noise_is_called_private_only_with_its_releases(private: fw.Pool) -> None:
    chosen = select(private, 2, evidence="none")
    whole = Report.of(private, chosen, frontier=False)
    assert whole.to_dict()["privacy"]["label"] == "private"
    assert 'class="stamp"' not in whole.html()
    assert "this page included" in section(whole.html(), "privacy")
    alone = Report.of(None, chosen)
    assert alone.to_dict()["privacy"]["label"] == "not checked"
    assert alone.to_dict()["privacy"]["epsilon"] is None
    assert "privacy not checked" in header(alone.html())


def test_the_selections_mark_outweighs_the_releases_at_hand(private: fw.Pool) -> None:
    """Someone names real releases for a selection that was made from exact or simulated ones."""
    chosen = select(private, 2, evidence="none")
    for mark in ("simulated", "not private"):
        marked = msgspec.structs.replace(chosen, flags=(f"{mark}: as select writes it",))
        assert Report.of(private, marked, frontier=False).values.privacy.label == mark
    stranger = msgspec.structs.replace(chosen, plan_digest="0" * 64)
    assert Report.of(private, stranger, frontier=False).values.privacy.label == "not checked"


def test_without_releases_nothing_about_them_is_reported_as_clear(private: fw.Pool) -> None:
    chosen = select(private, 2, evidence="none")
    alone = Report.of(None, chosen)
    found = section(alone.html(), "alerts")
    for false in ("no flagged release", "no weak promise", "no client too small"):
        assert false not in found
    missing = " ".join(alone.to_dict()["unchecked"])
    for question in ("promised noise", "how strong", "fail the screen", "too small", "other noise"):
        assert question.lower() in missing.lower()
        assert question.lower() not in " ".join(alone.to_dict()["checked"])
        assert question.lower() in found[found.index("Not checked") :].lower()
    assert "--releases" in missing
    whole = Report.of(private, chosen, frontier=False).to_dict()
    assert not any("--releases" in line for line in whole["unchecked"])
    assert any("fail the screen" in line for line in whole["checked"])


def test_marks_of_the_search_reach_the_reader_without_releases(private: fw.Pool) -> None:
    marked = msgspec.structs.replace(
        select(private, 2, evidence="none"),
        flags=("flagged release of 'b': its tables contradict one another", "limit not kept: eod above 0.1"),
        alerts=("release of 'c': it is far larger than the others",),
    )
    titles = {alert.title: alert.level for alert in Report.of(None, marked).values.alerts}
    assert titles["flagged release of 'b'"] == "warning"
    assert titles["limit not kept"] == "warning"
    assert titles["release of 'c' is unusual"] == "note"


def run_directory(
    folder: Path, chosen: Selection, privacy: dict[str, Any] | str | None, simulated: bool | None = None
) -> Path:
    """A run as training leaves it; `privacy` are the settings of DP-SGD, or "unknown"."""
    folder.mkdir()
    chosen.save(folder / "selection.json")
    metrics(0.6, 0).write_parquet(folder / "metrics.parquet")
    settings: dict[str, Any] = {"rounds": 4, "model": "mlp", "seed": 0}
    settings |= {} if privacy == "unknown" else {"privacy": privacy}
    settings |= {} if simulated is None else {"simulated": simulated}
    (folder / "config.json").write_text(json.dumps({"config": settings, "federation": list(chosen.clients)}))
    return folder


@pytest.mark.parametrize(
    ("privacy", "simulated", "label", "stamp", "level"),
    [
        (None, None, "not private", "trained without privacy", "warning"),
        (None, False, "not private", "trained without privacy", "warning"),
        (DP_SGD, None, "simulated", "training noise simulated", "warning"),
        (DP_SGD, True, "simulated", "training noise simulated", "warning"),
        (DP_SGD, False, "private", "", ""),
        ("unknown", None, "not checked", "privacy of training not checked", ""),
    ],
)
def test_a_run_says_whether_its_training_was_private(
    tmp_path: Path,
    small_schema: fw.Schema,
    privacy: Any,
    simulated: bool | None,
    label: str,
    stamp: str,
    level: str,
) -> None:
    releases = real_releases(fw.plan(small_schema, 1.0), *FOUR)
    chosen = select(fw.Pool.of(releases), 2, evidence="none")
    run = run_directory(tmp_path / "run", chosen, privacy, simulated)
    report = fw.report(run, releases=save(releases, tmp_path / "releases"), frontier=False)
    page = report.html()
    # The releases' promise covers neither the training nor what was measured with it.
    assert "this page included" not in section(page, "privacy")
    assert stamp in header(page)
    assert stamp in section(page, "training")
    assert ('class="stamp"' in page) is bool(stamp)
    said = report.to_dict()["privacy"]
    assert (said["label"], said["training_label"]) == ("private", label)
    assert "ε = 1 for the releases" in header(page)
    levels = [alert.level for alert in report.values.alerts if "training" in alert.title]
    assert levels == ([level] if level else [])
    assert any("whether training was private" in line.lower() for line in report.values.unchecked) is (
        label == "not checked"
    )


def test_a_run_without_releases_reads_its_plan(tmp_path: Path, private: fw.Pool) -> None:
    chosen = select(private, 2, evidence="none")
    run = run_directory(tmp_path / "run", chosen, None)
    private.plan.save(run / "plan.json")
    said = fw.report(run).to_dict()["privacy"]
    assert (said["label"], said["epsilon"], said["delta"]) == ("not checked", 1.0, private.plan.delta)
    fw.plan(private.plan.schema, 0.5).save(run / "plan.json", force=True)
    assert fw.report(run).to_dict()["privacy"]["epsilon"] is None


def test_a_given_federation_carries_the_pools_label(tmp_path: Path, exact: fw.Pool) -> None:
    run = run_directory(tmp_path / "run", select(exact, 2, evidence="none"), None)
    (run / "selection.json").unlink()
    folder = save(make_releases(fw.Schema.parse(SMALL), FOUR, epsilon=math.inf), tmp_path / "releases")
    report = fw.report(run, releases=folder, frontier=False)
    assert report.values.verdict.method == "given"
    assert report.values.privacy.label == "not private"
