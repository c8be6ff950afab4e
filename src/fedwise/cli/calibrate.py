"""fedwise calibrate: weights that rank federations as trained models do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, check_output, note, print_json, print_table, say
from .inputs import (
    DataOption,
    DivideOption,
    SchemaOption,
    SplitSeedOption,
    SyntheticOption,
    TestOption,
    bar,
    find_schema,
    name_source,
)

if TYPE_CHECKING:
    from ..training.calibration import Study


def calibrate(
    data: DataOption = None,
    by: DivideOption = None,
    synthetic: SyntheticOption = None,
    schema: SchemaOption = None,
    releases: Annotated[
        Path | None,
        typer.Option(
            "--releases", help="Take the terms from these releases. [exact tables of the training rows]"
        ),
    ] = None,
    federations: Annotated[
        int, typer.Option("--federations", "-r", help="How many federations to train.")
    ] = 50,
    k: Annotated[
        str, typer.Option("-k", "--size", help="Smallest and largest federation, as 2:15.")
    ] = "2:15",
    rounds: Annotated[int, typer.Option("--rounds", help="Communication rounds of each training.")] = 50,
    test: TestOption = 0.2,
    split_seed: SplitSeedOption = 0,
    attribute: Annotated[
        str | None, typer.Option("--attribute", help="Sensitive attribute of the gaps. [the schema's first]")
    ] = None,
    bootstrap: Annotated[
        int, typer.Option("--bootstrap", min=10, help="Bootstrap samples of the intervals.")
    ] = 1000,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the weights go, for plan and select.")
    ] = Path("weights.toml"),
    table: Annotated[
        Path | None, typer.Option("--table", help="Also write terms and metrics of every federation, as CSV.")
    ] = None,
    cache: Annotated[
        Path, typer.Option("--cache", help="Finished trainings; a stopped run goes on from here.")
    ] = Path("calibration-cache"),
    workers: Annotated[int, typer.Option("--workers", help="Training processes.")] = 2,
    seed: SeedOption = 0,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Fit the weights of the loss to trained federations, and judge them on federations held back.

    Example: fedwise calibrate --data clients/ --schema income -r 50 -o weights.toml

    Trains federations of varying size with FedAvg, tests all on the same held-out rows, fits the weights on
    one half of them and reports correlations on the other half, next to the paper's weights and trivial
    ones. The terms come from exact tables: a study on data that one holds, not something to do through
    private releases of others, unless --releases gives the terms.
    """
    from ..files import write_new
    from ..pool.pool import Pool
    from ..training.calibration import calibrate as run_study
    from ..training.settings import Training

    check_output(output, ".toml", force=force)
    check_output(table, ".csv", force=force)
    settings = Training(rounds=rounds, seed=seed, test=test, split_seed=split_seed)
    pool = None if releases is None else Pool.load(releases)
    try:
        with bar("training federations", "accuracy") as show:
            found = run_study(
                name_source(data, synthetic, by), find_schema(schema, synthetic, None), settings, pool=pool,
                count=federations, sizes=_sizes(k), attribute=attribute, resamples=bootstrap, cache=cache,
                workers=workers, progress=show,
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo("stopped; finished trainings are kept, run the same command to go on", err=True)
        raise
    for line in found.notes:
        note(f"note: {line}")
    write_new(output, found.calibration.to_toml().encode(), force=force)
    if table is not None:
        write_new(table, found.to_frame().write_csv().encode(), force=force)
    _show(found, output, json=json)


def _sizes(text: str) -> tuple[int, int]:
    from ..errors import FedwiseError

    low, colon, high = text.partition(":")
    try:
        found = int(low), int(high if colon else low)
    except ValueError:
        found = (0, 0)
    if not 1 <= found[0] <= found[1]:
        raise FedwiseError(f"--size must be written low:high, such as 2:15, got '{text}'")
    return found


def _show(found: Study, output: Path, *, json: bool) -> None:
    calibration = found.calibration
    if json:
        print_json(
            {
                "output": str(output),
                "federations": len(found.federations),
                "from_cache": found.cached,
                "weights": calibration.weights,
                "fitted_on": calibration.fitted_on,
                "judged_on": calibration.judged_on,
                "judgements": calibration.judgements,
                "restarts": calibration.restarts,
                "spread": calibration.spread,
                "identified": calibration.identified,
                "notes": calibration.notes,
            }
        )
        return
    names = [c.metric for c in calibration.judgements[0].correlations]
    rows = [
        (
            judgement.name,
            f"{judgement.score:.2f}",
            *(f"{c.value:+.2f} [{c.low:+.2f}, {c.high:+.2f}]" for c in judgement.correlations),
        )
        for judgement in calibration.judgements
    ]
    title = f"Spearman correlation of the loss, {calibration.judged_on} federations held back, 95% intervals"
    print_table(title, ("weights", "score", *names), rows, right=("score", *names))
    w = calibration.weights
    say(f"alpha {w.alpha:g}, beta {w.beta:g}, gamma {w.gamma:g}, lam {w.lam:g} in {output}")
    say("over restarts: " + ", ".join(f"{s.weight} {s.low:.2g} to {s.high:.2g}" for s in calibration.spread))
    for line in calibration.notes:
        note(f"note: {line}")
