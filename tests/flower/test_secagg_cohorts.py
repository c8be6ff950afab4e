"""Random cohorts that lose clients at every stage: the mean is right, or the halt is the one it must be."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwise.flower import InProcessGrid, SecAgg
from fedwise.flower.secagg import SecAggHalted, secagg_mod
from fedwise.flower.secagg_wire import Collect, Introduce, Setup, Unmask, read_request
from flower.secagg_kit import SHAPES, make_app, metrics_of, parameters, update_of, weight_of

STAGES = (Setup, Introduce, Collect, Unmask)


def leaving(app, leaves):
    """An app whose nodes are killed when they get the request of a given stage."""

    def run(message, context):
        stage = leaves.get(context.node_id)
        if stage is not None and isinstance(read_request(message.content), STAGES[stage]):
            leaves[context.node_id] = None
            grid.silent.add(context.node_id)
            raise RuntimeError("killed")
        return app(message, context)

    grid = InProcessGrid(run, len(leaves))
    return grid


def expected_outcome(leaves, fraction):
    """The clients in the sum, or the stage of the halt; from the rules alone."""
    keyed = [node for node, stage in leaves.items() if stage != 0]
    cohort = [node for node in keyed if leaves[node] != 1]
    if len(keyed) >= 3 and len(cohort) < 2:
        return 1
    if len(cohort) < 3:
        return 0
    threshold = max(round(fraction * len(cohort)), len(cohort) // 2 + 1)
    survivors = [node for node in cohort if leaves[node] != 2]
    if len(survivors) < threshold:
        return 2
    stay = [node for node in survivors if leaves[node] != 3]
    return 3 if len(survivors) < 3 or len(stay) < threshold else survivors


@settings(max_examples=60, deadline=None)
@given(
    stages=st.lists(st.sampled_from([None, None, None, 0, 1, 2, 3]), min_size=3, max_size=8),
    fraction=st.sampled_from([0.55, 2 / 3, 0.8, 1.0]),
    kind=st.sampled_from(["train", "evaluate"]),
)
def test_the_sum_is_the_survivors_weighted_mean(stages, fraction, kind):
    leaves = {1001 + i: stage for i, stage in enumerate(stages)}
    outcome = expected_outcome(leaves, fraction)
    grid = leaving(make_app(secagg_mod), dict(leaves))
    secure = SecAgg(grid, max_weight=1000, reconstruction_threshold=fraction, retries=2)
    messages = [Message(parameters(), node, kind) for node in leaves]
    if isinstance(outcome, int):
        with pytest.raises(SecAggHalted) as halt:
            secure.send_and_receive(messages)
        assert halt.value.stage == outcome
        return
    (reply,) = secure.send_and_receive(messages)
    weights = [weight_of(node) for node in outcome]
    if kind == "evaluate":
        found = reply.content.metric_records["metrics"]
        for name in ("loss", "accuracy"):
            mean = np.average([metrics_of(node)[name] for node in outcome], weights=weights)
            assert found[name] == pytest.approx(mean, abs=1e-7)
        return
    # Each client is off by half a step of 8/2²¹, and its weight by half a step of 1000/2²² on values below 5.
    slack = len(outcome) * (8 / 2**22 + 5 / 2**23) / (sum(weights) / 1000) + 1e-6
    for name in SHAPES:
        mean = np.average([update_of(node)[name] for node in outcome], axis=0, weights=weights)
        np.testing.assert_allclose(reply.content.array_records["arrays"][name].numpy(), mean, atol=slack)
