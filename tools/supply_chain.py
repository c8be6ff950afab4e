"""Supply chain: is what is installed what was meant?

    python tools/supply_chain.py             pins, versions, licences, the dependency table; pip-audit where it runs
    python tools/supply_chain.py --hashes    also every installed file against the hash its wheel recorded

Works offline. Exit code 1 when something is wrong, each finding a line. Known vulnerabilities need a database:
where ``pip-audit`` is installed and reaches one it is run, otherwise a line says that nobody looked.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata as metadata
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
#: Licences that let anyone use, change and ship fedwise with what it needs.
ALLOWED = frozenset(
    {"0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0",
     "MPL-2.0", "PSF-2.0", "Public Domain", "Unlicense", "Zlib"}
)  # fmt: skip
#: Other spellings in the metadata of packages.
_ALSO = {
    "apache software license": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "bsd license": "BSD",
    "3-clause bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
#: They install packages and come with every environment; nothing of ours imports them.
INSTALLERS = frozenset({"pip", "setuptools", "wheel"})


class Package(NamedTuple):
    """An installed distribution: canonical name, version, licences by name."""

    name: str
    version: str
    licences: frozenset[str]


def project(root: Path = ROOT) -> dict[str, dict[str, Requirement]]:
    """Direct requirements by group: ``core``, ``build``, and the name of each extra; our own name left out."""
    read = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {"core": read["project"]["dependencies"], "build": read["build-system"]["requires"]}
    groups |= read["project"]["optional-dependencies"]
    found = {}
    for group, lines in groups.items():
        wanted = [Requirement(line) for line in lines]
        found[group] = {
            canonicalize_name(r.name): r for r in wanted if canonicalize_name(r.name) != "fedwise"
        }
    return found


def pins(text: str) -> dict[str, str]:
    """Version of every name in a constraints file."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name.strip()): version.strip() for name, version in pairs}


def closure(names: Iterable[str]) -> dict[str, Package]:
    """The named distributions and everything they require here, as far as installed."""
    found: dict[str, Package] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(name), frozenset()) for name in names]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = Package(name, installed.version.partition("+")[0], licences(installed))
        for line in installed.requires or ():
            wanted = Requirement(line)
            asked = [{"extra": extra} for extra in extras] or [{"extra": ""}]
            if wanted.marker is None or any(wanted.marker.evaluate(env) for env in asked):
                waiting.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return found


def licences(installed: metadata.Distribution) -> frozenset[str]:
    """Licences a distribution states, under their usual names; empty where it states none."""
    fields = installed.metadata
    expression = fields.get("License-Expression")
    if expression:
        words = re.split(r"\s+(?:AND|OR)\s+|[()]", expression)
        return frozenset(word.partition(" WITH ")[0].strip() for word in words if word.strip())
    given = [
        text.rpartition("::")[2].strip()
        for text in fields.get_all("Classifier") or ()
        if text.startswith("License ::") and not text.endswith(("OSI Approved", "DFSG approved"))
    ]
    short = (fields.get("License") or "").strip()
    if not given and short and "\n" not in short:
        given = [part.strip() for part in re.split(r",|\s+(?:AND|OR)\s+", short)]
    return frozenset(_ALSO.get(name.lower(), name) for name in given)


def table(text: str) -> dict[str, str]:
    """Package and licence of every line of the tables in docs/dependencies.md."""
    found: dict[str, str] = {}
    columns: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not columns:
            columns = cells
        elif not set(line) <= set("|-: "):
            row = dict(zip(columns, cells, strict=True))
            names = [name.strip() for name in row["package"].split(",")]
            given = [name.strip() for name in row["licence"].split(",")]
            if len(given) == 1:
                given *= len(names)
            found |= {canonicalize_name(n): licence for n, licence in zip(names, given, strict=True)}
    return found


def check_pins(installed: Mapping[str, Package], pinned: Mapping[str, str]) -> Iterator[str]:
    """Everything that runs is pinned, and is the version that is pinned."""
    for name, package in sorted(installed.items()):
        if name in INSTALLERS or name == "fedwise":
            continue
        if name not in pinned:
            yield f"{name} {package.version} is installed but not in constraints.txt; pin it"
        elif pinned[name] != package.version:
            yield f"{name} must be {pinned[name]} as in constraints.txt, got {package.version}"


