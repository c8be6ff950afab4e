"""Doubles: artificial records of clients, drawn from their released tables."""
