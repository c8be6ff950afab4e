"""Make files as a consortium has them: one file of 20 areas, semicolons, codes for missing values, text codes, weights.

    python examples/messy_files.py messy/

Writes messy/all.csv (Windows-1252, semicolons, decimal commas, "N" and "-9" for missing values, codes such as "01", a
survey weight, 20 areas) and messy/dictionary.toml, the public data dictionary as a schema. All persons are artificial.
Then, in that folder:

    fedwise plan --init all.csv -o draft.toml     # what a draft knows; dictionary.toml is the completed one
    fedwise plan                                  # fedwise.toml, written here too, names everything
    fedwise check
    fedwise release
    fedwise inspect
    fedwise select
    fedwise train
    fedwise report
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

SCHEMA = """\
# The completed draft: domains from the public data dictionary.
name = "income"
null = ["N", "-9"]
decimal = ","
where = ["AGE >= 18"]

[columns.AGE]
role = "feature"
bins = [18, 35, 50, 65, 100]

[columns.SCHOOL]
role = "feature"
levels = ["01", "02", "03", "04"]
missing = "other"

[columns.HOURS]
role = "feature"
bins = [0, 20.5, 40.5, 100]
missing = "other"

[columns.SEX]
role = "sensitive"
levels = ["f", "m"]

[columns.ORIGIN]
role = "sensitive"
levels = ["inland", "Übersee", "elsewhere"]

[columns.RICH]
role = "target"
rule = "PINCP > 40000"
missing = "other"
"""
PROJECT = """\
schema = "dictionary.toml"
plan = "plan.json"
data = "all.csv"
by = "PUMA"
part = "train"
releases = "releases"
selection = "selection.json"
run = "run"
report = "report.html"
epsilon = 3.0
size = 5

[constraints]
min_records = 200

[training]
rounds = 5
model = "logistic"
lr = 0.01
"""


def rows(areas: int, people: int, seed: int) -> list[str]:
    """Lines of the file, header first."""
    rng = np.random.default_rng(seed)
    lines = ["SERIALNO;PUMA;PWGTP;AGE;SCHOOL;HOURS;SEX;ORIGIN;PINCP"]
    for number in range(areas * people):
        area, age, school = number % areas, int(rng.integers(10, 95)), int(rng.integers(1, 5))
        sex, hours = rng.choice(["f", "m"]), float(rng.uniform(0, 60))
        pay = (
            9000 * school + 500 * hours + 4000 * (sex == "m") + rng.normal(0, 9000) + 800 * (area - areas / 2)
        )
        cells = [
            f"{number:06d}",
            f"{100 + area:03d}",
            str(int(rng.integers(1, 200))),
            f'"{age}"',
            "N" if rng.random() < 0.05 else f"{school:02d}",
            "N" if rng.random() < 0.1 else f"{hours:.1f}".replace(".", ","),
            str(sex),
            str(rng.choice(["inland", "Übersee", "elsewhere"], p=[0.7, 0.2, 0.1])),
            "-9" if rng.random() < 0.03 else str(int(max(pay, 0))),
        ]
        lines.append(";".join(cells))
    return lines


def write(folder: Path, *, areas: int = 20, people: int = 400, seed: int = 0) -> None:
    """The file, the schema and the project file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "all.csv").write_bytes("\r\n".join([*rows(areas, people, seed), ""]).encode("cp1252"))
    (folder / "dictionary.toml").write_text(SCHEMA, encoding="utf-8")
    (folder / "fedwise.toml").write_text(PROJECT, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "messy"))
