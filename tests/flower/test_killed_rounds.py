"""A node killed at any point of a training round: its ledger holds at least what left."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fedwise as fw
from flower.kit import make_node

pytestmark = pytest.mark.slow

#: Where a node is killed (before or after a step of the round), and the rounds its ledger must then hold.
POINTS = {
    "never": ("", True, 1),
    "before the charge": ("fedwise.owner.ledger.lines.add_training", True, 0),
    "inside the transaction": ("fedwise.owner.ledger.lines.add_training", False, 0),
    "before rows are read": ("fedwise.flower.training.find_data", True, 1),
    "after noise is drawn": ("fedwise.training.private.rounded_gaussian", False, 1),
    "after the reply is written": ("fedwise.flower.training.write_update", False, 1),
}
#: A process that loads everything once and then divides: every node answers one training message in a process of its
#: own, or dies on the way. Prints the nodes' exit codes.
NODES = """
import json, os, pkgutil, sys
from fedwise import Schema
from fedwise.flower import InProcessGrid, train_app
from fedwise.flower.training import write_vector
from fedwise.training.encoding import Encoder
from fedwise.training.model import Model
from flwr.app import ConfigRecord, Message, RecordDict

def answer(policy, place, before):
    if place:
        module, name = place.rsplit(".", 1)
        home, real = pkgutil.resolve_name(module), pkgutil.resolve_name(place)
        def dying(*args, **options):
            if not before:
                real(*args, **options)
            os._exit(9)
        setattr(home, name, dying)
    schema = Schema.load(policy.replace("policy.toml", "schema.toml"))
    model = Model.named("8", Encoder(schema).width)
    grid = InProcessGrid(train_app(schema=schema, model=model, weight="equal"), [{"policy": policy}])
    content = RecordDict({"arrays": write_vector(model, model.initial(0)), "config": ConfigRecord()})
    (reply,) = grid.send_and_receive([Message(content, 1001, "train")])
    return 1 if reply.has_error() else 0

codes = []
for policy, place, before in json.loads(sys.argv[1]):
    node = os.fork()
    if node == 0:
        code = 70
        try:
            code = answer(policy, place, before)
        finally:
            os._exit(code)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(node, 0)[1]))
print(json.dumps(codes))
"""


def test_a_kill_at_any_point_of_a_round_leaves_the_ledger_at_or_above_what_left(tmp_path):
    """This test is the coordinator, and knows what left: one update where nobody was killed, else none."""
    terms = {"train_epsilon": 4.0, "train_rounds": 9, "train_population": 400}
    homes = {point: make_node(tmp_path / str(i), "ash", **terms)["policy"] for i, point in enumerate(POINTS)}
    asked = [(homes[point], place, before) for point, (place, before, _) in POINTS.items()]
    ran = subprocess.run(
        [sys.executable, "-c", NODES, json.dumps(asked)], capture_output=True, text=True, timeout=240
    )
    assert ran.returncode == 0, ran.stderr
    codes = dict(zip(POINTS, json.loads(ran.stdout), strict=True))
    assert codes == {point: 0 if point == "never" else 9 for point in POINTS}
    for point, (_, _, rounds) in POINTS.items():
        ledger = fw.Ledger(homes[point].replace("policy.toml", "budget.db"))
        left = 1 if point == "never" else 0
        assert ledger.balance().rounds == rounds >= left, point
