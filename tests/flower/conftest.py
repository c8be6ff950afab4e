"""Flower is imported once, quietly, before any test module asks for it."""

from __future__ import annotations

import pytest

from flower import quiet as quiet


@pytest.fixture(autouse=True)
def private_sessions(monkeypatch, tmp_path_factory):
    """Sessions of secure aggregation go to the tests' own folder, and leave nothing behind."""
    folder = tmp_path_factory.getbasetemp() / "sessions"
    monkeypatch.setattr("fedwise.flower.claims._folder", lambda: folder)
