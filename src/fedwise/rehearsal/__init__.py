"""Rehearsal: the real training, on doubles, before anyone trains."""
