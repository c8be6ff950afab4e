"""Workflow: train a federation into a run directory, alone in it, from the start or from its last checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import FedwiseError, SchemaError
from ..files import read_bytes
from ..planning import Plan
from ..schema.frame import FrameLike
from ..schema.schema import Schema
from ..search.selection import Selection
from .accounting import Cost, compose
from .federation import Prepared, prepare, read_frames
from .lock import alone
from .model import check_extra
from .run import Manifest, Run, fingerprint
from .samplers import make_sampler
from .settings import Training
from .simulate import Progress, simulate

#: Called with the rounds done, the rounds asked for, and the best accuracy so far.
OnProgress = Callable[[int, int, float], None]
#: Frames or files by client, or a directory with one file for each client.
Frames = Mapping[str, FrameLike] | str | Path


def train(
    frames: Frames,
    schema: Schema | None,
    federation: Selection | Sequence[str] | str | Path | None = None,
    settings: Training | None = None,
    *,
    output: str | Path,
    plan: Plan | None = None,
    resume: bool = False,
    force: bool = False,
    progress: OnProgress | None = None,
) -> Run:
    """Train a federation and test it on the held-out rows of all clients.

    Parameters
    ----------
    frames
        Rows of every client by name (frames or files), or a directory with one file for each. Clients
        outside the federation only lend their held-out rows.
    schema
        The public schema; ``None`` takes that of `plan`. One with several targets is trained for the one that
        `federation` was selected for; else name it, ``schema.for_target(NAME)``.
    federation
        Who trains: a selection, names, or the path of a selection file. Default: every client.
    settings
        How to train. Default: the paper's.
    output
        The run directory. Only one process works in it at a time.
    plan
        The plan the clients answered, for the joint cost of release and training.
    resume
        Go on after the last checkpoint where `output` holds this very run; the result is the same as
        without the break. A private run goes on with fresh noise; what it has written is never drawn again.
    force
        Replace a run that `output` holds.
    progress
        Called after every round with rounds done, rounds asked for, and the best accuracy so far.

    Returns
    -------
    Run
        The finished run: its model, metrics and costs are on disk.

    Raises
    ------
    FedwiseError
        `output` holds a run already, or another one than asked, or is in use.
    DataError
        The data does not fit the schema or the federation.
    Diverged
        A client's loss is no longer finite; the last good checkpoint is in place.
    """
    settings = settings or Training()
    check_extra(private=settings.epsilon is not None)
    known = schema or (plan.as_pairs.schema if plan is not None else None)
    if known is None:
        raise SchemaError("training needs a schema; pass one, or the plan that holds it")
    wanted, kept = _wanted(federation)
    known = known.for_target(_chosen_for(kept, known))
    source, found = read_frames(frames)
    prepared = _prepare(found, known, settings.test, settings.split_seed, settings.use_sensitive)
    manifest = _manifest(settings, prepared, wanted, source)
    beside = {} if kept is None else {"selection.json": kept}
    if plan is not None:
        beside["plan.json"] = plan.encode()
    with alone(Path(output)):
        if resume and (Path(output) / "config.json").exists() and not force:
            run = Run.open(output)
            run.check_asked(manifest)
        else:
            run = Run.create(output, manifest, known, force=force, beside=beside)
        return _complete(run, prepared, plan, progress)


def resume_run(
    output: str | Path,
    *,
    frames: Frames | None = None,
    plan: Plan | None = None,
    progress: OnProgress | None = None,
) -> Run:
    """Go on with the run in `output` after its last checkpoint, as it was asked.

    Parameters
    ----------
    frames
        The data, where it is elsewhere than when the run was started. It must hold the same rows.
    plan
        The plan the clients answered. Default: the one kept in the run directory.
    """
    Run.open(output)  # says what is wrong before a directory is made for the lock
    with alone(Path(output)):
        run = Run.open(output)
        manifest = run.manifest
        check_extra(private=manifest.config.privacy is not None)
        if frames is None and not manifest.data:
            raise FedwiseError(
                f"run '{run.path}' was started with frames from memory; pass them again, or their directory"
            )
        _, found = read_frames(manifest.data if frames is None else frames)
        prepared = _prepare(found, run.schema, manifest.test, manifest.split_seed, manifest.use_sensitive)
        run.check_data(fingerprint(prepared, prepared.check(manifest.federation)))
        return _complete(run, prepared, plan, progress)


def _prepare(
    frames: Mapping[str, FrameLike], schema: Schema, test: float, seed: int, use_sensitive: bool
) -> Prepared:
    return prepare(frames, schema, test=test, seed=seed, use_sensitive=use_sensitive)


def _manifest(settings: Training, prepared: Prepared, wanted: Sequence[str], source: str) -> Manifest:
    """What is asked, once everything that can fail before the first round has been tried."""
    config, members = settings.config(), prepared.check(wanted or prepared.clients)
    make_sampler(config.sampler, members, fraction=config.fraction, **config.sampler_options)
    return Manifest(
        config=config,
        federation=members,
        clients=prepared.clients,
        schema_digest=prepared.encoder.schema.digest,
        fingerprint=fingerprint(prepared, members),
        data=source,
        test=settings.test,
        split_seed=settings.split_seed,
        use_sensitive=settings.use_sensitive,
    )


def _complete(run: Run, prepared: Prepared, plan: Plan | None, progress: OnProgress | None) -> Run:
    """Train what is left of a run, write what was spent and then the model."""
    if plan is None and (run.path / "plan.json").exists():
        plan = Plan.load(run.path / "plan.json")
    run.notes = prepared.notes
    manifest = run.manifest
    best = -math.inf

    def after(now: Progress) -> None:
        nonlocal best
        run.save(now)
        accuracy = now.value("accuracy")
        best = max(best, accuracy) if math.isfinite(accuracy) else best
        if progress:
            progress(now.round, manifest.config.rounds, best)

    before = run.progress()
    if before is not None:
        run.save_metrics(before)  # a stop between a checkpoint and its metrics left these behind
    now = simulate(prepared, manifest.federation, manifest.config, resume=before, on_round=after)
    run.finish(now, run.model, costs(manifest, now, plan))
    return run


def costs(manifest: Manifest, now: Progress, plan: Plan | None) -> list[Cost]:
    """What every client has spent by the release and the training; nothing where neither was private."""
    privacy = manifest.config.privacy
    if privacy is None and plan is None:
        return []
    return compose(
        manifest.clients,
        mu=plan.mu if plan is not None else 0.0,
        release_epsilon=plan.epsilon if plan is not None else 0.0,
        release_delta=plan.delta if plan is not None else 0.0,
        training={} if privacy is None else {c: now.spent.get(c, ()) for c in manifest.federation},
        training_delta=privacy.delta if privacy is not None else 0.0,
        trained_openly=() if privacy is not None else manifest.federation,
        simulated=manifest.config.simulated,
    )


def _chosen_for(kept: bytes | None, schema: Schema) -> str | None:
    """The target that a selection was chosen for, where the schema has several."""
    names = [schema.names[t] for t in schema.targets]
    told: list[str] = (
        [] if kept is None else msgspec.json.decode(kept, type=dict[str, Any]).get("targets", [])
    )
    return told[0] if len(told) == 1 and len(names) > 1 and told[0] in names else None


def _wanted(
    federation: Selection | Sequence[str] | str | Path | None,
) -> tuple[list[str], bytes | None]:
    """Members (empty: everyone), and the selection to keep beside the run."""
    if federation is None:
        return [], None
    if isinstance(federation, Selection):
        return list(federation.clients), federation.encode()
    if isinstance(federation, str | Path):
        members, data = read_selection(Path(federation))
        return members, data
    members = [str(name) for name in federation]
    if not members:
        raise FedwiseError(
            "federation must name at least one client, got none; leave it out to train everyone"
        )
    return members, None


def read_selection(path: Path) -> tuple[list[str], bytes]:
    """The clients of a selection file, and the file itself."""
    data = read_bytes(path, what="selection file", error=FedwiseError)
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
        members = msgspec.convert(found["clients"], list[str])
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError):
        raise FedwiseError(
            f"selection file '{path}' must hold a JSON object with a list of clients"
        ) from None
    if not members:
        raise FedwiseError(f"selection file '{path}' must name at least one client")
    return members, data
