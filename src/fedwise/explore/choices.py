"""Choices: what a forecast may make best on the page, and which gaps it may limit."""

from __future__ import annotations

from typing import Any

from ..errors import FedwiseError
from ..objective.metric import parse
from ..schema.schema import Schema

#: Metrics of the forecast that may be the objective, with their words.
OBJECTIVES = {
    "auc": "AUC, forecast",
    "balanced_accuracy@rate": "Balanced accuracy, rate-matched, forecast",
    "balanced_accuracy": "Balanced accuracy, forecast",
    "f1": "F1, forecast",
    "macro_f1": "Macro-F1, forecast",
    "rmse": "RMSE, forecast",
    "mae": "Mean absolute error, forecast",
}
#: Gaps that may be limited, with their words: those at the matched rate, or of targets that have none.
LIMITS = {
    "eod@rate": "Opportunity gap (EOD)",
    "spd@rate": "Parity gap (SPD)",
    "eod": "Opportunity gap (EOD)",
    "spd": "Parity gap (SPD)",
    "error_gap": "Gap of mean error",
    "mae_gap": "Gap of absolute error",
}


def forecast_choices(schema: Schema) -> dict[str, Any]:
    """What a forecast of the target may make best, and which gaps it may limit; nothing where there is no forecast."""
    from ..forecasting import Labels, names_for

    try:
        known = names_for(Labels.of(schema))
    except FedwiseError:
        return {"objectives": {}, "limits": []}
    gaps = [name for name in LIMITS if name in known and f"{name}@rate" not in known]
    return {
        "objectives": {name: words for name, words in OBJECTIVES.items() if name in known},
        "limits": [
            [
                str(parse(name)._replace(attribute=schema.names[i])),
                f"{LIMITS[name]} of {schema.names[i]}, at most",
            ]
            for i in schema.sensitive
            for name in gaps
        ],
    }
