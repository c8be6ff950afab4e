"""Flower versions: the release phase, the limited Grid and training on it, in an environment for each version of flwr.

    python tools/flower_versions.py 1.38.0 1.42.0         fresh environments, the tests below, one line for each
    python tools/flower_versions.py --keep DIR 1.38.0     leave the environment there and use it again

A range of versions nobody has run at its ends is a guess; this turns it into a fact.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: None needs torch, Ray or a network.
TESTS = (
    "tests/flower/test_release_phase.py",
    "tests/flower/test_select_federation.py",
    "tests/flower/test_turnover.py",
    "tests/flower/test_masks.py",
)
TOOLS = ("hypothesis", "pytest", "pytest-timeout", "packaging")


def run(version: str, home: Path) -> bool:
    """Install one version with the extra ``flower`` and run the tests; whether they passed."""
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, f"{ROOT}[flower]", f"flwr=={version}", *TOOLS], cwd=home, check=False)
    if done.returncode:
        # An index may lack a requirement of the very newest version; the code can be tried all the same.
        print(
            f"flwr {version}: this index cannot meet all of its requirements; installed without them",
            flush=True,
        )
        subprocess.run([*pip, f"{ROOT}[flower]", *TOOLS], cwd=home, check=True)
        subprocess.run([*pip, "--no-deps", f"flwr=={version}"], cwd=home, check=True)
    loaded = subprocess.run(
        [str(python), "-c", "import sys, fedwise.flower as f; [getattr(f, n) for n in ('release_app', "
         "'select_federation', 'FederationGrid')]; print(sorted({'torch', 'ray'} & set(sys.modules)))"],
        capture_output=True, text=True, cwd=home, check=False,
    )  # fmt: skip
    # The checkout's own source: what is tested is what will be released.
    tests = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-x", "-W", "default", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT / "src"), "PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(home)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = (tests.stdout.strip().splitlines() or ["nothing ran"])[-1]
    passed = tests.returncode == 0 and loaded.stdout.strip() == "[]"
    print(f"flwr {version}: {'works' if passed else 'FAILS'}: {last}; torch and Ray loaded: {loaded.stdout.strip()}",
          flush=True)  # fmt: skip
    if not passed:
        print(tests.stdout[-3000:] + tests.stderr[-2000:] + loaded.stderr[-1000:], flush=True)
    return passed


def main() -> int:
    """Run the versions asked for."""
    parser = argparse.ArgumentParser(description="Test versions of flwr, each in an environment of its own.")
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--keep", metavar="DIR", help="where environments are kept; default: nowhere")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(options.keep or folder)
        found = [run(version, home / f"flwr-{version}") for version in options.versions]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
