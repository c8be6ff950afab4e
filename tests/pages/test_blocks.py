"""Every shell and Python block of the documentation is run, in a folder with small synthetic data.

A block that needs a server, the network or minutes says so in its title, ``Not run here: why``; those are counted.
The folder holds what the quickstart makes, and ``fw``, ``schema``, ``plan``, ``frames``, ``pool`` and ``selection``
have these values in Python, so that a page may begin in the middle.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedwise as fw
from fedwise.cli.main import main
from fedwise.data import synthetic
from pages.blocks import SHELL, blocks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
#: Followed step by step by a test of its own, on several machines' worth of processes.
ELSEWHERE = (ROOT / "docs" / "how-to" / "deploy.md",)
PAGES = [page for page in PAGES if page not in ELSEWHERE]
WITH_BLOCKS = [p for p in PAGES if any(b.language in (*SHELL, "python") for b in blocks(p))]
NAMES = ("AK", "AZ", "CA", "CO", "FL", "HI", "MA", "NY", "TX", "VT", "WA", "WY")
#: At most this many blocks may say that they are not run.
MOST_NOT_RUN = 30
#: Pages that are run with every change; the others rehearse, tune, train or audit for longer, and make soak runs them.
ALWAYS = (
    "README.md", "docs/how-to/explore.md", "docs/how-to/flower.md", "docs/how-to/nvflare.md", "docs/how-to/report.md",
    "docs/how-to/select.md",
)  # fmt: skip


def _cases() -> list[Any]:
    names = [str(page.relative_to(ROOT)) for page in WITH_BLOCKS]
    return [
        pytest.param(page, id=name, marks=[] if name in ALWAYS else [pytest.mark.soak])
        for page, name in zip(WITH_BLOCKS, names, strict=True)
    ]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a consortium has after the quickstart."""
    place = tmp_path_factory.mktemp("consortium")
    schema = synthetic.schema()
    frames = synthetic.states(seed=0, scale=0.01, names=NAMES)
    schema.save(place / "schema.toml")
    schema.save(place / "income.toml")
    plan = fw.plan(schema, 1.0)
    plan.save(place / "plan.json")
    (place / "clients").mkdir()
    for name, frame in frames.items():
        frame.write_parquet(place / "clients" / f"{name}.parquet")
        (place / "ledgers").mkdir(exist_ok=True)
        ledger = fw.Ledger(place / "ledgers" / f"{name}.db", 1.0, 1e-5)
        fw.release(plan, frame, client=name, ledger=ledger).save(place / "releases" / f"{name}.release.json")
    frames["CA"].write_parquet(place / "people.parquet")
    frames["CA"].write_parquet(place / "sample.parquet")
    frames["CA"].write_csv(place / "people.csv")
    frames["NY"].write_csv(place / "new_people.csv")
    selection = fw.select(fw.Pool.load(place / "releases"), 5, seed=0)
    selection.save(place / "selection.json")
    settings = fw.Training(rounds=3, model="logistic", replicates=0)
    fw.train(place / "clients", schema, selection, settings, output=place / "run", plan=plan)
    (place / "runs").mkdir()
    shutil.copytree(place / "run", place / "runs" / "income")
    return place


def prepare_images() -> None:
    """Public images, a client's own with their digits, and an extractor of one's own."""
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 10, 90)
    images = np.clip(rng.normal(digits[:, None, None] / 10, 0.2, (90, 8, 8)), 0, 1).astype(np.float32)
    np.save("public.npy", images)
    np.savez("scans.npz", records=images[:60], digit=digits[:60])
    Path("mycode.py").write_text("def detail(images):\n    return images.reshape(len(images), -1)[:, ::2]\n")


def prepare_stages() -> None:
    """First releases of a plan in two stages, and the shortlist that the coordinator sent."""
    plan = fw.plan(fw.Schema.load("income.toml"), 1.0, stages=[0.1, 1.0])
    for path in Path("clients").glob("*.parquet"):
        released = fw.release(plan, path, client=path.stem, simulated=True, seed=0)
        released.save(Path("releases") / f"{path.stem}.release.json", force=True)
    fw.shortlist(fw.Pool.load("releases"), 5, constraints=fw.Constraints(include=["CA"])).save(
        "shortlist.json"
    )


#: What a page needs beside the folder of the quickstart.
PREPARE = {"images.md": prepare_images, "stages.md": prepare_stages}


def run_command(words: list[str]) -> None:
    """A command of the documentation, in this process."""
    assert words[0] == "fedwise", f"only fedwise is run here, got {words[0]}; mark the block as not run"
    words, into = (words[:-2], Path(words[-1])) if words[-2] == ">" else (words, None)
    _make_room(words)
    out, err, code = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO(), 0
    before, sys.argv = sys.argv, words
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = before
    assert code == 0, f"{' '.join(words)} ended with {code}: {err.getvalue()[-400:]}"
    if into is not None:
        into.write_bytes(out.buffer.getvalue())


def _make_room(words: list[str]) -> None:
    """Take away what the folder holds under the name that a command is about to write."""
    if "--resume" in words or "--force" in words:
        return
    for option in ("-o", "--output"):
        if option in words:
            path = Path(words[words.index(option) + 1])
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("page", _cases())
def test_blocks_run(page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    if page.name in PREPARE and page.parent.name == "how-to":
        PREPARE[page.name]()
    pool = fw.Pool.load("releases")
    names: dict[str, Any] = {
        "fw": fw,
        "schema": pool.plan.schema,
        "plan": pool.plan,
        "frames": {path.stem: path for path in sorted(Path("clients").glob("*.parquet"))},
        "pool": pool,
        "selection": fw.Selection.load("selection.json"),
    }
    for block in blocks(page):
        if block.reason:
            continue
        if block.language == "python":
            for name in re.findall(r'save\("([^"]+)"\)', block.text):
                Path(name).unlink(missing_ok=True)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.text, f"{page.name}:{block.line}", "exec"), names)
        elif block.language in SHELL:
            assert block.commands, f"{page.name}:{block.line} has no line that starts with $"
            for words in block.commands:
                run_command(words)


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    found = [
        (page.name, block.line, block.reason) for page in PAGES for block in blocks(page) if block.reason
    ]
    assert len(found) <= MOST_NOT_RUN
    assert all(len(reason) > 8 for _, _, reason in found)


def test_commands_are_in_blocks_that_are_run() -> None:
    """A command line in a block without a language would be run by nobody."""
    silent = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.language in ("", "text")
        and block.text.lstrip().startswith(("fedwise ", "$ fedwise ", "pip ", "$ pip "))
    ]
    assert silent == []
