"""fedwise audit: attack one's own releases, and see whether the promise holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, check_output, print_json, print_table, say
from .inputs import bar

if TYPE_CHECKING:
    from ..auditing.budgets import Audits


def audit(
    schema: Annotated[str, typer.Argument(help="A schema.toml, or the name of a shipped schema.")],
    data: Annotated[Path, typer.Argument(help="Rows to audit on: a CSV or Parquet file.")],
    epsilon: Annotated[
        str, typer.Option("--epsilon", "-e", help="Budgets to audit, comma-separated.")
    ] = "0.1,0.5,1,2,5",
    delta: Annotated[float, typer.Option("--delta", "-d", help="Delta of every budget.")] = 1e-5,
    calibration: Annotated[str, typer.Option(help="tight, or rdp as in the paper.")] = "tight",
    allocation: Annotated[str, typer.Option(help="weighted, or uniform as in the paper.")] = "weighted",
    trials: Annotated[
        int, typer.Option("--trials", help="Targets inside the data, and as many outside.")
    ] = 1000,
    runs: Annotated[
        int,
        typer.Option(
            "--runs", help="Whole releases with each canary, and as many without: 0, or at least 100.", min=0
        ),
    ] = 100,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Chance that an honest release passes at one budget.")
    ] = 0.999,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Audit the privacy promise with the strongest membership attack, on whole releases.

    Example: fedwise audit income people.parquet --epsilon 0.1,1,5

    Rows with and without canaries go through the code that every owner runs. The audit bounds from below what a
    record shows, and checks counting, noise, its independence and its reuse. The releases are thrown away.

    Exit code 1 when something contradicts the promise.
    """
    from ..auditing.budgets import audit_budgets
    from ..errors import CheckFailed, PlanError
    from .plan import load_schema

    check_output(output, ".json", force=force)
    try:
        budgets = [float(word) for word in epsilon.split(",")]
    except ValueError:
        raise PlanError(f"--epsilon must be numbers separated by commas, got '{epsilon}'") from None
    with bar("attacking", "AUC") as show:
        found = audit_budgets(
            load_schema(schema), data, budgets, delta=delta, calibration=calibration, allocation=allocation,
            trials=trials, runs=runs, seed=seed, confidence=confidence, progress=show,
        )  # fmt: skip
    if output is not None:
        found.save(output, force=force)
    if json:
        print_json(found)
    else:
        _show(found)
    if not found.ok:
        raise CheckFailed("the attack beats the promise; do not release with this build")


def _show(found: Audits) -> None:
    cells = [a for a in found.audits if a.attack != "release"]
    print_table(
        f"membership attack, {cells[0].trials} targets in and out ({found.calibration}, {found.allocation})",
        ["epsilon", "attack", "AUC", "theory", "TPR at 1% FPR", "theory ", "epsilon at least", "verdict"],
        [
            [
                f"{a.epsilon:g}",
                a.attack,
                f"{a.auc:.3f} ± {a.auc_std_error:.3f}",
                f"{a.auc_theory:.3f}",
                f"{a.tpr_at_1_percent:.3f}",
                f"{a.tpr_theory:.3f}",
                f"{a.epsilon_lower_bound:.3f}",
                "holds" if a.ok else "BROKEN",
            ]
            for a in cells
        ],
    )
    say("'epsilon at least' is a lower confidence bound from the attack; it must stay below epsilon.")
    whole = [a for a in found.audits if a.attack == "release"]
    if not whole:
        return
    print_table(
        f"{whole[0].releases} releases at each budget, {len(whole[0].modes)} canaries",
        ["epsilon", "mu", "mu at least", "as epsilon", "no assumption", "finds factor", "verdict"],
        [
            [
                f"{a.epsilon:g}",
                f"{a.mu_promised:.3g}",
                f"{a.mu_lower_bound:.3g}",
                f"{a.epsilon_of_mu:.3g}",
                f"{a.epsilon_lower_bound:.3g}",
                "" if a.smallest_detectable is None else f"{a.smallest_detectable:.2f}",
                "holds" if a.ok else "BROKEN",
            ]
            for a in whole
        ],
    )
    say(
        "'mu at least' is a lower confidence bound on Gaussian DP and must stay below mu; noise too small by the "
        "factor 'finds factor' is found in 90% of audits like this by this bound alone."
    )
    for a in whole:
        for check in a.checks:
            if check.verdict != "holds":
                say(f"epsilon {a.epsilon:g}, {check.name}: {check.verdict}: {check.says}")
