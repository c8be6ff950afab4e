"""fedwise: choose who trains before anyone trains."""

__version__ = "0.1.0"
