"""Options that train, compare and calibrate share: where the data is, and how a training goes."""

from __future__ import annotations

import math
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..planning import Plan
    from ..schema.schema import Schema
    from ..training.settings import Training

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Directory with one Parquet or text file for each client; or one file, with --by."
    ),
]
DivideOption = Annotated[
    str | None, typer.Option("--by", help="Column that divides --data, one file, into clients.")
]
SyntheticOption = Annotated[
    float | None,
    typer.Option("--synthetic", help="Use the 50 embedded synthetic states at this scale, such as 0.1."),
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", help="Schema file, or a shipped one such as income. [income for --synthetic]"),
]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="Of several targets of the schema, the one that counts.")
]
SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings", help="File of settings (fedwise tune); options that are written here go before it."
    ),
]
RoundsOption = Annotated[int, typer.Option("--rounds", help="Communication rounds.")]
FractionOption = Annotated[float, typer.Option("--fraction", help="Share of the federation in a round.")]
OptimizerOption = Annotated[str, typer.Option("--optimizer", help="Local optimiser: adam or sgd.")]
LrOption = Annotated[float, typer.Option("--lr", help="Local learning rate.")]
BatchOption = Annotated[int, typer.Option("--batch", help="Rows in a local step.")]
EpochsOption = Annotated[int, typer.Option("--epochs", help="Local passes over the rows in a round.")]
ModelOption = Annotated[
    str, typer.Option("--model", help="mlp (32-32-32), logistic, or widths such as 64-32.")
]
TestOption = Annotated[float, typer.Option("--test", help="Share of each client's rows held out.")]
SplitSeedOption = Annotated[int, typer.Option("--split-seed", help="Seed of the one split of each client.")]


def training_settings(context: typer.Context, path: Path | None, **given: Any) -> Training:
    """The settings of the options; with a file, its settings and of the options only those that were written."""
    import msgspec

    from ..training.settings import Training

    if path is None:
        return Training(**given)
    named = {"strategy_options": "strategy_set", "sampler_options": "sampler_set", "replicates": "bootstrap"}
    written = {}
    for name, value in given.items():
        source = context.get_parameter_source(named.get(name, name))
        if source is not None and source.name == "COMMANDLINE":
            written[name] = value
    return msgspec.structs.replace(Training.load(path), **written)


def options(pairs: list[str] | None) -> dict[str, Any]:
    """``["mu=0.1"]`` as a dictionary; numbers and booleans are read as such."""
    from ..errors import FedwiseError

    out: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise FedwiseError(f"option must be written name=value, got '{pair}'")
        value: Any = {"true": True, "false": False, "none": None}.get(text.lower(), text)
        if isinstance(value, str):
            for kind in (int, float):
                try:
                    value = kind(text)
                    break
                except ValueError:
                    continue
        out[key.strip()] = value
    return out


def name_source(data: Path | None, synthetic: float | None, by: str | None = None) -> str:
    """Where the data is, in words a run directory can keep."""
    from ..errors import DataError

    if (data is None) == (synthetic is None):
        raise DataError("training needs --data DIRECTORY or --synthetic SCALE, and not both")
    if data is not None and data.is_file():
        if by is None:
            raise DataError(
                f"data '{data}' is one file; name the column that divides it into clients with --by, or a directory"
            )
        return f"by:{by}:{data}"
    return str(data) if data is not None else f"synthetic:{synthetic}"


def find_schema(
    schema: str | None, synthetic: float | None, asked: Plan | None, *, task: str | None = None
) -> Schema:
    """The schema named, or that of the plan, or the synthetic states' own; of one task where it is named."""
    found = _find_schema(schema, synthetic, asked)
    return found if task is None else found.for_target(task)


def _find_schema(schema: str | None, synthetic: float | None, asked: Plan | None) -> Schema:
    from ..errors import SchemaError
    from .plan import load_schema

    if schema is not None:
        return load_schema(schema)
    if asked is not None:
        return asked.schema
    if synthetic is not None:
        return load_schema("income")
    raise SchemaError("training needs --schema: a schema file or a shipped one such as income")


def names(text: str) -> list[str]:
    """``"CA, NY"`` as a list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def target_names(text: str) -> list[str] | str | None:
    """``"CA,NY"`` as a list, the path of a file of public rows as it is, and nothing as ``None``."""
    from ..schema.frame import Format

    return text if Format.of(Path(text)) is not None else names(text) or None


@contextmanager
def bar(title: str, metric: str, *, digits: int = 4) -> Iterator[Callable[[int, int, float], None]]:
    """A progress bar as the library calls it: done, expected, and the best so far."""
    with progress() as shown:
        task = shown.add_task(title, total=1, best="")

        def show(done: int, expected: int, best: float) -> None:
            text = f"best {metric} {best:.{digits}f}" if math.isfinite(best) else ""
            shown.update(task, completed=done, total=max(expected, 1), best=text)

        yield show
