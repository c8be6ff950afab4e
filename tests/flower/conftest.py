"""Flower is imported once, quietly, before any test module asks for it."""

from __future__ import annotations

from flower import quiet as quiet
