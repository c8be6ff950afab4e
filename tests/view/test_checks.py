"""Checks: every question is either asked or listed as not asked, with what it needs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

import fedwise as fw
from fedwise.estimation import estimate
from fedwise.pool.pool import Pool
from fedwise.search.selection import Contribution, Selection
from fedwise.view.checks import Evidence, examine
from fedwise.view.outcomes import outcome_of
from fedwise.view.promise import TrainingPrivacy
from fedwise.view.tables import AuditRow
from reporting.report_kit import metrics

ATTACK = AuditRow(
    epsilon=1.0, attack="joint", trials=100, auc=0.55, auc_std_error=0.01, auc_theory=0.56, tpr_at_1_percent=0.01,
    tpr_theory=0.01, epsilon_lower_bound=0.1, ok=True,
)  # fmt: skip


def everything(pool: fw.Pool) -> Evidence:
    real = Pool(pool.clients, pool.plan, pool.matrix)
    return Evidence(
        pool=real,
        plan=real.plan,
        estimates=estimate(real),
        audits=[ATTACK],
        training=outcome_of({"Chosen": metrics(0.7, 0), "Everyone": metrics(0.5, 1)}),
        training_privacy=TrainingPrivacy(label="private"),
        differences={},
    )


def unmarked(selection: Selection) -> Selection:
    parts = tuple(Contribution(client, -0.1) for client in selection.clients)
    return msgspec.structs.replace(selection, flags=(), contributions=parts)


def test_with_all_evidence_nothing_is_left_unchecked(pool: fw.Pool, selection: Selection) -> None:
    found = examine(unmarked(selection), everything(pool))
    assert found.unchecked == []
    assert len(found.checked) == len(set(found.checked)) >= 10


@pytest.mark.parametrize(
    ("missing", "question"),
    [
        ({"pool": None}, "promised noise"),
        ({"pool": None, "plan": None}, "how strong"),
        ({"pool": None}, "fail the screen"),
        ({"estimates": None}, "the selection's loss"),
        ({"estimates": None}, "too small"),
        ({"audits": []}, "an attack"),
        ({"training_privacy": None}, "training was private"),
        ({"training": outcome_of({"Chosen": metrics(0.7, 0)})}, "a baseline did better"),
        ({"training": outcome_of({"Chosen": metrics(0.7, 0, rounds=1)})}, "training had converged"),
        ({"differences": None}, "with the same settings"),
    ],
)
def test_missing_evidence_is_named(
    pool: fw.Pool, selection: Selection, missing: dict[str, object], question: str
) -> None:
    found = examine(unmarked(selection), replace(everything(pool), **missing))  # type: ignore[arg-type]
    assert any(question in line.lower() for line in found.unchecked)
    assert not any(question in line for line in found.checked)


@pytest.mark.parametrize(
    ("change", "question"),
    [
        ({"frequency": {}}, "other noise"),
        ({"contributions": ()}, "depends on one member"),
        ({"objective": "forecast"}, "the selection's loss"),
    ],
)
def test_missing_parts_of_the_selection_are_named(
    pool: fw.Pool, selection: Selection, change: dict[str, object], question: str
) -> None:
    bare = msgspec.structs.replace(unmarked(selection), **change)
    found = examine(bare, everything(pool))
    assert [question in line for line in found.unchecked] == [True]


def test_exact_counts_have_no_noise_to_ask_about(selection: Selection) -> None:
    marked = msgspec.structs.replace(selection, flags=("not private: exact",))
    found = examine(marked)
    said = " ".join([*found.checked, *found.unchecked])
    assert "other noise" not in said
    assert "too small" not in said
    assert found.alerts[0].level == "stop"
