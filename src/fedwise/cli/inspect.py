"""fedwise inspect: what a release or a directory of them says, and whether it holds together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import JsonOption, print_json, print_table, progress, say
from .inputs import TaskOption

if TYPE_CHECKING:
    from ..owner.release import Release


def inspect(
    path: Annotated[Path, typer.Argument(help="A release file, a plan.json, or a directory of releases.")],
    quality: Annotated[
        bool,
        typer.Option(
            "--quality",
            help="Add a card for each client: random labels, biased labels, random features, repeated records.",
        ),
    ] = False,
    task: TaskOption = None,
    json: JsonOption = False,
) -> None:
    """Validate and describe releases: promise, tables, and a screen for doctored ones.

    Example: fedwise inspect releases/

    The screen flags tables that contradict one another, counts below zero, impossible sizes and copies of
    another release, all beyond the noise; an honest release fails it once in a million. What is merely
    unusual is shown as an alert. Exit code 1 when a release is flagged, not for alerts.

    With --quality every client is also compared with the others for spoilt records. A suspect does not change
    the exit code; "cannot tell" means that the noise or honest differences would hide it.
    """
    from ..errors import ReleaseError
    from ..files import read_bytes
    from ..owner.release import Release
    from ..planning import Plan
    from ..pool.pool import Pool, release_files

    if path.is_file() and b'"fedwise/plan/' in read_bytes(path, what="file", error=ReleaseError)[:200]:
        import msgspec

        found = Plan.load(path)
        if json:
            print_json(msgspec.to_builtins(found))
        else:
            say(str(found))
        return
    if path.is_file() and (scored := Release.load(path)).scored:
        _show_score(scored, as_json=json)
        return
    files = release_files(path)
    with progress() as bar:
        shown = bar.add_task("reading releases", total=len(files), best="")
        pool = Pool.load(
            files, accept_flagged=True, task=task, progress=lambda done, _: bar.update(shown, completed=done)
        )
    report = describe(pool)
    if quality:
        report["quality"] = describe_quality(pool)
    if json:
        print_json(report)
    else:
        _show(report)
        if quality:
            _show_quality(report["quality"])
    if pool.flags:
        raise typer.Exit(1)


def _show_score(found: Release, *, as_json: bool) -> None:
    """An answer to a score: one number, which only a pool of them says something with."""
    from ..privacy.staging import SCORE_PARTS

    total, sigma = float(found.counts[0]) / SCORE_PARTS, float(found.sigmas[0]) / SCORE_PARTS
    if as_json:
        print_json(
            {
                "client": found.client, "label": found.label, "stage": found.number, "epsilon": found.epsilon,
                "score": found.score, "sum": total, "sigma": sigma, "plan_digest": found.plan_digest,
            }
        )  # fmt: skip
        return
    say(f"'{found.client}' answers stage {found.number} of plan {found.plan_digest[:12]} ({found.label})")
    say(f"  {found.plan.promise}")
    say(f"  one number: its records sum to a score of {total:.1f}, with noise of {sigma:.3g}")
    say(f"  scored by {str(found.score)[:12]}, which the shortlist of that stage holds")


def describe(pool: object) -> dict[str, object]:
    """What `inspect` says of a pool, as plain values. Only released numbers appear."""
    from ..estimation.consistency import consistent
    from ..pool.pool import Pool

    assert isinstance(pool, Pool)
    plan = pool.plan
    # As they were released: pairs that were summed from one table share its noise.
    counts = pool.matrix if pool.joint is None else pool.joint.counts
    noise = pool.sigmas if pool.joint is None else pool.joint.sigmas
    _, _, totals, consistency = consistent(counts, pool.asked.layout, noise)
    flags = {flag.client: flag.reason for flag in pool.flags}
    alerts: dict[str, list[str]] = {}
    for alert in pool.alerts:
        alerts.setdefault(alert.client, []).append(alert.reason)
    return {
        "clients": [
            {
                "client": name,
                "source": source,
                "records_estimate": round(float(total)),
                "p_value": float(p),
                "flag": flags.get(name),
                "alerts": alerts.get(name, []),
            }
            for name, source, total, p in zip(
                pool.clients, pool.sources, totals, consistency.p_value, strict=True
            )
        ],
        "promise": pool.asked.promise,
        "epsilon": plan.promise_epsilon,
        "delta": plan.delta,
        "private": plan.private,
        "simulated": pool.simulated,
        "label": pool.label,
        "plan_digest": plan.digest,
        "schema": plan.schema.name,
        "tables": len(pool.asked.tables),
        "cells": pool.asked.layout.cells,
        "noise": {"least": float(noise.min()), "most": float(noise.max())},
        "flagged": sorted(flags),
        "alerts": sorted(alerts),
    }


def describe_quality(pool: object) -> dict[str, object]:
    """The cards of all clients as plain values."""
    from dataclasses import asdict

    from ..pool.card import CLIENT_FALSE_DOUBT, POOL_FALSE_ALARM, quality
    from ..pool.pool import Pool

    assert isinstance(pool, Pool)
    cards = quality(pool)
    return {
        "nominal_false_alarm": POOL_FALSE_ALARM,
        "nominal_false_doubt": CLIENT_FALSE_DOUBT,
        "suspects": [name for name, card in cards.items() if card.suspect],
        "doubtful": [name for name, card in cards.items() if card.doubtful],
        "cards": [
            {
                "client": name,
                "suspect": card.suspect,
                "doubtful": card.doubtful,
                "score": card.score,
                "p": card.p,
                "records_known": card.known,
                "verdict": card.verdict,
                "entries": [{**asdict(entry), "stated": entry.stated} for entry in card.entries],
            }
            for name, card in cards.items()
        ],
    }


def _show_quality(found: Any) -> None:
    print_table(
        f"quality: {len(found['suspects'])} suspect(s); honest but unusual clients can be among them",
        ["client", "score", "verdict"],
        [[card["client"], f"{card['score']:.1f}", card["verdict"]] for card in found["cards"]],
        right=["score"],
    )


def _show(report: dict[str, object]) -> None:
    say(f"schema '{report['schema']}', plan {str(report['plan_digest'])[:12]}")
    say(f"{report['promise']}")
    noise = report["noise"]
    assert isinstance(noise, dict)
    say(
        f"{report['tables']} tables, {report['cells']} cells, noise σ from {noise['least']:.4g} to {noise['most']:.4g}"
    )
    if report["simulated"]:
        say("SIMULATED noise: these releases protect nobody; for experiments on public data")
    if report["label"] == "not charged":
        say("NOT CHARGED: a release was made without a ledger, so nobody counts what its data cost")
    rows = report["clients"]
    assert isinstance(rows, list)
    print_table(
        f"{len(rows)} release(s)",
        ["client", "records (estimate)", "consistency p", "verdict"],
        [
            [row["client"], f"{row['records_estimate']:,}", f"{row['p_value']:.3g}", _verdict(row)]
            for row in rows
        ],
        right=["records (estimate)", "consistency p"],
    )


def _verdict(row: dict[str, Any]) -> str:
    if row["flag"]:
        return str(row["flag"])
    return f"alert: {'; '.join(row['alerts'])}" if row["alerts"] else "ok"
