"""Rows that cannot be mistaken: numbers and texts that nothing but a leak would show, and files that hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

import fedwise as fw

#: Ten declared levels, of which the rows hold three; one more value is declared nowhere.
TRADES = ("tinker", "tailor", "soldier", "sailor", "potter", "miller", "cooper", "weaver", "mason", "fuller")
SEEN = TRADES[:3]
UNSEEN = TRADES[3:]
STRANGE = "Zyxquv-undeclared-trade"
NAMES = ("Thaddeus-K9-Quillfeather", "Wilhelmina-Oxblood-77")
#: Incomes that no count and no parameter resembles.
INCOMES = (73_939_133, 15_485_863, 179_424_673)
RECORDS = 104_729

SCHEMA = f"""
name = "guild"
[columns.TRADE]
role = "feature"
levels = {list(TRADES)}
unknown = "other"
[columns.AGE]
role = "feature"
bins = [0, 18, 40, 65, 120]
[columns.SEX]
role = "sensitive"
levels = [1, 2]
[columns.RICH]
role = "target"
rule = "INCOME > 20000000"
"""
#: Here a value that is declared nowhere stops the release.
STRICT = SCHEMA.replace('unknown = "other"\n', "")


def guild(rows: int = RECORDS) -> pl.DataFrame:
    """Rows whose counts, texts and incomes cannot be mistaken for anything else."""
    rng = np.random.default_rng(20)
    trade = rng.choice([*SEEN, STRANGE], rows, p=[0.55, 0.25, 0.15, 0.05])
    sex = np.where(rng.random(rows) < 0.61, 1, 2)
    income = rng.choice(INCOMES, rows, p=[0.2, 0.5, 0.3])
    return pl.DataFrame(
        {
            "TRADE": trade,
            "AGE": rng.choice([7, 33, 51, 78], rows, p=[0.13, 0.37, 0.29, 0.21]),
            "SEX": sex,
            "INCOME": income,
            "NAME": rng.choice(NAMES, rows),
        }
    )


def write_inputs(folder: Path, rows: pl.DataFrame, plan: fw.Plan) -> list[Path]:
    """The owner's rows, whole and damaged in all the ways we know; these stay and are not walked."""
    plan.save(folder / "plan.json")
    fw.plan(fw.Schema.parse(STRICT)).save(folder / "strict.json")
    few = rows.head(2000)
    made = {
        "rows.parquet": rows,
        "missing_column.parquet": rows.drop("SEX"),
        "missing_value.parquet": few.with_columns(
            pl.when(pl.int_range(pl.len()) == 9).then(None).otherwise(pl.col("SEX")).alias("SEX")
        ),
        "text_for_number.parquet": few.with_columns(pl.lit(NAMES[0]).alias("AGE")),
        "outside.parquet": few.with_columns(pl.lit(INCOMES[0]).alias("AGE")),
        "empty_income.parquet": few.with_columns(pl.lit(NAMES[1]).alias("INCOME")),
    }
    for name, frame in made.items():
        frame.write_parquet(folder / name)
    few.write_csv(folder / "ragged.csv")
    with (folder / "ragged.csv").open("a") as file:
        file.write(f"{STRANGE},{INCOMES[0]}\n")
    few.with_columns(pl.lit(f'"{NAMES[0]}').alias("AGE")).write_csv(folder / "words.csv")
    (folder / "binary.csv").write_bytes(b"TRADE,AGE,SEX,INCOME\n\xff\xfe" + STRANGE.encode())
    cut = (folder / "rows.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(cut[: len(cut) // 2])
    return [*(folder / name for name in made), *(folder / f"{n}.csv" for n in ("ragged", "words", "binary")),
            folder / "cut.parquet"]  # fmt: skip
