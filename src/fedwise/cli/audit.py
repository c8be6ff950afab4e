"""fedwise audit: attack one's own releases, and see whether the promise holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import JsonOption, SeedOption, print_json, print_table, stderr
from .inputs import bar


def audit(
    schema: Annotated[str, typer.Argument(help="A schema.toml, or the name of a shipped schema.")],
    data: Annotated[Path, typer.Argument(help="Rows to audit on: a CSV or Parquet file.")],
    epsilon: Annotated[
        str, typer.Option("--epsilon", "-e", help="Budgets to audit, comma-separated.")
    ] = "0.1,0.5,1,2,5",
    delta: Annotated[float, typer.Option("--delta", "-d")] = 1e-5,
    calibration: Annotated[str, typer.Option(help="tight, or rdp as in the paper.")] = "tight",
    allocation: Annotated[str, typer.Option(help="weighted, or uniform as in the paper.")] = "weighted",
    trials: Annotated[
        int, typer.Option("--trials", help="Targets inside the data, and as many outside.")
    ] = 1000,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the results as JSON.")] = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Audit the privacy promise with the strongest membership attack, on the code that draws the noise.

    Example: fedwise audit income people.parquet --epsilon 0.1,1,5

    Exit code 1 when the attack does better than the promise allows.
    """
    from ..auditing.budgets import audit_budgets
    from ..errors import CheckFailed, PlanError
    from .plan import load_schema

    try:
        budgets = [float(word) for word in epsilon.split(",")]
    except ValueError:
        raise PlanError(f"--epsilon must be numbers separated by commas, got '{epsilon}'") from None
    with bar("attacking", "AUC") as show:
        found = audit_budgets(
            load_schema(schema), data, budgets, delta=delta, calibration=calibration, allocation=allocation,
            trials=trials, seed=seed, progress=show,
        )  # fmt: skip
    if output is not None:
        found.save(output, force=True)
    if json:
        print_json(found)
    else:
        print_table(
            f"membership attack, {trials} targets in and out ({calibration}, {allocation})",
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
                for a in found.audits
            ],
        )
        stderr().print(
            "'epsilon at least' is a lower confidence bound from the attack; it must stay below epsilon."
        )
    if not found.ok:
        raise CheckFailed("the attack beats the promise; do not release with this build")
