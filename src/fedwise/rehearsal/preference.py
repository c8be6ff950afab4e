"""Preference: between a logistic regression and a network that a rehearsal cannot tell apart, the network.

In the log-linear model behind doubles the label's log-odds are a sum over features, so a logistic regression finds on
doubles nearly all that it finds on rows, and a network less. What it lacks is added as it is on census pools
(`fedwise.rehearsal.hidden`); where rows hold more than these, a rehearsal still makes a network look too weak. So the
simpler model is taken where it is better by more than what doubles may lack (`fedwise.rehearsal.gap`), and not
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

#: The model without hidden layers.
_SIMPLE = "logistic"


def preferred(models: Sequence[str], values: Sequence[float], gap: float) -> int:
    """Position of the settings to take: the best, or the best network within `gap` of a logistic regression.

    Parameters
    ----------
    models, values
        Of each of the settings: the model, and what the rehearsal came to; more is better.
    """
    best = max(range(len(values)), key=lambda at: values[at])
    networks = [at for at in range(len(values)) if models[at] != _SIMPLE]
    if models[best] != _SIMPLE or not networks:
        return best
    other = max(networks, key=lambda at: values[at])
    return other if values[best] - values[other] <= gap else best
