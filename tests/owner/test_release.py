"""Releases: one strict file, nothing exact in it, and a promise that holds from the outside."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy.stats import beta

import fedwise as fw
from conftest import make_people
from fedwise.errors import DataError, FedwiseError, ReleaseError
from fedwise.owner import noise
from fedwise.owner.release import check_client
from fedwise.owner.tables import count


@pytest.fixture(scope="module")
def made(small_schema: fw.Schema, tmp_path_factory: pytest.TempPathFactory) -> fw.Release:
    ledger = fw.Ledger(tmp_path_factory.mktemp("ledger") / "l.db", 1.0)
    return fw.release(fw.plan(small_schema), make_people(500), client="CA", ledger=ledger)


def test_round_trip(made: fw.Release, tmp_path: Path) -> None:
    made.save(tmp_path / "CA.release.json")
    again = fw.Release.load(tmp_path / "CA.release.json")
    assert again == made
    np.testing.assert_array_equal(again.counts, made.counts)
    assert again.label == "private"
    assert again.library == fw.__version__
    with pytest.raises(ReleaseError, match="exists"):
        made.save(tmp_path / "CA.release.json")
    made.save(tmp_path / "CA.release.json", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["CA.release.json"]


def test_the_file_is_plain_json_with_one_table_a_line(made: fw.Release) -> None:
    text = made.encode().decode()
    tree = json.loads(text, parse_constant=lambda token: pytest.fail(token))
    assert list(tree)[:3] == ["format", "client", "epsilon"]
    assert [t["counts"] for t in tree["tables"]] == [list(t.counts) for t in made.tables]
    assert sum(line.startswith('    {"pair"') for line in text.splitlines()) == len(made.tables)


def test_nothing_exact_is_inside(small_schema: fw.Schema) -> None:
    # A schema and plan of large noise: neither the number of records nor any exact count is in the file.
    people = make_people(48_611)
    plan = fw.plan(small_schema, 0.01)
    exact = count(small_schema.encode(people), plan.layout).exact
    numbers = set(map(int, fw.release(plan, people, client="x", uncharged=True).counts))
    # Each of 44 cells hits its own exact value with probability below 1/1000.
    assert len(set(exact.tolist()) & numbers) <= 3
    text = fw.release(plan, people, client="x", uncharged=True).encode()
    assert b"48611" not in text


@pytest.mark.parametrize(
    "client", ['"tables": []', 'a"tables": []', '{"plan": 1}', "Ελλάδα", "A.B", "a b", "x" * 100, "🙂"]
)
def test_odd_client_names_survive(client: str, small_schema: fw.Schema) -> None:
    made = fw.release(fw.plan(small_schema), make_people(9), client=client, simulated=True, seed=0)
    again = fw.Release.decode(made.encode())
    assert again == made
    assert json.loads(made.encode())["client"] == client


@pytest.mark.parametrize(
    "client",
    [
        "",
        " ",
        " a",
        "a ",
        "x" * 101,
        "a/b",
        "a\\b",
        "../a",
        ".hidden",
        "..",
        "a\nb",
        "a\0b",
        "a\x1b[2J",
        "a\x7f",
        "a\x9b2J",
        "a\u202eb",
        "a\u2028b",
        "a\ud800",
        "a\u200b",
    ],
    ids=repr,
)
def test_names_that_escape_hide_or_break_terminals(
    client: str, small_schema: fw.Schema, made: fw.Release
) -> None:
    with pytest.raises(ReleaseError, match="client name"):
        check_client(client)
    with pytest.raises(ReleaseError, match="client name"):
        fw.release(fw.plan(small_schema), make_people(9), client=client, uncharged=True)
    with pytest.raises(ReleaseError, match="client name") as caught:
        msgspec.structs.replace(made, client=client).verify("release file 'x'")
    assert str(caught.value).isprintable()


def change(path: str, value: object) -> Callable[[dict[str, object]], None]:
    def apply(tree: dict[str, object]) -> None:
        *way, last = path.split("/")
        place: object = tree
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place[key]  # type: ignore[index]
        place[int(last) if isinstance(place, list) else last] = value  # type: ignore[index]

    return apply


TAMPERED = {
    "format": change("format", "fedwise/release/2"),
    "epsilon": change("epsilon", 0.5),
    "epsilon inf": change("epsilon", "inf"),
    "epsilon text": change("epsilon", "1"),
    "delta": change("delta", 1e-9),
    "private": change("private", False),
    "simulated text": change("simulated", "no"),
    "plan digest": change("plan_digest", "0" * 64),
    "schema digest": change("schema_digest", "0" * 64),
    "plan epsilon": change("plan/epsilon", 0.5),
    "plan sigma": change("plan/tables/0/sigma", 1.0),
    "plan schema": change("plan/schema/name", "other"),
    "sigma": change("tables/0/sigma", 1.0),
    "pair": change("tables/0/pair", ["AGE", "SEX"]),
    "shape": change("tables/0/shape", [2, 8]),
    "too few counts": change("tables/0/counts", [1]),
    "no counts": change("tables/0/counts", []),
    "no tables": change("tables", []),
    "overflow": change("tables/0/counts/0", 2**63),
    "impossible": change("tables/0/counts/0", 2**51),
    "impossible below": change("tables/0/counts/0", -(2**51)),
    "astronomic": change("tables/0/counts/0", 10**400),
    "fraction": change("tables/0/counts/0", 1.5),
    "count text": change("tables/0/counts/0", "1"),
    "count null": change("tables/0/counts/0", None),
    "count true": change("tables/0/counts/0", True),
    "count list": change("tables/0/counts/0", [1]),
    "unknown key": change("rows", 48),
    "client number": change("client", 7),
    "long format": change("format", "x" * 10_000_000),
    "long client": change("client", "x" * 10_000_000),
    "no library": lambda tree: tree.pop("library"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_tampered_files(case: str, made: fw.Release, tmp_path: Path) -> None:
    tree = json.loads(made.encode())
    TAMPERED[case](tree)
    (tmp_path / "x.release.json").write_text(json.dumps(tree))
    with pytest.raises(FedwiseError, match=r"release file '.*x\.release\.json'") as caught:
        fw.Release.load(tmp_path / "x.release.json")
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("token", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
@pytest.mark.parametrize("field", [b'"delta": 0.00001', b'"epsilon": 1.0'])
def test_numbers_that_json_does_not_have(token: bytes, field: bytes, made: fw.Release) -> None:
    name = field.split(b":")[0]
    text = made.encode()
    assert field in text
    with pytest.raises(ReleaseError):
        fw.Release.decode(text.replace(field, name + b": " + token, 1))


def test_truncated_anywhere(made: fw.Release) -> None:
    text = made.encode().rstrip()
    for length in range(0, len(text), 97):
        with pytest.raises(ReleaseError):
            fw.Release.decode(text[:length])


def test_wrong_calls(small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema)
    people = make_people(9)
    with pytest.raises(ReleaseError, match="must be seeded"):
        fw.release(plan, people, client="a", simulated=True)
    with pytest.raises(ReleaseError, match="seed must not be given"):
        fw.release(plan, people, client="a", seed=1)
    with pytest.raises(ReleaseError, match="seed must be at least 0"):
        fw.release(plan, people, client="a", simulated=True, seed=-1)
    with pytest.raises(DataError, match="'SEX' is missing"):
        fw.release(plan, people.drop("SEX"), client="a", uncharged=True)


def test_labels(small_schema: fw.Schema) -> None:
    people = make_people(9)
    simulated = fw.release(fw.plan(small_schema), people, client="a", simulated=True, seed=0)
    assert (simulated.label, simulated.private, simulated.simulated) == ("simulated", True, True)
    open_ = fw.release(fw.plan(small_schema, math.inf), people, client="a", no_privacy=True)
    assert (open_.label, open_.private, open_.epsilon) == ("not private", False, "inf")
    exact = count(small_schema.encode(people), open_.plan.layout).exact
    np.testing.assert_array_equal(open_.counts, exact)
    assert fw.Release.decode(open_.encode()) == open_
    assert "48" not in repr(simulated)


def test_a_release_is_charged_or_says_that_it_is_not(small_schema: fw.Schema, tmp_path: Path) -> None:
    plan, people = fw.plan(small_schema), make_people(9)
    with pytest.raises(ReleaseError, match=r"charged to a ledger; pass ledger=.*, or uncharged=True"):
        fw.release(plan, people, client="a")
    made = fw.release(plan, people, client="a", uncharged=True)
    assert (made.label, made.private, made.charged) == ("not charged", True, False)
    assert "not charged" in repr(made)
    made.save(tmp_path / "a.release.json")
    assert json.loads((tmp_path / "a.release.json").read_bytes())["charged"] is False
    again = fw.Release.load(tmp_path / "a.release.json")
    assert again == made
    assert again.label == "not charged"
    ledger = fw.Ledger(tmp_path / "l.db", 1.0)
    with pytest.raises(ReleaseError, match="uncharged must not be given with a ledger"):
        fw.release(plan, people, client="a", ledger=ledger, uncharged=True)
    assert ledger.history() == []
    with pytest.raises(ReleaseError, match="uncharged must not be given for simulated noise"):
        fw.release(plan, people, client="a", simulated=True, seed=0, uncharged=True)


def test_exact_counts_need_a_consent_of_their_own(small_schema: fw.Schema) -> None:
    plan = fw.plan(small_schema, math.inf)
    unread = Path("does-not-exist.csv")
    with pytest.raises(ReleaseError, match=r"no privacy.*no_privacy=True"):
        fw.release(plan, unread, client="a")
    with pytest.raises(ReleaseError, match="uncharged must not be given for a plan without privacy"):
        fw.release(plan, unread, client="a", uncharged=True)
    with pytest.raises(DataError, match="does not exist"):
        fw.release(plan, unread, client="a", no_privacy=True)


def test_an_ordinary_file_has_the_keys_of_version_0_1_0(made: fw.Release) -> None:
    assert list(json.loads(made.encode())) == [
        "format", "client", "epsilon", "delta", "private", "simulated", "plan_digest", "schema_digest", "library",
        "tables", "plan",
    ]  # fmt: skip
    assert made.charged


def test_a_file_cannot_hide_behind_the_missing_charge(small_schema: fw.Schema) -> None:
    simulated = fw.release(fw.plan(small_schema), make_people(9), client="a", simulated=True, seed=0)
    text = simulated.encode().replace(b'"simulated": true', b'"simulated": true, "charged": false', 1)
    with pytest.raises(ReleaseError, match="contradicts itself"):
        fw.Release.decode(text)


# --- The promise from the outside -----------------------------------------------------------------------

TINY = """
[columns.A]
role = "feature"
levels = [0, 1]
[columns.S]
role = "sensitive"
levels = [0, 1]
[columns.T]
role = "target"
levels = [0, 1]
"""
#: Half the noise then refutes ε up to 1.71 ± 0.11 where 1 is promised; with 800 it was missed once in two hundred.
RUNS = 1600
#: Chance that an honest mechanism is accused, over all thresholds and both sides.
FALSE_ALARM = 1e-6
THRESHOLDS = (0.0, 0.25, 0.5, 0.75, 1.0)


def epsilon_lower_bound(with_record: np.ndarray, without: np.ndarray, delta: float) -> float:
    """Largest ε that the scores refute: a Clopper–Pearson bound on ln((TPR − δ) / FPR), Bonferroni over thresholds."""
    share = FALSE_ALARM / (4 * len(THRESHOLDS))
    best = 0.0
    for threshold in THRESHOLDS:
        # Accusing "present" above the threshold, and "absent" below it.
        for hits, alarms in [
            ((with_record > threshold).sum(), (without > threshold).sum()),
            ((without <= threshold).sum(), (with_record <= threshold).sum()),
        ]:
            low = float(beta.ppf(share, hits, len(with_record) - hits + 1)) if hits else 0.0
            high = float(beta.isf(share, alarms + 1, len(without) - alarms)) if alarms < len(without) else 1.0
            if low > delta:
                best = max(best, math.log((low - delta) / high))
    return best


def attack(plan: fw.Plan) -> float:
    """Neighbouring data sets, the real release many times, the optimal likelihood-ratio test over all tables."""
    rest = pl.DataFrame({"A": [0, 1, 1], "S": [0, 1, 0], "T": [1, 1, 0]})
    target = pl.DataFrame({"A": [1], "S": [1], "T": [1]})
    absent = count(plan.schema.encode(rest), plan.layout).exact
    cells = count(plan.schema.encode(target), plan.layout).exact.astype(bool)
    variance = plan.layout.per_cell(plan.sigmas)[cells] ** 2

    def scores(frame: pl.DataFrame) -> np.ndarray:
        released = np.stack([fw.release(plan, frame, client="x", uncharged=True).counts for _ in range(RUNS)])
        return ((released - absent)[:, cells] - 0.5) / variance @ np.ones(cells.sum())

    return epsilon_lower_bound(scores(pl.concat([rest, target])), scores(rest), plan.delta)


@pytest.mark.slow
def test_black_box_attack_stays_below_the_promise() -> None:
    # A generous delta makes the attack strong with few runs; epsilon is the 1 that is promised.
    plan = fw.plan(fw.Schema.parse(TINY), 1.0, delta=0.1)
    assert len(plan.tables) == 3
    assert attack(plan) <= 1.0


@pytest.mark.slow
def test_black_box_attack_catches_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    real = noise.add_noise

    monkeypatch.setattr(
        sys.modules["fedwise.owner.release"], "add_noise", lambda tables, sigmas: real(tables, sigmas / 2)
    )
    assert attack(fw.plan(fw.Schema.parse(TINY), 1.0, delta=0.1)) > 1.0
