"""fedwise select and fedwise frontier, from the command line: answers and mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedwise as fw
from fedwise.cli.main import main
from fedwise.pool.pool import Pool
from fedwise.search import Selection, select

#: The command line, saying when its search has begun.
WATCHED = """
import sys
from fedwise.cli.main import main
from fedwise.search.control import Control
report = Control.report
def watched(self, evaluations, best):
    if evaluations and not self.done:
        print("working", file=sys.stderr, flush=True)
    report(self, evaluations, best)
Control.report = watched
main()
"""

CLIENTS = ("AK", "AL", "CA", "CT", "MD", "NY", "TX")


def people(rows: int, seed: int) -> pl.DataFrame:
    """Rows of the small schema; each seed has its own dependence of income on sex and job."""
    rng = np.random.default_rng(seed)
    age, job, sex = rng.integers(0, 100, rows), rng.integers(0, 3, rows), rng.integers(1, 3, rows)
    pull = rng.uniform(0, 30_000, 2)
    income = rng.normal(30_000 + pull[0] * (sex == 1) + pull[1] * job, 15_000).round()
    return pl.DataFrame(
        {"AGE": age, "JOB": np.array(["farm", "shop", "office"])[job], "SEX": sex, "INCOME": income}
    )


@pytest.fixture(scope="module")
def releases(small_schema, tmp_path_factory) -> Path:
    """Seven releases with simulated noise."""
    root = tmp_path_factory.mktemp("cli") / "releases"
    plan = fw.plan(small_schema, epsilon=5.0)
    for seed, client in enumerate(CLIENTS):
        release = fw.release(plan, people(800 + 100 * seed, seed), client=client, simulated=True, seed=seed)
        release.save(root / f"{client}.release.json")
    return root


@pytest.fixture
def cli(monkeypatch, capsysbinary):
    """Run the command; returns exit code, stdout, stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedwise", *(str(word) for word in words)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out = capsysbinary.readouterr()
        return code, out.out.decode(), out.err.decode()

    return call


def test_json_is_one_object_equal_to_the_library(cli, releases):
    code, out, _ = cli("select", releases, "-k", 3, "--json", "--seed", 4)
    found = json.loads(out)
    assert code == 0
    assert list(found)[1:13] == [
        "clients", "k", "loss", "terms", "std_error", "method", "status", "evaluations", "seconds", "seed",
        "certificate", "alternatives",
    ]  # fmt: skip
    direct = select(Pool.load(releases), 3, seed=4)
    assert found["clients"] == list(direct.clients)
    assert found["loss"] == direct.loss
    assert found["flags"][0].startswith("simulated")
    assert sum(found["frequency"].values()) == pytest.approx(3)


def test_people_read_a_table_and_machines_the_names(cli, releases, tmp_path):
    code, out, err = cli("select", releases, "-k", 3, "-o", tmp_path / "selection.json")
    chosen = Selection.load(tmp_path / "selection.json")
    assert code == 0
    assert out.splitlines()[-1] == ",".join(chosen.clients)
    assert "proved" in out
    assert "left open" in out
    assert "the paper" not in out
    assert "leave one out" in out
    assert err.split()[:2] == ["written", "to"]
    assert cli("select", releases, "-k", 3, "-o", tmp_path / "selection.json")[0] == 2
    assert cli("select", releases, "-k", 3, "-o", tmp_path / "selection.json", "--force")[0] == 0


def test_the_papers_bounds_on_request(cli, releases):
    code, out, _ = cli("select", releases, "-k", 3, "--bounds")
    assert code == 0
    assert "assumptions not met" in out
    assert "global bound" in out
    certificate = json.loads(cli("select", releases, "-k", 3, "--bounds", "--json")[1])["certificate"]
    assert certificate["mu"] > 0
    assert [a["holds"] for a in certificate["assumptions"]].count(False) > 0
    bare = json.loads(cli("select", releases, "-k", 3, "--json")[1])["certificate"]
    assert (bare["mu"], bare["local_bound"], bare["assumptions"]) == (None, None, [])
    assert bare["swap_chance"] == certificate["swap_chance"]


