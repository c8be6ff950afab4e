"""Noise, what it costs, and the book in which the cost is written before the noise is drawn."""
