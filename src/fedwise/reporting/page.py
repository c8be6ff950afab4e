"""Page: values and specifications become HTML. No script, nothing fetched, every name inert."""

from __future__ import annotations

import html
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import MissingExtra
from ..objective.metric import parse
from ..view.charts import Spec
from ..view.draw import both_widths
from ..view.labels import RELEASES, SOURCES, STAMPS, TRAINING, TRAINING_STAMPS
from ..view.outcomes import BOTH, GAPS, METRICS, Measure
from ..view.palette import TERM_LABELS, css
from ..view.tables import ClientRow

if TYPE_CHECKING:
    from .document import ReportValues

#: Outsiders drawn in the chart of clients, and listed among the reasons.
SHOWN = 45
REASONS = 12
_FOOTERS = {
    "private": "Only released, estimated or aggregate numbers appear on this page.",
    "simulated": "This page is made from releases with simulated noise: it is not private.",
    "not private": "This page is made from exact counts: it is not private.",
    "not charged": "Only released, estimated or aggregate numbers appear on this page; not every release was charged.",
    "not checked": "This page is made from a selection whose releases were not checked.",
}
_FOLDER = Path(__file__).parent / "templates"


def whole(values: ReportValues, specs: Mapping[str, Spec]) -> str:
    """A complete document."""
    return _render("report.html", values, specs)


def cell(values: ReportValues, specs: Mapping[str, Spec]) -> str:
    """The same content to be put into another page, such as a notebook."""
    return f"<style>{style()}</style>{_render('body.html', values, specs)}"


def style() -> str:
    """The style sheet with the colours of both themes."""
    return css() + "\n" + (_FOLDER / "report.css").read_text(encoding="utf-8")


