"""A small pool, a selection of it, and a run directory as training leaves one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

import fedwise as fw
from fedwise.forecasting import Settings
from fedwise.reporting import Report
from fedwise.search import select
from fedwise.search.selection import Selection
from fedwise.view.forecasts import measures
from reporting.report_kit import NAMES, make_pool, make_releases, metrics


@pytest.fixture(autouse=True, scope="module")
def small_forecasts() -> Iterator[None]:
    """Forecasts of few records and few redraws: their numbers are the subject of tests/forecasting."""
    made = Settings.for_model.__func__  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Settings, "for_model", classmethod(lambda cls, model: replace(made(cls, model), records=512))
        )
        patch.setitem(measures.__kwdefaults__, "draws", 4)
        yield


@pytest.fixture(scope="session")
def pool(small_schema: fw.Schema) -> fw.Pool:
    """Eight clients at epsilon 1."""
    return make_pool(small_schema, NAMES)


@pytest.fixture(scope="session")
def selection(pool: fw.Pool) -> Selection:
    """Three of the eight, with all the evidence."""
    return select(pool, 3, seed=0)


@pytest.fixture
def run(tmp_path: Path, selection: Selection) -> Path:
    """A run directory with a selection, metrics, a comparison and an audit."""
    return make_run(tmp_path / "run", selection)


@pytest.fixture(scope="session")
def full_page(tmp_path_factory: pytest.TempPathFactory, small_schema: fw.Schema, selection: Selection) -> str:
    """The page of such a run with its releases beside it."""
    folder = make_run(tmp_path_factory.mktemp("full") / "run", selection)
    for i, found in enumerate(make_releases(small_schema)):
        found.save(folder / "releases" / f"{i}.release.json")
    return fw.report(folder).html()


@pytest.fixture(scope="session")
def plain_report(pool: fw.Pool, selection: Selection) -> Report:
    """The report of the selection and its releases, without any training."""
    return Report.of(pool, selection)


def make_run(folder: Path, selection: Selection) -> Path:
    """Write what training leaves."""
    folder.mkdir()
    selection.save(folder / "selection.json")
    metrics(0.6, 0).write_parquet(folder / "metrics.parquet")
    parts = [
        metrics(0.5, number).select(
            pl.lit(name).alias("federation"),
            pl.lit("fedavg").alias("strategy"),
            pl.lit(0).alias("seed"),
            pl.all(),
        )
        for number, name in enumerate(("random 1", "random 2", "everyone"))
    ]
    pl.concat(parts).write_parquet(folder / "comparison.parquet")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "config": {
                    "rounds": 4,
                    "strategy": "fedavg",
                    "sampler": "full",
                    "model": "mlp",
                    "seed": 0,
                    "privacy": None,
                },
                "federation": list(selection.clients),
                "fingerprint": "ab" * 32,
            }
        )
    )
    attack = {"epsilon": 1.0, "trials": 400, "auc": 0.5512, "auc_std_error": 0.0201, "auc_theory": 0.5573}
    attack |= {"tpr_at_1_percent": 0.0121, "tpr_theory": 0.0145, "epsilon_lower_bound": 0.11, "ok": True}
    attacks = [{**attack, "attack": kind, "roc": {"fpr": [0.1]}} for kind in ("single", "joint")]
    (folder / "audit.json").write_text(json.dumps({"calibration": "tight", "audits": attacks}))
    return folder
