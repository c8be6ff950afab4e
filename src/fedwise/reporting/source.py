"""Source: where a report's parts lie on disk. A run directory, a demo directory, or a selection file.

A directory may hold ``selection.json``, ``releases/``, ``metrics.parquet``, ``comparison.parquet``,
``config.json``, ``plan.json``, ``privacy.json``, ``rehearsal.json`` and ``audit.json``. What is missing is left
out of the report, which says what could not be checked without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from ..errors import FedwiseError
from ..files import decode, read_bytes, refuse_existing
from ..planning import Plan
from ..pool.pool import Pool
from ..rehearsal.performance import Rehearsed
from ..search.given import given
from ..search.selection import Selection
from ..training.run import Run
from ..view.promise import TrainingPrivacy
from ..view.tables import AuditRow
from .commands import command_lines
from .document import Report
from .engine_history import with_history
from .imprint import Imprint
from .run_privacy import comparison_privacy, training_privacy
from .run_settings import differences

#: How the chosen federation is called in charts and tables.
CHOSEN = "Chosen federation"
_RANDOM = re.compile(r"^(random)[ _-]?\d+$", re.IGNORECASE)


def report(
    source: str | Path | Run | Selection,
    output: str | Path | None = None,
    *,
    releases: str | Path | Pool | None = None,
    audit: str | Path | None = None,
    comparison: str | Path | None = None,
    baselines: Mapping[str, Sequence[str | Path]] | None = None,
    accept_flagged: bool = False,
    frontier: bool = True,
    forecast: bool = True,
    imprint: Imprint | None = None,
    force: bool = False,
) -> Report:
    """The report of a run or a selection: why these clients, what was promised, what came out.

    Parameters
    ----------
    source
        A run or its directory, as `fedwise train` or `fedwise demo` leave it, or a selection or its file.
    output
        Where to write the page; ``None`` writes nothing.
    releases, audit, comparison
        Parts that lie elsewhere than beside the source. The releases may be a pool.
    baselines
        Further run directories by label; several of one label are its seeds.
    accept_flagged, frontier, forecast
        As in `Pool.load` and `Report.of`.
    imprint
        Heading, who asked for the report, and its date: ``fw.Imprint(title=…, asked_by=…)``.
    force
        Whether the page may replace another file.

    Returns
    -------
    Report
        The values, the charts and the page; shows itself in a notebook.

    Raises
    ------
    FedwiseError
        A part named does not exist or cannot be read, or nothing says which federation was chosen.
    """
    if output is not None:
        refuse_existing(Path(output), force=force)
    folder, known = _place(source)
    place, pool = _pool(releases, folder, accept_flagged=accept_flagged)
    config = _json(folder / "config.json") if folder else {}
    selection = known or _selection(folder, pool, config)
    if pool is not None and len(selection.targets) == 1:
        pool = pool.for_target(selection.targets[0])
    runs = _runs(folder, _part(comparison, folder / "comparison.parquet" if folder else None), baselines)
    found = _part(audit, folder / "audit.json" if folder else None)
    plan = _plan(folder / "plan.json") if folder else None
    made = Report.of(
        pool,
        selection,
        runs=runs,
        audits=_audits(found) if found else (),
        frontier=frontier,
        forecast=forecast,
        model=str(config.get("config", {}).get("model", "mlp")),
        training_privacy=_privacy(folder, config, runs),
        plan=plan,
        rehearsal=_rehearsal(folder),
        differences=differences(
            config if CHOSEN in runs and _trained(folder) else {}, _configs(baselines), runs
        ),
        imprint=_completed(
            imprint or Imprint(),
            command_lines(selection, pool, config, releases=place, folder=folder, plan=plan is not None),
            config,
        ),
    )
    made = with_history(made, folder)
    if output is not None:
        made.save(output, force=force)
    return made


def _place(source: str | Path | Run | Selection) -> tuple[Path | None, Selection | None]:
    """The directory to look in, or the selection itself where there is none."""
    if isinstance(source, Selection):
        return None, source
    path = source.path if isinstance(source, Run) else Path(source)
    if not path.exists():
        raise FedwiseError(f"run '{path}' does not exist; name a run directory or a selection.json")
    return (path, None) if path.is_dir() else (None, Selection.load(path))


def _pool(
    releases: str | Path | Pool | None, folder: Path | None, *, accept_flagged: bool
) -> tuple[Path | None, Pool | None]:
    """Where the releases lie, and the releases; neither where there are none."""
    if isinstance(releases, Pool):
        return None, releases
    place = _part(releases, folder / "releases" if folder else None)
    return place, Pool.load(place, accept_flagged=accept_flagged) if place else None


def _part(given: str | Path | None, beside: Path | None) -> Path | None:
    """A part named by the user must exist; one beside the source may."""
    if given is not None:
        if not Path(given).exists():
            raise FedwiseError(f"'{given}' does not exist; check the path")
        return Path(given)
    return beside if beside is not None and beside.exists() else None


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    data = read_bytes(path, what="run file", error=FedwiseError)
    return decode(data, dict[str, Any], what=f"run file '{path}'", error=FedwiseError)


def _selection(source: Path | None, pool: Pool | None, config: Mapping[str, Any]) -> Selection:
    members = config.get("federation")
    path = source / "selection.json" if source is not None else None
    if path is not None and path.exists():
        members = _only_names(path) if pool is not None else []
        if not members:
            return Selection.load(path)
    if not members:
        raise FedwiseError(
            f"run '{source}' holds no selection.json and no federation; make one with fedwise select"
        )
    if pool is None:
        raise FedwiseError(
            f"run '{source}' holds no selection.json; name the releases its clients sent with --releases"
        )
    return given(pool, [str(name) for name in members])


def _completed(imprint: Imprint, commands: list[str], config: Mapping[str, Any]) -> Imprint:
    """With the command lines that lead here, and the digest of the training data."""
    digests = {"Training data": str(config["fingerprint"])} if config.get("fingerprint") else {}
    return msgspec.structs.replace(
        imprint, commands=imprint.commands or tuple(commands), digests={**digests, **imprint.digests}
    )


def _only_names(path: Path) -> list[str]:
    """The clients of a selection file that holds nothing else, as ``train --pool`` of version 0.1.0 wrote it."""
    found = _json(path)
    return [str(name) for name in found["clients"]] if set(found) <= {"clients", "k", "loss"} else []


def _trained(folder: Path | None) -> bool:
    return folder is not None and (folder / "metrics.parquet").exists()


def _configs(baselines: Mapping[str, Sequence[str | Path]] | None) -> dict[str, list[dict[str, Any]]]:
    """``config.json`` of the baselines that are run directories, by label."""
    found = {
        label: [
            _json(Path(place) / "config.json") for place in places if (Path(place) / "config.json").exists()
        ]
        for label, places in (baselines or {}).items()
    }
    return {label: configs for label, configs in found.items() if configs}


def _rehearsal(folder: Path | None) -> Rehearsed | None:
    path = folder / "rehearsal.json" if folder is not None else None
    return Rehearsed.load(path) if path is not None and path.exists() else None


def _runs(
    folder: Path | None, comparison: Path | None, baselines: Mapping[str, Sequence[str | Path]] | None
) -> dict[str, list[pl.DataFrame]]:
    found: dict[str, list[pl.DataFrame]] = {}
    if folder is not None and _trained(folder):
        found[CHOSEN] = [read_metrics(folder / "metrics.parquet")]
    if comparison is not None:
        for label, frames in split_comparison(read_metrics(comparison), chosen_known=CHOSEN in found).items():
            found.setdefault(label, []).extend(frames)
    for label, places in (baselines or {}).items():
        for path in places:
            file = Path(path) / "metrics.parquet" if Path(path).is_dir() else Path(path)
            found.setdefault(label, []).append(read_metrics(file))
    return found


def read_metrics(path: Path) -> pl.DataFrame:
    """A table of metrics, Parquet or CSV."""
    if not path.exists():
        raise FedwiseError(f"metrics '{path}' do not exist; name a run directory or a table of metrics")
    try:
        return pl.read_csv(path) if path.suffix.lower() == ".csv" else pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError):
        raise FedwiseError(f"metrics '{path}' cannot be read; make them again") from None


def split_comparison(table: pl.DataFrame, *, chosen_known: bool = False) -> dict[str, list[pl.DataFrame]]:
    """The runs of a table of `fedwise compare` by label, with a table for each seed; random federations together.

    The first federation of the table is the chosen one, unless its run is already at hand.
    """
    keys = [key for key in ("federation", "strategy", "sampler", "seed") if key in table.columns]
    if "federation" not in keys:
        raise FedwiseError("comparison must have a column 'federation'; make it with fedwise compare")
    names = table["federation"].unique(maintain_order=True).to_list()
    mixed = [key for key in ("strategy", "sampler") if key in keys and table[key].n_unique() > 1]
    found: dict[str, list[pl.DataFrame]] = {}
    for part in table.partition_by(keys, maintain_order=True):
        name = str(part["federation"][0])
        first = name == names[0] and not chosen_known
        label = CHOSEN if first else "Random federations" if _RANDOM.match(name) else name
        label = " · ".join([label, *(str(part[key][0]) for key in mixed)])
        found.setdefault(label, []).append(part)
    return found


def _privacy(
    folder: Path | None, config: Mapping[str, Any], runs: Mapping[str, Sequence[pl.DataFrame]]
) -> TrainingPrivacy | None:
    """Of the chosen federation's training: what its run directory says, else what the comparison says."""
    if folder is not None and _trained(folder):
        return training_privacy(folder, config)
    chosen = [found for label, found in runs.items() if label.split(" · ")[0] == CHOSEN]
    return comparison_privacy([table for tables in chosen for table in tables])


class _AuditFile(msgspec.Struct):
    """What a report reads of the file `fedwise audit` writes."""

    audits: list[AuditRow]


def _audits(path: Path) -> list[AuditRow]:
    data = read_bytes(path, what="audit file", error=FedwiseError)
    return decode(data, _AuditFile, what=f"audit file '{path}'", error=FedwiseError).audits


def _plan(path: Path) -> Plan | None:
    return Plan.load(path) if path.exists() else None