def number(value: float | None, style: str | int) -> str:
    """A number as ``<data>``: rounded for people, in full for machines.

    Parameters
    ----------
    style
        Digits after the point; ``"+4"`` with its sign, ``"%"`` or ``".1%"`` as a share, ``"g"`` as short as it goes.
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return "∞" if value == math.inf else "n/a"
    match style:
        case "%":
            text = f"{value:.0%}"
        case ".1%":
            text = f"{value:.1%}"
        case "g":
            text = f"{value:g}"
        case int():
            text = f"{value:,.{style}f}"
        case _:
            text = f"{value:+,.{int(style)}f}"
    if float(text.replace(",", "").rstrip("%")) == 0:
        text = text.lstrip("-+")
    return f'<data value="{value!r}">{html.escape(text.replace("-", "−"))}</data>'


def _render(template: str, v: ReportValues, specs: Mapping[str, Spec]) -> str:
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise MissingExtra("a report", "explore") from None
    # Autoescape everything: names come from files of other parties and must stay text.
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters["num"] = lambda value, style: Markup(number(value, style))
    # A digest may break between groups of its digits, and nowhere else.
    engine.filters["grouped"] = lambda text: Markup("<wbr>").join(
        text[i : i + 16] for i in range(0, len(text), 16)
    )
    drawn: defaultdict[str, str] = defaultdict(str)
    drawn.update({name: Markup(both_widths(spec, name=name)) for name, spec in specs.items()})
    said, trained = v.privacy.label, v.privacy.training_label
    labels = list(dict.fromkeys(curve.label for curve in v.training.curves)) if v.training else []
    text: str = engine.get_template(template).render(
        v=v,
        css=Markup(style()),
        stamps=[stamp for stamp in (STAMPS[said], TRAINING_STAMPS[trained] if trained else "") if stamp],
        label_sentence=RELEASES[said],
        claim="" if said == "private" else f" ({said})",
        source=SOURCES[said],
        footer=_FOOTERS[said],
        training_sentence=TRAINING[trained] if trained else "",
        training_stamp=TRAINING_STAMPS[trained] if trained else "",
        charts=drawn,
        shown=SHOWN,
        term_labels=TERM_LABELS,
        why_rows=_reasons(v.clients),
        training_labels=labels,
        both=BOTH,
        forecast_rows=_forecast_rows(v, labels),
        training_tables=[(part, _training_rows(v, part)) for part in _columns(labels)],
        training_charts=_training_charts(v),
        rehearsal_rows=_rehearsal_rows(v, labels),
        rehearsal_stamp=(v.rehearsal.label if v.rehearsal and v.rehearsal.label != "private" else ""),
    )
    return text


def _reasons(rows: Sequence[ClientRow]) -> list[ClientRow]:
    """Members by their effect, then the outsiders whose joining would cost least."""
    members = sorted((r for r in rows if r.chosen), key=lambda r: r.leave_one_out or 0.0)
    others = sorted((r for r in rows if not r.chosen and r.swap is not None), key=lambda r: r.swap or 0.0)
    return members + others[:REASONS] if others or any(r.leave_one_out is not None for r in members) else []


def _columns(labels: Sequence[str]) -> list[list[str]]:
    """Columns of each table of outcomes: the chosen federation beside three others, so that every cell fits."""
    first, rest = list(labels[:1]), list(labels[1:])
    return [first + rest[i : i + 3] for i in range(0, len(rest), 3)] or [first]


def _training_charts(v: ReportValues) -> list[tuple[str, str]]:
    """Charts of the training with their headings; gaps for every attribute."""
    shown = [
        ("trade-off-trained", "AUC against the rate-matched opportunity gap, last round"),
        *(
            (f"curve-{metric}", METRICS[metric])
            for metric in ("auc", "macro_auc", "macro_f1", "rmse", "balanced_accuracy", "loss")
        ),
    ]
    for place, attribute in enumerate(v.training.attributes if v.training else ()):
        end = f"-{place + 1}" if place else ""
        shown.append((f"curve-eod{end}", f"{METRICS['eod']} of {attribute}"))
        shown += [(f"gap-{metric}{end}", f"{METRICS[metric]} of {attribute}, last round") for metric in GAPS]
    return shown


def _training_rows(v: ReportValues, labels: Sequence[str]) -> list[tuple[str, list[Measure | None]]]:
    """A line for each metric, gaps once for each attribute."""
    if v.training is None:
        return []
    found = {(m.metric, m.attribute, m.label): m for m in v.training.final}
    pairs = [(metric, by) for metric in METRICS for by in ["", *v.training.attributes]]
    return [
        (
            f"{METRICS[metric]} of {by}" if by else METRICS[metric],
            [found.get((metric, by, label)) for label in labels],
        )
        for metric, by in pairs
        if any((metric, by, label) in found for label in labels)
    ]


def _forecast_rows(v: ReportValues, labels: Sequence[str]) -> list[tuple[str, float, float, str]]:
    """What was predicted beside what the chosen federation reached."""
    if v.training is None or not labels:
        return []
    reached = {(m.metric, m.attribute): m.value for m in v.training.final if m.label == labels[0]}
    several = len(v.training.attributes) > 1
    return [
        (
            METRICS[m.metric] + (f" of {m.attribute}" if m.attribute and several else ""),
            m.value,
            reached[m.metric, m.attribute],
            f"{reached[m.metric, m.attribute] - m.value:+.4f}".replace("-", "−"),
        )
        for m in v.verdict.forecast
        if (m.metric, m.attribute) in reached
    ]


def _rehearsal_rows(v: ReportValues, labels: Sequence[str]) -> list[tuple[str, float, str, float, str]]:
    """What was rehearsed, its interval, and what the chosen federation reached when it was trained."""
    if v.training is None or v.rehearsal is None or not labels:
        return []
    if v.rehearsal.quick or not v.rehearsal.same:
        return []
    reached = {(m.metric, m.attribute): m.value for m in v.training.final if m.label == labels[0]}
    found = []
    for row in v.rehearsal.rows:
        metric = parse(row.metric)
        value = reached.get((metric.column, metric.attribute))
        if row.value is None or value is None:
            continue
        known = row.low is not None and row.high is not None
        interval = f"{row.low:.4f} to {row.high:.4f}" if known else ""
        inside = known and (row.low or 0.0) <= value <= (row.high or 0.0)
        found.append(
            (row.title, row.value, interval, value, ("inside" if inside else "outside") if known else "")
        )
    return found
