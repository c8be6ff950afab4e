"""Explore: a local page on which trade-offs are tried out live, a search for every change."""

from .serve import Explorer

__all__ = ["Explorer"]
