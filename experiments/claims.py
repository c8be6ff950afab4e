"""All claims of the paper that were examined, in its order."""

from __future__ import annotations

import claims_search as search
import claims_theory as theory
import claims_trained as trained
from results import Results
from verdicts import Verdict


def examine(results: Results) -> list[Verdict]:
    """A verdict for every claim."""
    made = [theory.scales, theory.audit, theory.delta, theory.orders, theory.optimality]
    made += [search.runtime, search.listed, trained.correlation]
    return [
        *(make(results) for make in made),
        trained.trained(
            results, "accuracy", "Accuracy", "Chosen federations train more accurate models than random ones (FedAvg)"
        ),
        trained.trained(results, "f1", "F1", "Chosen federations reach a higher F1"),
        trained.trained(
            results, "eod", "Gap of true positive rates",
            "Chosen federations have a smaller gap of true positive rates between the sexes (EOD)",
        ),
        trained.trained(
            results, "spd", "Gap of positive rates", "Chosen federations have a smaller gap of positive rates (SPD)"
        ),
        trained.faster(results),
        trained.rivals(
            results, "strategy", ("fedprox", "scaffold"), "FedProx and SCAFFOLD on random federations"
        ),
        trained.rivals(
            results, "sampler", ("ucb_cs", "fed_sampling", "threshold", "cluster_fl"),
            "UCB-CS, FedSampling, Threshold and ClusterFL on random federations",
        ),
        search.noise_robust(results),
    ]  # fmt: skip