def check_licences(installed: Mapping[str, Package]) -> Iterator[str]:
    """Every licence is known and allowed."""
    for name, package in sorted(installed.items()):
        unknown = sorted(package.licences - ALLOWED)
        if not package.licences:
            yield f"{name} states no licence; look it up, or replace the package"
        elif unknown:
            yield f"{name} is under {', '.join(unknown)}, which is not on the list; decide, then extend ALLOWED"


def check_table(
    direct: Mapping[str, Mapping[str, Requirement]],
    listed: Mapping[str, str],
    installed: Mapping[str, Package],
) -> Iterator[str]:
    """docs/dependencies.md names every direct dependency with its licence, and nothing else."""
    wanted = {name for group in direct.values() for name in group}
    for name in sorted(wanted - set(listed)):
        yield f"{name} is required in pyproject.toml but not explained in docs/dependencies.md"
    for name in sorted(set(listed) - wanted):
        yield f"{name} is explained in docs/dependencies.md but not required in pyproject.toml"
    for name in sorted(wanted & set(listed) & set(installed)):
        stated = installed[name].licences
        # A classifier says only "BSD"; the table names the clauses.
        if not any(
            listed[name] == one or (one == "BSD" and listed[name].startswith("BSD")) for one in stated
        ):
            found = ", ".join(sorted(stated)) or "none"
            yield f"{name} has licence {listed[name]} in docs/dependencies.md, its own metadata says {found}"


def check_bounds(direct: Mapping[str, Mapping[str, Requirement]]) -> Iterator[str]:
    """Every direct dependency says from which version on it was meant to work."""
    for group, wanted in direct.items():
        for name, requirement in sorted(wanted.items()):
            if not any(clause.operator in (">=", "==", "~=") for clause in requirement.specifier):
                yield f"{name} ({group}) must have a lower bound in pyproject.toml, such as {name}>=1.0"


def check_hashes(names: Iterable[str]) -> Iterator[str]:
    """Installed files against the hashes in the RECORD of their wheel: changed after installation?"""
    for name in sorted(names):
        for file in metadata.distribution(name).files or ():
            if file.hash is None or file.hash.mode != "sha256":
                continue
            path = Path(str(file.locate()))
            if not path.is_file():
                yield f"{name}: {file} is missing"
                continue
            with path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
                yield f"{name}: {file} is not the file that was installed"


def audit() -> tuple[list[str], str]:
    """Findings of pip-audit, and a line on whether it could look at all."""
    program = shutil.which("pip-audit")
    if program is None:
        return [], "pip-audit is not installed: nobody looked for known vulnerabilities"
    done = subprocess.run(
        [
            program,
            "--requirement",
            "constraints.txt",
            "--no-deps",
            "--disable-pip",
            "--progress-spinner",
            "off",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode == 0:
        return [], "pip-audit knows no vulnerability of the pinned versions"
    if "PYSEC-" in done.stdout or "GHSA-" in done.stdout or "CVE-" in done.stdout:
        return done.stdout.strip().splitlines(), "pip-audit found vulnerabilities"
    return [], "pip-audit reached no database: nobody looked for known vulnerabilities"


def findings(root: Path = ROOT) -> tuple[list[str], int]:
    """Everything wrong that can be seen offline, and the number of packages looked at."""
    direct = project(root)
    installed = closure(name for group in direct.values() for name in group)
    # Extras such as flwr[simulation] bring packages of their own.
    for group in direct.values():
        for requirement in group.values():
            for extra in requirement.extras:
                installed |= _with_extra(requirement.name, extra)
    found = [
        *check_pins(installed, pins((root / "constraints.txt").read_text(encoding="utf-8"))),
        *check_licences(installed),
        *check_table(
            direct, table((root / "docs" / "dependencies.md").read_text(encoding="utf-8")), installed
        ),
        *check_bounds(direct),
    ]
    return found, len(installed)


def _with_extra(name: str, extra: str) -> dict[str, Package]:
    lines = metadata.requires(name) or [] if _installed(name) else []
    brought = [Requirement(line) for line in lines]
    names = [r.name for r in brought if r.marker is not None and r.marker.evaluate({"extra": extra})]
    return closure(names)


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def main() -> int:
    """Look, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description="Is what is installed what was meant?")
    parser.add_argument("--hashes", action="store_true", help="also check every installed file's hash")
    options = parser.parse_args()
    found, number = findings()
    if options.hashes:
        direct = project()
        names = closure(name for group in direct.values() for name in group)
        found += check_hashes(names)
    known, said = audit()
    found += known
    for line in found:
        print(line)
    print(f"{number} packages, {len(found)} findings; {said}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
