"""fedwise predict: use a trained model on new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .console import ForceOption, JsonOption, check_output, print_json, say


def predict(
    run: Annotated[Path, typer.Argument(help="Run directory of fedwise train.")],
    data: Annotated[Path, typer.Argument(help="Rows: a CSV, TSV or Parquet file. The target may be absent.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Predictions: a .csv or .parquet file.")],
    threshold: Annotated[
        str,
        typer.Option(
            "--threshold",
            help="Predict the positive label above this probability; rate: as often as it was true when the "
            "run was tested.",
        ),
    ] = "0.5",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Predict the target of new rows with a trained model.

    Example: fedwise predict runs/best people.csv -o predictions.csv

    One line for each row that satisfies the schema's filter: its number in the file (from 0), the
    probability of the positive class, and the predicted label. A filter on the target's own column is left
    out where the file lacks that column.
    """

    from ..files import write_table
    from ..training.predict import predict_frame
    from ..training.run import Run

    check_output(output, ".csv", ".parquet", force=force)
    table = predict_frame(Run.open(run), data, threshold=_threshold(threshold))
    write_table(output, table, force=force)
    if json:
        print_json({"output": str(output), "rows": table.height})
    else:
        say(f"{table.height} predictions in {output}")


def _threshold(text: str) -> float | Literal["rate"]:
    from ..errors import FedwiseError

    if text == "rate":
        return "rate"
    try:
        return float(text)
    except ValueError:
        raise FedwiseError(f"--threshold must be a probability such as 0.5, or rate, got '{text}'") from None
