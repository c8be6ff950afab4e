"""fedwise: choose who trains before anyone trains.

The public API is what ``__init__.pyi`` beside this file imports. A module loads when one of its names is first
used, so that ``import fedwise`` is instant.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