def test_every_option_reaches_the_search(cli, releases, tmp_path):
    (tmp_path / "groups.csv").write_text("client,group\nAK,west\nCA,west\nAL,south\nTX,south\n")
    (tmp_path / "costs.csv").write_text(
        "client,cost\n" + "".join(f"{c},{i}\n" for i, c in enumerate(CLIENTS))
    )
    (tmp_path / "w.toml").write_text("alpha = 1.0\nbeta = 0.5\ngamma = 0.0\nlam = 2.0\n")
    code, out, err = cli(
        "select", releases, "-k", "2:4", "--weights", tmp_path / "w.toml", "--alpha", 3, "--method", "annealing",
        "--estimator", "plain", "--include", "CA", "--exclude", "NY, TX", "--min-records", 100, "--group-file",
        tmp_path / "groups.csv", "--max-per-group", 1, "--cost-file", tmp_path / "costs.csv", "--budget", 8,
        "--evidence", "none", "--threads", 1, "--json",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert found["weights"] == {"alpha": 3.0, "beta": 0.5, "gamma": 0.0, "lam": 2.0}
    assert found["estimator"] == "plain"
    assert found["method"] == "annealing"
    assert "CA" in found["clients"]
    assert not {"NY", "TX", "AK"} & set(found["clients"])
    assert sum(CLIENTS.index(c) for c in found["clients"]) <= 8
    assert cli("select", releases, "--smallest", 0.05, "--json", "--evidence", "none")[0] == 0
    assert cli("select", releases, "--representative", 0.5, "--json", "--evidence", "none")[0] == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("-k", 0), 2, "k must be between 1 and the 7 clients of the pool, got 0"),
        (("-k", 8), 2, "k must be between 1 and the 7 clients of the pool, got 8"),
        (("-k", "x"), 2, "k must be an integer or a range such as '5:15', got 'x'"),
        ((), 2, "k (--size) must be given"),
        (("-k", 2, "--include", "CAA"), 2, "got 'CAA'; did you mean 'CA'"),
        (("-k", 2, "--exclude", "MDD"), 2, "did you mean 'MD'"),
        (("-k", 2, "--method", "fast"), 2, "method 'fast' is not known"),
        (("-k", 2, "--estimator", "magic"), 2, "estimator must be"),
        (("-k", 2, "--min-records", 1e9), 4, "min_records=1e+09; the largest has about"),
        (("-k", 2, "--min-client-records", 1e9), 4, "min_client_records=1e+09 leaves 0 clients but k is 2"),
        (("-k", 2, "--max-per-group", 1), 2, "max_per_group needs groups"),
        (("-k", 2, "--alpha", -1), 2, "weight alpha must be a finite number of at least 0"),
        (
            ("-k", 2, "--weights", "nowhere.toml"),
            2,
            "weights file 'nowhere.toml' does not exist; check the path",
        ),
        (("-k", 2, "--cost-file", "nowhere.csv", "--budget", 1), 2, "cost file 'nowhere.csv' cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(cli, releases, options, code, message):
    found, out, err = cli("select", releases, *options)
    assert (found, out) == (code, "")
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,cost\nCA,1\n", "must have the header client,cost"),
        ("client,cost\nCA,1\nCA,2\n", "names client 'CA' twice"),
        ("client,cost\nCA,cheap\n", "must give a number for client 'CA', got 'cheap'"),
        ("client,cost\nCA,\n", "line 2 must hold a client and a cost"),
        ("client,cost\nCAA,1\n", "did you mean 'CA'"),
    ],
)
def test_cost_files_with_mistakes(cli, releases, tmp_path, text, message):
    (tmp_path / "costs.csv").write_text(text)
    code, _, err = cli("select", releases, "-k", 2, "--cost-file", tmp_path / "costs.csv", "--budget", 3)
    assert code == 2
    assert message in err


def test_releases_that_do_not_form_a_pool(cli, releases, small_schema, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = cli("select", tmp_path / "empty", "-k", 2)
    assert (code, "hold no" in err) == (2, True)
    code, _, err = cli("select", tmp_path / "nowhere", "-k", 2)
    assert (code, "do not exist" in err) == (2, True)

    mixed = tmp_path / "mixed"
    plan = fw.plan(small_schema, epsilon=5.0)
    fw.release(plan, people(300, 1), client="A", simulated=True, seed=1).save(mixed / "A.release.json")
    other = fw.plan(small_schema, epsilon=2.0, weights=fw.Weights(gamma=0.0))
    fw.release(other, people(300, 2), client="B", simulated=True, seed=2).save(mixed / "B.release.json")
    code, _, err = cli("select", mixed, "-k", 2)
    assert (code, "a pool needs releases of one schema" in err) == (2, True)

    twice = tmp_path / "twice"
    fw.release(plan, people(300, 1), client="A", simulated=True, seed=1).save(twice / "one.release.json")
    fw.release(plan, people(300, 2), client="A", simulated=True, seed=2).save(twice / "two.release.json")
    code, _, err = cli("select", twice, "-k", 1)
    assert code == 2
    assert "client 'A' appears twice" in err
    assert "one.release.json" in err
    assert "two.release.json" in err


def test_a_release_that_fails_the_screen(cli, releases, tmp_path):
    tampered = tmp_path / "tampered"
    tampered.mkdir()
    for file in releases.glob("*.json"):
        tree = json.loads(file.read_text())
        if tree["client"] == "MD":
            tree["tables"][0]["counts"] = [count + 5000 for count in tree["tables"][0]["counts"]]
        (tampered / file.name).write_text(json.dumps(tree))
    code, _, err = cli("select", tampered, "-k", 2)
    assert code == 2
    assert "client 'MD' fails the consistency screen" in err
    assert "--accept-flagged" in err
    code, out, _ = cli("select", tampered, "-k", 2, "--accept-flagged", "--json")
    assert code == 0
    assert any("flagged release of 'MD'" in flag for flag in json.loads(out)["flags"])


def test_frontier(cli, releases):
    code, out, _ = cli("frontier", releases, "-k", "2:4", "--pareto", 5, "--json")
    found = json.loads(out)
    assert code == 0
    assert [point["k"] for point in found["points"]] == [2, 3, 4]
    assert found["pareto"]
    code, out, err = cli("frontier", releases, "-k", "2:4")
    assert (code, err) == (0, "")
    assert "best federation of each size" in out
    assert cli("frontier", releases, "-k", "2:9")[0] == 2
    assert cli("frontier", releases, "--pareto", 1)[0] == 2


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_prints_the_best_so_far(small_schema, tmp_path):
    plan = fw.plan(small_schema, epsilon=5.0)
    for seed in range(34):
        release = fw.release(plan, people(200, seed), client=f"c{seed:02d}", simulated=True, seed=seed)
        release.save(tmp_path / f"c{seed:02d}.release.json")
    # 34 choose 12 is half a billion federations: minutes. The signal goes out once the search is at work.
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            WATCHED,
            "select",
            tmp_path,
            "-k",
            "12",
            "--method",
            "exact",
            "--no-rehearsal",
            "--json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"working")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err.decode()
    found = json.loads(out)
    assert found["status"] == "interrupted"
    assert len(found["clients"]) == 12
