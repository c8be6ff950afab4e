"""Charts: plain values in, valid Vega-Lite out, with every value and an alternative text."""

from __future__ import annotations

import json
import re

import altair
import pytest

from fedwise.objective.pfl import Terms, Weights
from fedwise.view import charts, outcome_charts, palette
from fedwise.view.draw import both_widths, narrow, svg, whole_names
from fedwise.view.outcomes import Curve, Measure
from fedwise.view.state_map import tile_map, tiles
from fedwise.view.tables import AuditRow, ClientRow, GroupRow, SizeRow

TERMS = Terms(direct_bias=0.1, proxy_bias=0.2, redundancy=1.0, signal=0.5)
WEIGHTS = Weights(alpha=2.0, beta=1.0, gamma=0.5, lam=3.0)
HOSTILE = '</text><script>alert("x")</script>'


def client(name: str, chosen: bool = True, loss: float = -0.4) -> ClientRow:
    return ClientRow(
        client=name,
        chosen=chosen,
        records=100.0,
        terms=TERMS,
        loss=loss,
        leave_one_out=-0.01,
        shapley=-0.2,
        frequency=0.9,
    )


def every_chart() -> dict[str, charts.Spec]:
    rows = [client("A"), client(HOSTILE, loss=-0.5), client("C", chosen=False)]
    curve = Curve(
        label="Chosen", metric="f1", seeds=2, rounds=[0, 1], mean=[0.5, 0.6], low=[0.4, 0.5], high=[0.6, 0.7]
    )
    attack = AuditRow(
        epsilon=1.0, attack="joint", trials=100, auc=0.55, auc_std_error=0.02, auc_theory=0.56, tpr_at_1_percent=0.01,
        tpr_theory=0.012, epsilon_lower_bound=0.0, ok=True,
    )  # fmt: skip
    final = [
        Measure(label=label, metric="spd", value=0.1, low=0.05, high=0.2) for label in ("Chosen", "Random")
    ]
    return {
        "groups": charts.groups([GroupRow(name="This", terms=TERMS, loss=-0.6)], WEIGHTS),
        "clients": charts.clients(rows, WEIGHTS),
        "contributions": charts.contributions(rows),
        "frequency": charts.frequency(rows),
        "frontier": charts.frontier(
            [SizeRow(k=k, loss=-k / 9, terms=None, clients=[], chosen=k == 2) for k in (1, 2, 3)]
        ),
        "trace": charts.trace([(1, -0.1), (10, -0.2), (10_000, -0.3)]),
        "map": tile_map(tiles(["CA", "NY", "TX", "DC"], ["CA"])),
        "curves": outcome_charts.curves([curve], "f1", "F1"),
        "audit": outcome_charts.audit([attack]),
        "outcome": outcome_charts.outcome(final, "spd", "SPD"),
    }


@pytest.mark.parametrize("name", sorted(every_chart()))
def test_chart_is_valid_and_draws(name: str) -> None:
    spec = every_chart()[name]
    altair.Chart.from_dict(spec)  # validates against the Vega-Lite schema
    assert len(spec["description"]) > 20
    drawn = svg(spec, name=name)
    assert drawn.startswith("<svg")
    assert "<script" not in drawn
    assert "NaN" not in drawn
    # Colours outside the palette would not follow the page into the dark.
    assert set(re.findall("#[0-9a-f]{6}", json.dumps(spec))) <= set(palette.LIGHT.values())


def test_identifiers_inside_pictures_are_unique() -> None:
    spec = every_chart()["curves"]
    first, second = svg(spec, name="one"), svg(spec, name="two")
    ids = [set(re.findall(r'id="([^"]+)"', drawn)) for drawn in (first, second)]
    assert not ids[0] & ids[1]
    for drawn, found in zip((first, second), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", drawn)) <= found


def test_stacked_terms_add_up_to_the_loss() -> None:
    parts = charts.weighted(TERMS, WEIGHTS)
    assert sum(parts.values()) == pytest.approx(TERMS.loss(WEIGHTS))
    assert parts["signal"] < 0 < parts["direct_bias"]


def test_clients_are_sorted_and_limited() -> None:
    rows = [client(f"c{i}", chosen=i < 2, loss=-i / 10) for i in range(20)]
    spec = charts.clients(rows, WEIGHTS, limit=3)
    shown = list(dict.fromkeys(value["name"] for value in spec["data"]["values"]))
    assert shown == ["c1", "c0", "c19", "c18", "c17"]


def test_the_trace_shows_how_far_above_its_end_the_search_was() -> None:
    rows = charts.trace([(1, 0.0), (900, -1.0), (1000, -2.0)])["data"]["values"]
    assert [row["gap"] for row in rows[:2]] == [2.0, 1.0]
    assert 0 < rows[2]["gap"] < 1.0  # the end has a place on a log scale too
    assert [row["loss"] for row in rows] == [0.0, -1.0, -2.0]


def test_long_names_are_whole_on_every_screen() -> None:
    name = "Hospital of Saint John the Evangelist in the Fields"
    row = ClientRow(client=name, chosen=True, records=1.0, terms=TERMS, loss=-0.1, frequency=1.0)
    for spec in (charts.frequency([row]), charts.clients([row], Weights())):
        drawn = both_widths(spec, name="x")
        assert drawn.count("<svg") == 2
        assert "…" not in drawn
        for word in name.split():
            assert drawn.count(word) >= 4  # the alternative text and the picture, twice


def test_a_phone_gets_a_chart_of_its_own_width() -> None:
    for spec in every_chart().values():
        found = svg(whole_names(narrow(spec), 17), name="x")
        width = float(re.search(r'viewBox="0 0 ([\d.]+)', found)[1])  # type: ignore[index]
        assert width <= 372, spec["description"]


def test_map_needs_states() -> None:
    assert tiles(["CA", "Ward 7", "NY"], ["CA"]) == []
    found = {tile.code: tile for tile in tiles(["California", "ny", "TX"], ["California"])}
    assert found["CA"].status == "chosen"
    assert found["NY"].status == "rest"
    assert found["NY"].client == "ny"
    assert found["WA"].status == "absent"
