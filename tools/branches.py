"""Branches: does the coverage of all of src reach the bound? Reads what ``coverage json`` wrote.

    coverage json -o coverage.json && python tools/branches.py coverage.json --least 90

`coverage report --fail-under` mixes lines and branches; the promise is about branches alone. Prints the files with
branches that no test takes, worst first. Exit code 1 below the bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    """Count, print, and compare with the bound."""
    parser = argparse.ArgumentParser(description="Share of branches that tests take.")
    parser.add_argument("file", type=Path, help="output of coverage json")
    parser.add_argument("--least", type=float, default=90.0, help="least per cent of branches [90]")
    options = parser.parse_args()
    found = json.loads(options.file.read_text(encoding="utf-8"))
    missed = {
        name: part["missing_branches"] for name, part in found["files"].items() if part["missing_branches"]
    }
    for name, branches in sorted(missed.items(), key=lambda item: -len(item[1])):
        print(f"{name}: {', '.join(f'{start}->{end}' for start, end in branches)}")
    taken, total = found["totals"]["covered_branches"], found["totals"]["num_branches"]
    share = 100.0 * taken / total if total else 100.0
    print(f"{taken} of {total} branches, {share:.2f}% (at least {options.least:g}%)")
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
