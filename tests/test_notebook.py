"""Values in a notebook: short, as inert tables, as frames and as pictures."""

from __future__ import annotations

from pathlib import Path

import altair
import polars as pl
import pytest

import fedwise as fw
from fedwise.rehearsal.performance import Performance, Rehearsed, with_figures
from reporting.report_kit import NAMES, make_pool, people


@pytest.fixture(scope="module")
def pool(small_schema: fw.Schema) -> fw.Pool:
    return make_pool(small_schema, NAMES[:5], rows=600)


@pytest.fixture(scope="module")
def values(
    small_schema: fw.Schema, pool: fw.Pool, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, object]:
    """One of each kind that people look at."""
    folder = tmp_path_factory.mktemp("notebook")
    selection = fw.select(pool, 2, seed=0)
    ledger = fw.Ledger(folder / "budget.db", 1.0, 1e-5)
    fw.release(pool.plan, people(300, 0), client="a", ledger=ledger)
    frames = {name: people(300, i) for i, name in enumerate(("a", "b"))}
    run = fw.train(
        frames,
        small_schema,
        None,
        fw.Training(rounds=2, model="logistic", replicates=0),
        output=folder / "run",
    )
    performances = [
        Performance(
            role=role, clients=("a", str(i)), stages=(0, 1), values={"auc": (0.8 - i / 10, 0.81 - i / 10)}
        )
        for i, role in enumerate(("federation", "random", "random", "all"))
    ]
    return {
        "Plan": pool.plan, "Pool": pool, "Selection": selection, "Certificate": selection.certificate,
        "Ledger": ledger, "Run": run, "Frontier": fw.frontier(pool, (1, 3)), "Schema": small_schema,
        "Rehearsed": Rehearsed(performances=with_figures(performances), settings={}),
    }  # fmt: skip


def test_representations_are_short(values: dict[str, object]) -> None:
    for name, value in values.items():
        assert repr(value).startswith(f"{name}("), name
        assert len(repr(value)) < 250, name


def test_tables_hold_the_values_and_no_live_names(values: dict[str, object]) -> None:
    for name, value in values.items():
        if name == "Schema":
            continue
        shown = value._repr_html_()  # type: ignore[attr-defined]
        assert shown.startswith("<table>"), name
        assert len(shown) < 6000, name
        assert "<script" not in shown
        assert "<img" not in shown
    assert "&lt;script&gt;" in values["Pool"]._repr_html_()  # type: ignore[attr-defined]
    assert "differential privacy" in values["Plan"]._repr_html_()  # type: ignore[attr-defined]
    assert "1 releases" in values["Ledger"]._repr_html_()  # type: ignore[attr-defined]


def test_frames(values: dict[str, object], pool: fw.Pool) -> None:
    frames = {
        name: values[name].to_frame()  # type: ignore[attr-defined]
        for name in ("Plan", "Pool", "Selection", "Ledger", "Run", "Frontier", "Rehearsed")
    }
    assert all(isinstance(frame, pl.DataFrame) and frame.height for frame in frames.values())
    assert frames["Plan"].height == len(pool.plan.tables)
    assert frames["Pool"]["client"].to_list() == list(pool.clients)
    assert frames["Selection"]["client"].to_list() == list(values["Selection"].clients)  # type: ignore[attr-defined]
    assert frames["Ledger"]["epsilon"].to_list() == [1.0]


def test_pictures(values: dict[str, object], pool: fw.Pool) -> None:
    for name in ("Pool", "Selection", "Run", "Frontier", "Rehearsed"):
        drawn = values[name].plot()  # type: ignore[attr-defined]
        assert isinstance(drawn, altair.TopLevelMixin), name
    sizes = fw.select(pool, (2, 3), seed=0)
    assert "clients in the federation" in sizes.plot().to_json()
    with pytest.raises(fw.FedwiseError, match="must have evidence"):
        fw.select(pool, 2, evidence="none", method="greedy").plot()


def test_the_example_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its readers run it: every cell, in a kernel of its own, in an empty folder."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    path = Path(__file__).parents[1] / "examples" / "choose.ipynb"
    book = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "clear the outputs before committing"
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out for cell in book.cells for out in cell.get("outputs", ())]
    assert sum("text/html" in out.get("data", {}) for out in shown) >= 4
    assert (tmp_path / "report.html").exists()
