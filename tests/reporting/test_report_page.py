"""The page: every number is the run's, the order is fixed, names are inert, parts may be missing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair
import msgspec
import pytest

import fedwise as fw
from fedwise.reporting import Report
from fedwise.reporting.page import number
from fedwise.search import select
from fedwise.search.selection import Selection
from reporting.report_kit import NAMES, make_pool, metrics

ORDER = [
    "verdict",
    "privacy",
    "people",
    "clients",
    "why",
    "frontier",
    "search",
    "training",
    "audit",
    "alerts",
    "reproduce",
]
VOID = {"meta", "br", "wbr", "input", "link", "hr", "img"}


class Reader(HTMLParser):
    """Collects tags, attributes, the numbers in <data> and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.numbers: list[tuple[float, str]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self._value: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "data":
            self._value = dict(attrs)["value"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._value = None

    def handle_data(self, data: str) -> None:
        if self._value is not None:
            self.numbers.append((float(self._value), data))
        self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return reader


def leaves(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def test_every_number_is_the_runs(pool: fw.Pool, selection: Selection) -> None:
    report = Report.of(pool, selection, runs={"Chosen": [metrics(0.6, 0), metrics(0.61, 1)]})
    reader = read(report.html())
    known = set(leaves(report.to_dict()))
    assert len(reader.numbers) > 100
    for value, text in reader.numbers:
        assert value in known
        shown = text.replace("−", "-").replace(",", "")
        if shown.endswith("%"):
            assert abs(float(shown[:-1]) / 100 - value) <= 0.005 + 1e-12
        else:
            digits = len(shown.partition(".")[2]) if "e" not in shown else 0
            slack = 0.5 * 10.0**-digits if "e" not in shown else abs(value) * 1e-5
            assert abs(float(shown) - value) <= max(slack, abs(value) * 1e-6) * (1 + 1e-9)


def test_headline_numbers_are_the_selections(
    pool: fw.Pool, selection: Selection, plain_report: Report
) -> None:
    values = plain_report.values
    assert values.verdict.clients == list(selection.clients)
    assert values.verdict.loss == selection.loss
    assert values.verdict.std_error == selection.std_error
    assert values.verdict.terms == selection.terms
    assert values.verdict.statement == selection.certificate.statement
    assert (values.privacy.epsilon, values.privacy.delta) == (pool.plan.promise_epsilon, pool.plan.delta)
    assert values.privacy.noise_most == pool.plan.sigmas.max()
    assert {row.client: row.frequency for row in values.clients if row.frequency} == selection.frequency
    by_name = {part.client: part for part in selection.contributions}
    for row in values.chosen:
        assert row.leave_one_out == by_name[row.client].leave_one_out
        assert row.shapley == by_name[row.client].shapley


def test_the_price_of_joining_is_the_best_exchange(
    pool: fw.Pool, selection: Selection, plain_report: Report
) -> None:
    from fedwise.estimation import estimate
    from fedwise.objective.pfl import loss

    estimates = estimate(pool)
    members = set(pool.index(selection.clients).tolist())
    for row in plain_report.values.rest:
        into = int(pool.index([row.client])[0])
        prices = {
            pool.clients[out]: loss(estimates, sorted(members - {out} | {into}), selection.weights)
            - selection.loss
            for out in members
        }
        assert row.swap == pytest.approx(min(prices.values()), abs=1e-9)
        assert prices[str(row.swap_for)] == pytest.approx(row.swap, abs=1e-9)


def test_forecast_stands_beside_the_outcome(pool: fw.Pool, selection: Selection) -> None:
    report = Report.of(pool, selection, runs={"Chosen": metrics(0.6, 0)}, frontier=False)
    predicted = {m.metric: m.value for m in report.values.verdict.forecast}
    assert predicted.keys() == {
        "auc", "balanced_accuracy", "balanced_accuracy@rate", "f1", "spd", "spd@rate", "eod", "eod@rate",
    }  # fmt: skip
    text = " ".join(read(report.html()).text)
    assert "Forecast against outcome" in text
    assert report.values.training is not None
    reached = {m.metric: m.value for m in report.values.training.final}
    difference = f"{reached['f1'] - predicted['f1']:+.4f}".replace("-", "−")
    assert difference in text
    silent = Report.of(pool, selection, forecast=False, frontier=False)
    assert silent.values.verdict.forecast == []
    assert "Forecast" not in " ".join(read(silent.html()).text)


def test_sections_come_in_the_promised_order(run: Path, full_page: str) -> None:
    reader = read(fw.report(run, releases=None).html())
    found = [a["id"] for tag, a in reader.tags if tag in ("section", "header") and "id" in a]
    assert found == [name for name in ORDER if name in found]
    whole = read(full_page)
    assert [a["id"] for tag, a in whole.tags if tag in ("section", "header") and "id" in a] == ORDER


def test_page_stands_alone(full_page: str) -> None:
    assert len(full_page.encode()) < 3_000_000
    reader = read(full_page)
    assert not any(tag in ("script", "link", "iframe", "img", "object") for tag, _ in reader.tags)
    addresses = [v for _, a in reader.tags for k, v in a.items() if k in ("href", "src", "xlink:href") and v]
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    assert re.findall(r"https?://[^\"' <]+", full_page.replace("http://www.w3.org/2000/svg", "")
                      .replace("http://www.w3.org/1999/xlink", "")) == []  # fmt: skip
    ids = [a["id"] for _, a in reader.tags if "id" in a]
    assert len(set(ids)) == len(ids)
    assert {address[1:] for address in addresses} <= set(ids)  # type: ignore[arg-type]


def test_hostile_names_are_inert_text(full_page: str) -> None:
    reader = read(full_page)
    assert {"script", "img"}.isdisjoint(tag for tag, _ in reader.tags)
    for name in NAMES:
        assert any(name in text for text in reader.text)
    assert any('O\'Brien & "Sons"' in text for text in reader.text)
    handlers = [key for _, attributes in reader.tags for key in attributes if key.startswith("on")]
    assert handlers == []


def test_charts_have_alternative_texts_and_tables_headers(full_page: str) -> None:
    reader = read(full_page)
    pictures = [a for tag, a in reader.tags if tag == "svg"]
    assert len(pictures) >= 8
    assert all(a.get("role") == "img" and len(a.get("aria-label") or "") > 20 for a in pictures)
    assert all("scope" in a for tag, a in reader.tags if tag == "th")
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_without_training_or_audit(plain_report: Report) -> None:
    text = " ".join(read(plain_report.html()).text)
    assert "No training belongs to this report" in text
    assert "No audit belongs to this report" in text
    assert plain_report.to_dict()["training"] is None


def test_without_releases_the_selection_still_speaks(selection: Selection) -> None:
    report = Report.of(None, selection)
    reader = read(report.html())
    ids = [a["id"] for tag, a in reader.tags if tag in ("section", "header") and "id" in a]
    assert ids == ["verdict", "privacy", "search", "training", "audit", "alerts", "reproduce"]
    assert any(name in reader.text for name in selection.clients)


def test_selection_without_evidence(pool: fw.Pool) -> None:
    bare = select(pool, 2, evidence="none", method="greedy", alternatives=0)
    page = Report.of(pool, bare, frontier=False).html()
    assert "Would the noise have chosen otherwise" not in page


def test_everybody_chosen(pool: fw.Pool) -> None:
    report = Report.of(pool, select(pool, len(pool), evidence="none"), frontier=False)
    assert report.values.rest == []
    read(report.html())


def test_exact_releases_say_so_loudly(small_schema: fw.Schema) -> None:
    pool = make_pool(small_schema, ("a", "b", "c"), epsilon=math.inf)
    report = Report.of(pool, select(pool, 2, evidence="none"))
    assert report.values.alerts[0].level == "stop"
    text = " ".join(read(report.html()).text)
    assert "not private" in text
    assert "NO PRIVACY" in text
    assert report.to_dict()["privacy"]["epsilon"] == "inf"


def test_selection_of_other_releases_is_refused(small_schema: fw.Schema, selection: Selection) -> None:
    other = make_pool(small_schema, ("x", "y", "z", "w"))
    with pytest.raises(fw.FedwiseError, match="must come from these releases"):
        Report.of(other, selection)


def test_notebook_and_json_hold_the_same(selection: Selection, plain_report: Report) -> None:
    cell = plain_report._repr_html_()
    assert cell.startswith("<style>")
    assert read(cell).numbers == read(plain_report.html()).numbers
    decoded = msgspec.json.decode(msgspec.json.encode(plain_report.to_dict()))
    assert decoded["verdict"]["loss"] == selection.loss
    assert decoded["clients"][0]["terms"].keys() == {"direct_bias", "proxy_bias", "redundancy", "signal"}


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (1234.5678, 2, "1,234.57"),
        (-0.12345, 4, "−0.1235"),
        (0.5, "+4", "+0.5000"),
        (-1e-9, "+4", "0.0000"),
        (-0.00001, 3, "0.000"),
        (0.257, "%", "26%"),
        (1e-5, "g", "1e−05"),
        (3, 0, "3"),
    ],
)
def test_numbers_read_well(value: float, style: str | int, text: str) -> None:
    assert number(value, style) == f'<data value="{value!r}">{text}</data>'


def test_missing_numbers_leave_room() -> None:
    assert number(None, 2) == ""
    assert number(math.nan, 2) == "n/a"
    assert number(math.inf, "g") == "∞"


def test_report_charts_hold_the_runs_values(run: Path) -> None:
    report = fw.report(run)
    frontier: list[dict[str, Any]] = report.specs["trace"]["data"]["values"]
    assert [row["loss"] for row in frontier] == [loss for _, loss in report.values.search.trace]
    curve = next(c for c in report.values.training.curves if c.metric == "spd")  # type: ignore[union-attr]
    drawn = [
        row["mean"] for row in report.specs["curve-spd"]["data"]["values"] if row["label"] == curve.label
    ]
    assert drawn == curve.mean
    assert isinstance(report.chart("trace"), altair.Chart)
