"""A Flower app that chooses its federation before it trains."""
