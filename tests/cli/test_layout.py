"""Tables for people: nothing in them is broken or cut, whatever the width."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest
import typer
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from fedwise.cli.compare import compare
from fedwise.cli.layout import print_fitted
from fedwise.data.synthetic import states

WIDTHS = (60, 80, 120)
COLUMNS = (
    "federation",
    "strategy",
    "sampler",
    "rounds to target",
    "accuracy",
    "f1",
    "eod by SEX",
    "spd by SEX",
)
ROWS = [
    ("everyone", "fedavg", "power_of_choice", "12", *(f"0.7{i}13 ±0.01{i}3" for i in range(4))),
    ("random 10", "fedprox", "full", "-", *(f"0.0{i}13 ±0.00{i}3" for i in range(4))),
    ("[b]NY[/b]", "fedavg", "full", "7", *(f"0.1{i}13" for i in range(4))),
]


def shown(width: int, columns=COLUMNS, rows=ROWS, **options) -> list[str]:
    out = io.StringIO()
    print_fitted(Console(file=out, width=width, highlight=False), "a title", columns, rows, **options)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [*WIDTHS, 50, 65, 95, 100, 140, 200])
def test_every_cell_is_whole_at_every_width(width: int) -> None:
    lines = shown(width, right=COLUMNS[3:], keys=3)
    assert lines[0].strip() == "a title"
    assert max(cell_len(line) for line in lines) <= width
    for row in ROWS:
        for cell in row:
            assert any(cell in line for line in lines), (width, cell)
    for word in " ".join(COLUMNS).split():
        assert any(word in line for line in lines), (width, word)


def test_numbers_stand_beside_the_names_they_belong_to() -> None:
    for width in WIDTHS:
        lines = shown(width, right=COLUMNS[3:], keys=3)
        for row in ROWS:
            for number in row[4:]:
                (line,) = [line for line in lines if number in line]
                assert all(key in line for key in row[:3]), (width, number)


def test_without_room_for_a_table_each_value_has_a_line() -> None:
    lines = shown(30, right=COLUMNS[3:], keys=3)
    assert "accuracy: 0.7013 ±0.0103" in lines
    assert "federation: [b]NY[/b]" in lines
    digest = "ab" * 40
    assert f"plan: {digest}" in shown(60, ("client", "plan"), [("CA", digest)])


def test_prose_wraps_between_words() -> None:
    text = "the noise exceeds the average cell in more than half of the tables of this client"
    lines = shown(60, ("level", "what"), [("warning", text)])
    assert len(lines) > 5
    assert [word for line in lines for word in line.split() if word in text.split()] == text.split()


def test_a_table_of_nothing_is_a_title_and_a_head() -> None:
    assert [line.split() for line in shown(80, ("client", "loss"), []) if line.split()][:2] == [
        ["a", "title"],
        ["client", "loss"],
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three states of the shipped synthetic ones."""
    folder = tmp_path_factory.mktemp("states")
    for name, frame in states(scale=0.01, names=["AK", "DE", "VT"]).items():
        frame.write_parquet(folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("width", WIDTHS)
def test_compare_breaks_no_number_and_no_name(tmp_path: Path, data: Path, width: int) -> None:
    app = typer.Typer()
    app.command()(compare)
    words = (
        "--data", data, "--schema", "income", "--rounds", 1, "--model", "logistic", "--workers", 1, "--seeds", 2,
        "--strategies", "fedavg", "--samplers", "power_of_choice", "-o", tmp_path / "table.parquet",
    )  # fmt: skip
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": str(width)})
    assert done.exit_code == 0, done.exception
    lines = done.stdout.splitlines()
    assert max(cell_len(line) for line in lines) <= width
    table = pl.read_parquet(tmp_path / "table.parquet").filter(
        (pl.col("rows") == "all") & (pl.col("round") == 1)
    )
    for metric in ("accuracy", "auc"):
        mean = table.filter((pl.col("metric") == metric) & (pl.col("attribute") == ""))["value"].mean()
        (line,) = [line for line in lines if f"{mean:.4f} ±" in line]
        assert "everyone" in line
        assert "power_of_choice" in line
