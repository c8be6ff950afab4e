"""fedwise calibrate: weights that rank federations as trained models do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import ForceOption, JsonOption, SeedOption, print_json, print_table, progress, stderr
from .train import DataOption, SchemaOption, SyntheticOption

if TYPE_CHECKING:
    import polars as pl

    from ..estimation.estimates import Estimates
    from ..schema.schema import Schema
    from ..training.calibration import Study


def calibrate(
    data: DataOption = None,
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
    sizes: Annotated[str, typer.Option("--sizes", help="Smallest and largest federation, as 2:15.")] = "2:15",
    rounds: Annotated[int, typer.Option("--rounds", help="Communication rounds of each training.")] = 50,
    test: Annotated[float, typer.Option("--test", help="Share of each client's rows held out.")] = 0.2,
    split_seed: Annotated[
        int, typer.Option("--split-seed", help="Seed of the one split of each client.")
    ] = 0,
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
    from ..files import refuse_existing, write_new
    from ..training.calibration import study
    from ..training.federation import prepare
    from .train import _config, find_schema, name_source, read_source

    refuse_existing(output, force=force)
    if table is not None:
        refuse_existing(table, force=force)
    low, high = _sizes(sizes)
    config = _config(rounds=rounds, evaluate_every=rounds, replicates=0, seed=seed)
    frames = read_source(name_source(data, synthetic))
    known = find_schema(schema, synthetic, None)
    prepared = prepare(frames, known, test=test, seed=split_seed)
    _check_attribute(attribute, prepared.encoder.attributes)
    for note in prepared.notes:
        stderr().print(f"note: {note}", markup=False)
    if releases is None:
        estimates = _exact(frames, known, test, split_seed)
    else:
        from ..estimation import estimate
        from ..pool.pool import Pool

        estimates = estimate(Pool.load(releases))
    best, kept = 0.0, 0
    with progress() as bar:
        task = bar.add_task("training federations", total=federations, best="")

        def after(_: int, records: pl.DataFrame, cached: bool) -> None:
            nonlocal best, kept
            from ..training.calibration import final

            kept += cached
            best = max(best, final(records, "accuracy"))
            bar.update(task, advance=1, best=f"best accuracy {best:.4f}, {kept} from the cache")

        try:
            found = study(
                prepared, estimates, count=federations, sizes=(low, min(high, len(prepared.clients))), config=config,
                seed=seed, cache=cache, workers=workers, attribute=attribute, resamples=bootstrap,
                on_done=after,
            )  # fmt: skip
        except KeyboardInterrupt:
            typer.echo("stopped; finished trainings are kept, run the same command to go on", err=True)
            raise
    write_new(output, found.calibration.to_toml().encode(), force=force)
    if table is not None:
        write_new(table, found.to_frame().write_csv().encode(), force=force)
    _show(found, output, kept, json=json)


def _exact(frames: dict[str, object], schema: Schema, test: float, seed: int) -> Estimates:
    from ..data.split import split_all
    from ..training.calibration import exact_estimates

    train, _ = split_all(frames, test, seed=seed, schema=schema)
    return exact_estimates(train, schema)


def _sizes(text: str) -> tuple[int, int]:
    from ..errors import FedwiseError

    low, colon, high = text.partition(":")
    try:
        found = int(low), int(high if colon else low)
    except ValueError:
        found = (0, 0)
    if not 1 <= found[0] <= found[1]:
        raise FedwiseError(f"--sizes must be written low:high, such as 2:15, got '{text}'")
    return found


def _check_attribute(attribute: str | None, known: tuple[str, ...]) -> None:
    from ..errors import SchemaError, nearest

    if attribute is not None and attribute not in known:
        raise SchemaError(
            f"--attribute must be a sensitive column, got '{attribute}'{nearest(attribute, known)}"
        )
    if not known:
        raise SchemaError(
            "calibration needs a sensitive column in the schema; declare one with role sensitive"
        )


def _show(found: Study, output: Path, kept: int, *, json: bool) -> None:
    calibration = found.calibration
    if json:
        print_json(
            {
                "output": str(output),
                "federations": len(found.federations),
                "from_cache": kept,
                "weights": calibration.weights,
                "fitted_on": calibration.fitted_on,
                "judged_on": calibration.judged_on,
                "judgements": calibration.judgements,
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
    stderr().print(
        f"alpha {w.alpha:g}, beta {w.beta:g}, gamma {w.gamma:g}, lam {w.lam:g} in {output}", markup=False
    )
