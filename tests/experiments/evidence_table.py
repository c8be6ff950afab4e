"""A small made-up table of evidence, in the shape that the runs write."""

from __future__ import annotations

import numpy as np
import polars as pl

METRICS = (
    "auc", "loss", "accuracy", "balanced_accuracy", "f1", "spd", "eod", "mad", "balanced_accuracy@rate", "spd@rate",
    "eod@rate",
)  # fmt: skip
DESCRIBED = (
    "label_rate", "estimated_label_rate", "pfl", "pfl_true", "forecast_balanced_accuracy",
    "forecast_balanced_accuracy@rate",
)  # fmt: skip
TASKS = ("income2018", "income2024", "employment2024", "coverage2024", "travel2024")


def make(
    *, tasks: tuple[str, ...] = TASKS, random: int = 200, splits: int = 3, draws: int = 2, clients: int = 30,
    shift: float = 0.0, seed: int = 0,
) -> tuple[pl.DataFrame, pl.DataFrame]:  # fmt: skip
    """Evidence and its federations; chosen ones have `shift` standard deviations less EOD at matched rates."""
    rng = np.random.default_rng(seed)
    names = [f"C{i:02d}" for i in range(clients)]
    rows, listed = [], []
    for task in tasks:
        kinds = [("random", -1, i) for i in range(random)]
        kinds += [
            (kind, d, random + d) for kind in ("pfl", "forecast_balanced", "size") for d in range(draws)
        ]
        everyone = ("all", "all_reweighed", "all_threshold_optimizer_tpr", "all_threshold_optimizer_eo")
        kinds += [(kind, -1, random + 50) for kind in everyone]
        level = rng.normal(size=(random + 60, len(METRICS) + len(DESCRIBED)))
        for number in range(random + 60):
            members = rng.permutation(names)[:5]
            listed.append({"task": task, "federation": f"f{number}", "members": " ".join(members)})
        for kind, draw, number in kinds:
            for split in range(splits):
                values = 0.5 + 0.01 * level[number] + 0.002 * rng.normal(size=level.shape[1])
                line = dict(zip((*METRICS, *DESCRIBED), values.tolist(), strict=True))
                if kind == "pfl":
                    line["eod@rate"] -= 0.01 * shift
                rows.append(
                    {"task": task, "split": split, "k": clients if kind.startswith("all") else 5, "model": "mlp",
                     "kind": kind, "draw": draw, "federation": f"f{number}", "rows": 100, **line}
                )  # fmt: skip
    return pl.DataFrame(rows), pl.DataFrame(listed)
