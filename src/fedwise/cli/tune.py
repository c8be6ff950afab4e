"""``fedwise tune``: how to train, from releases alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import JsonOption, SeedOption, note, print_json, print_table, say
from .inputs import SettingsOption, TaskOption, bar, names
from .rehearse import read_federation
from .search_options import FlaggedOption, ReleasesArgument, read_limits

if TYPE_CHECKING:
    from ..rehearsal.space import Space
    from ..rehearsal.tuning import Tuned

FederationsOption = Annotated[
    list[str] | None,
    typer.Option("--federation", help="A selection file, or clients: CA,NY. Repeatable: the mean counts."),
]
SizesOption = Annotated[
    str, typer.Option("-k", "--size", help="Sizes to try, 3:10; the loss chooses a federation of each.")
]
MaximiseOption = Annotated[str, typer.Option(help="Metric to maximise: auc, balanced_accuracy@rate, …")]
LimitsOption = Annotated[str, typer.Option(help="Limits: eod:SEX@rate=0.1,auc=0.8.")]
StrategiesOption = Annotated[str, typer.Option("--strategies", help="Strategies to try.")]
LrOption = Annotated[str, typer.Option("--lr", help="Range of learning rates.")]
EpochsOption = Annotated[str, typer.Option("--epochs", help="Range of local epochs.")]
RoundsOption = Annotated[str, typer.Option("--rounds", help="Range of rounds. [not tuned]")]
BatchOption = Annotated[str, typer.Option("--batch", help="Batch sizes to try.")]
ModelsOption = Annotated[str, typer.Option("--models", help="Models to try: logistic, mlp, widths 64-32.")]
TrialsOption = Annotated[int, typer.Option(help="Settings to try; more of them go on with the same study.")]
StagesOption = Annotated[int, typer.Option(help="Stages in which each is rehearsed.")]
RecordsOption = Annotated[
    int | None, typer.Option(help="Most records of a double. [as many as the client has]")
]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="Run directory: the study, and best.toml for train.")
]


def tune(
    releases: ReleasesArgument,
    federation: FederationsOption = None,
    size: SizesOption = "",
    maximise: MaximiseOption = "auc",
    subject_to: LimitsOption = "",
    settings: SettingsOption = None,
    strategies: StrategiesOption = "fedavg,fedprox,scaffold,fedadam",
    lr: LrOption = "1e-5:1e-2",
    epochs: EpochsOption = "1:3",
    rounds: RoundsOption = "",
    batch: BatchOption = "32,64,128",
    models: ModelsOption = "logistic,16-16,mlp,64-64",
    trials: TrialsOption = 40,
    stages: StagesOption = 2,
    records: RecordsOption = None,
    output: OutputOption = None,
    accept_flagged: FlaggedOption = False,
    task: TaskOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Find how to train a federation: settings are rehearsed on artificial doubles of its clients.

    Example: fedwise tune releases/ --federation selection.json -o tuning/

    Nobody is asked and no privacy is spent. The same command goes on after a stop; fedwise train --settings
    tuning/best.toml takes the result; optuna-dashboard sqlite:///tuning/study.db shows the study.
    """
    from ..pool.pool import Pool
    from ..rehearsal.tuning import tune as run
    from ..training.settings import Training

    space = read_space(
        strategy=strategies, lr=lr, epochs=epochs, rounds=rounds, batch=batch, model=models, k=size
    )
    pool = Pool.load(releases, accept_flagged=accept_flagged, task=task)
    with bar("tuning", maximise) as best:
        found = run(
            pool, [read_federation(text) for text in federation] if federation else None, maximise=maximise,
            subject_to=read_limits(subject_to), space=space, trials=trials, stages=stages, records=records, seed=seed,
            settings=None if settings is None else Training.load(settings), output=output, progress=best,
        )  # fmt: skip
    if json:
        print_json(found)
    else:
        show(found)
    if found.interrupted:
        note("stopped; the same command goes on" if output else "stopped; with -o it could go on")
    if output is not None:
        note(f"best settings: {output / 'best.toml'} (fedwise train --settings); study: {found.storage}")


def read_space(**texts: str) -> Space:
    """Ranges ``1:3`` and lists ``a,b`` as a space."""
    import msgspec

    from ..errors import FedwiseError
    from ..rehearsal.space import Space

    found: dict[str, Any] = {}
    for name, text in texts.items():
        parts: list[Any] = names(text.replace(":", ","))
        if name in ("lr", "epochs", "rounds", "batch", "k"):
            try:
                parts = [float(part) if name == "lr" else int(part) for part in parts]
            except ValueError:
                raise FedwiseError(f"--{name} must be numbers such as 1:3, got '{text}'") from None
            if len(parts) == 1 and name != "batch":
                parts = parts * 2
        found[name] = parts
    return msgspec.convert(found, Space)


def show(found: Tuned) -> None:
    """The best points, best first."""
    ranked = sorted(found.tried, key=lambda one: -one.value)[:5]
    columns = (*ranked[0].point, "value")
    rows = [
        (*(f"{v:.2g}" if isinstance(v, float) else str(v) for v in one.point.values()), f"{one.value:.4f}")
        for one in ranked
    ]
    print_table(f"best of {len(found.tried)} settings ({found.goal})", columns, rows, right=columns)
    if found.baseline is not None:
        say(f"{found.goal}: {found.value:.4f} tuned, {found.baseline:.4f} with the settings it began with")
