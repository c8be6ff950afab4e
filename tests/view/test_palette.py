"""Colours: safe for the colour-blind, apart in greyscale, readable on both pages."""

from __future__ import annotations

import re

import pytest

from fedwise.view import palette

#: Rows of Machado, Oliveira & Fernandes (2009), severity 1: what a red- or green-blind eye makes of linear RGB.
DEFICIENT = {
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}


def linear(colour: str) -> tuple[float, float, float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)  # type: ignore[return-value]


def luminance(rgb: tuple[float, float, float]) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(linear(one)), luminance(linear(other))))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("name", "least"), [("ink", 12.0), ("muted", 4.5), ("chosen", 4.5), ("bad", 4.5)])
def test_text_stands_out_from_the_page(name: str, least: float, page: int) -> None:
    assert contrast(palette.COLOURS[name][page], palette.COLOURS["page"][page]) >= least


@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("pair", [("direct_bias", "proxy_bias"), ("proxy_bias", "redundancy")])
def test_neighbours_in_a_stack_differ_in_greyscale(pair: tuple[str, str], page: int) -> None:
    one, other = (palette.COLOURS[name][page] for name in pair)
    assert contrast(one, other) >= 1.4


@pytest.mark.parametrize("kind", sorted(DEFICIENT))
@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
def test_terms_differ_for_the_colour_blind(kind: str, page: int) -> None:
    seen = {}
    for name in palette.TERM_LABELS:
        rgb = linear(palette.COLOURS[name][page])
        seen[name] = [sum(f * c for f, c in zip(row, rgb, strict=True)) for row in DEFICIENT[kind]]
    names = list(seen)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            apart = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
            assert apart > 0.1, (one, other)


def test_every_colour_has_one_name() -> None:
    light = [pair[0] for pair in palette.COLOURS.values()]
    assert len(set(light)) == len(light)
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for pair in palette.COLOURS.values() for colour in pair)


def test_themed_pictures_follow_the_page() -> None:
    themed = palette.themed('<rect fill="#0072B2"/><rect fill="#abcdef"/>')
    assert themed == '<rect fill="var(--chosen, #0072B2)"/><rect fill="#abcdef"/>'
    assert "--chosen:#0072b2" in palette.css()
    assert "prefers-color-scheme:dark" in palette.css()
