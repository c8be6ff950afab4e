"""Policy first: no message the owner does not allow gets an answer that depends on data, whoever wrote the app."""

from __future__ import annotations

import itertools
import json
import re

import msgspec
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedwise as fw
from conftest import SMALL, make_people
from fedwise.flower import (
    FederationGrid,
    InProcessGrid,
    SecAgg,
    guard_mod,
    release_app,
    release_mod,
    secagg_mod,
    train_app,
    wire,
)
from fedwise.flower.guard import LOSS_ACTION, classify
from fedwise.flower.training import write_vector
from fedwise.owner.admission import Asked
from fedwise.owner.policy import Refusal
from fedwise.training.encoding import Encoder
from fedwise.training.local import LocalSettings
from fedwise.training.model import Model
from fedwise.training.private import private_update
from flower.kit import make_node

TYPES = ("train", "train.extra", "evaluate", "evaluate.extra", f"query.{LOSS_ACTION}", "query.extra")
PRIVATE = {"train_epsilon": 4.0, "train_rounds": 2}


@pytest.fixture
def model(small_schema):
    return Model.named("8", Encoder(small_schema).width)


def reader(message, context):
    """An app's own handler: whatever it answers depends on the rows, here on all of them."""
    return Message(
        RecordDict({"metrics": MetricRecord({"rows": 400, "num-examples": 400})}), reply_to=message
    )


def own_app(kind="decorated", policy="unused.toml"):
    """An app whose author wrote every handler, before and after fedwise was added."""
    app = ClientApp(mods=[guard_mod] if kind == "mod" else None)
    app.train()(reader)
    app.evaluate()(reader)
    if kind == "decorated":
        release_app(app, policy=policy)
    for register in (app.train, app.evaluate, app.query):
        register("extra")(reader)
    app.query(LOSS_ACTION)(reader)
    return app


def content(model):
    return RecordDict({"arrays": write_vector(model, model.initial(0)), "config": ConfigRecord()})


def send(grid, kind, records=None):
    (reply,) = grid.send_and_receive([Message(records or RecordDict(), 1001, kind)])
    return reply


def allowed(kind, terms):
    """The rule in words, apart from the code: see the table in owner/admission.py."""
    asked = classify(kind)
    if asked is Asked.OTHER:
        return kind in terms.get("messages", ())
    if terms.get("secure_aggregation") or "train_epsilon" in terms:
        return False
    if asked is Asked.METRICS:
        return terms.get("evaluations") != 0
    return True


TERMS = [
    {},
    PRIVATE,
    {"evaluations": 0},
    {"evaluations": 1},
    {"train_rounds": 1},
    {"secure_aggregation": True},
    {"secure_aggregation": True, **PRIVATE},
    {"messages": ["query.extra"]},
    {"messages": ["query.extra"], "evaluations": 0, "secure_aggregation": True},
    {"simulated_seed": 0, "ledger": None},
    {"simulated_seed": 0, "ledger": None, **PRIVATE},
]


@pytest.mark.parametrize("kind", ["decorated", "mod"])
@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_an_apps_own_handlers_answer_only_what_the_policy_allows(tmp_path, terms, kind):
    """Every message type under every policy; the rows are made unreadable where nothing may depend on them."""
    for i, name in enumerate(TYPES):
        node = make_node(tmp_path / str(i), "ash", **terms)
        reply = send(InProcessGrid(own_app(kind), [node]), name)
        assert reply.has_error() != allowed(name, terms), name
        if reply.has_error():
            assert reply.error.reason in {refusal.sentence for refusal in Refusal}


@pytest.mark.parametrize("terms", [{"train_rounds": 2}, {"evaluations": 2}], ids=str)
def test_limits_are_counted_on_disk_and_survive_restarts(tmp_path, terms):
    node = make_node(tmp_path, "ash", **terms)
    kind = "train" if "train_rounds" in terms else "evaluate"
    answers = [send(InProcessGrid(own_app(), [node]), kind).has_error() for _ in range(4)]
    assert answers == [False, False, True, True]
    balance = fw.Ledger(tmp_path / "ash/budget.db").balance()
    assert (balance.open_rounds, balance.evaluations) == ((2, 0) if kind == "train" else (0, 2))


def test_the_finding_three_rounds_without_noise_under_one_private_round(tmp_path):
    """AUDIT 5: an app's own @app.train under train_epsilon=0.1, train_rounds=1 answered three rounds."""
    node = make_node(tmp_path, "ash", train_epsilon=0.1, train_rounds=1)
    grid = InProcessGrid(own_app(), [node])
    for _ in range(3):
        reply = send(grid, "train")
        assert reply.has_error()
        assert "train_app" in reply.error.reason


@pytest.mark.parametrize("make", [own_app, lambda policy: train_app_only(policy)])
@pytest.mark.parametrize("policy", [None, "missing.toml", lambda context: 1 / 0])
def test_no_policy_no_training(tmp_path, make, policy):
    for kind in TYPES:
        reply = send(InProcessGrid(make(policy=policy), [{}]), kind)
        assert reply.has_error()
        assert reply.error.reason in {Refusal.POLICY.sentence, Refusal.FAILED.sentence}


def train_app_only(policy):
    return train_app(schema=fw.Schema.parse(SMALL), policy=policy, data=make_people(50, 0))


def test_an_app_built_from_a_client_fn_is_guarded_too(tmp_path):
    from flwr.client import NumPyClient

    class Client(NumPyClient):
        def fit(self, parameters, config):
            return [np.zeros(2)], 400, {}

        def evaluate(self, parameters, config):
            return 0.5, 400, {}

        def get_parameters(self, config):
            return [np.zeros(2)]

    app = ClientApp(lambda context: Client().to_client(), mods=[release_mod()])
    grid = InProcessGrid(app, [make_node(tmp_path, "ash", **PRIVATE)])
    for kind in ("train", "evaluate", "get_parameters", "get_properties"):
        assert send(grid, kind).has_error()


def test_fedwises_own_training_is_charged_and_limited(tmp_path, small_schema, model):
    app = release_app()
    train_app(app, schema=small_schema, model=model, settings=LocalSettings(lr=0.01, batch=64))
    grid = InProcessGrid(app, [make_node(tmp_path, "ash", **PRIVATE)])
    plan = fw.plan(small_schema, epsilon=1.0)
    send(grid, wire.MESSAGE_TYPE, wire.request(plan.encode()))
    replies = [send(grid, "train", content(model)) for _ in range(3)]
    assert [reply.has_error() for reply in replies] == [False, False, True]
    assert replies[2].error.reason == Refusal.BUDGET.sentence
    for kind in ("evaluate", f"query.{LOSS_ACTION}"):
        assert send(grid, kind, content(model)).error.reason == Refusal.EXACT.sentence
    balance = fw.Ledger(tmp_path / "ash/budget.db").balance()
    assert (balance.charges, balance.rounds) == (1, 2)
    assert balance.spent <= balance.epsilon == 5.0


@pytest.mark.parametrize("told", [[40, 400], [400, 40], [65, 64], [63, 200], [1000, 1]], ids=str)
def test_what_is_done_is_what_was_charged_whatever_a_release_tells_since(
    tmp_path, small_schema, model, monkeypatch, told
):
    """A first release may tell fewer records than a batch holds, a later one more, or the other way round."""
    seen = []

    def spy(*args, **options):
        seen.append(private_update(*args, **options))
        return seen[-1]

    monkeypatch.setattr("fedwise.flower.training.private_update", spy)
    app = train_app(schema=small_schema, model=model, settings=LocalSettings(batch=64), weight="equal")
    for population in told:
        home = tmp_path / "ash"
        if home.exists():
            text = (home / "policy.toml").read_text()
            changed = re.sub(r"train_population = \d+", f"train_population = {population}", text)
            (home / "policy.toml").write_text(changed)
        else:
            node = make_node(tmp_path, "ash", train_population=population, **PRIVATE)
        assert not send(InProcessGrid(app, [node]), "train", content(model)).has_error()
    for line, update in zip(fw.Ledger(tmp_path / "ash/budget.db").training(), seen, strict=True):
        assert update.privacy == pytest.approx((line.noise, line.rate, line.steps))


def test_the_charge_stands_before_rows_are_read_or_noise_is_drawn(tmp_path, small_schema, model, monkeypatch):
    """A node that dies anywhere in a round has recorded it; one that cannot read its rows has too."""
    node = make_node(tmp_path, "ash", train_population=400, **PRIVATE)
    seen = []

    def rows(*_):
        seen.append(fw.Ledger(tmp_path / "ash/budget.db").balance().rounds)
        raise RuntimeError("age 31")

    monkeypatch.setattr("fedwise.flower.training.find_data", rows)
    app = train_app(schema=small_schema, model=model, weight="equal")
    reply = send(InProcessGrid(app, [node]), "train", content(model))
    assert seen == [1]
    assert reply.error.reason == Refusal.FAILED.sentence


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.5e38, -1e30])
@pytest.mark.parametrize("kind", ["train", "evaluate", f"query.{LOSS_ACTION}"])
@pytest.mark.parametrize("terms", [{}, PRIVATE], ids=["open", "private"])
def test_parameters_out_of_bounds_are_refused_before_rows_are_read(
    tmp_path, small_schema, model, value, kind, terms
):
    """AUDIT 2: weights of 1.5e38 made the reply an error exactly if a person was present."""
    node = make_node(tmp_path, "ash", train_population=400, **terms)
    (tmp_path / "ash/rows.parquet").unlink()  # whoever reads rows fails with another reason
    hostile = model.initial(0)
    hostile[3] = value
    app = train_app(schema=small_schema, model=model, weight="equal")
    records = RecordDict({"arrays": write_vector(model, hostile), "config": ConfigRecord()})
    reply = send(InProcessGrid(app, [node]), kind, records)
    wanted = Refusal.EXACT if terms and kind != "train" else Refusal.PARAMETERS
    assert reply.error.reason == wanted.sentence
    if terms:
        assert not (tmp_path / "ash/budget.db").exists()


def test_exact_cells_cannot_be_asked_by_evaluations(tmp_path, small_schema, model):
    """AUDIT 4: four evaluations of chosen classifiers gave an exact cell of the label table."""
    app = train_app(schema=small_schema, model=model, weight="equal")
    grid = InProcessGrid(app, [make_node(tmp_path, "ash", **PRIVATE)])
    for sign, kind in itertools.product((-1, 1), ("evaluate", f"query.{LOSS_ACTION}")):
        chosen = sign * np.ones_like(model.initial(0))
        records = RecordDict({"arrays": write_vector(model, chosen), "config": ConfigRecord()})
        assert send(grid, kind, records).has_error()


def test_a_lost_ledger_stops_the_node(tmp_path, small_schema, model):
    """AUDIT 7: with the ledger gone, a second plan was answered on a fresh budget."""
    node = make_node(tmp_path, "ash")
    grid = InProcessGrid(release_app(), [node])
    send(grid, wire.MESSAGE_TYPE, wire.request(fw.plan(small_schema, epsilon=1.0).encode()))
    for file in (tmp_path / "ash").glob("budget.db*"):
        if file.is_file():
            file.unlink()
    for epsilon in (1.0, 0.9):
        reply = send(grid, wire.MESSAGE_TYPE, wire.request(fw.plan(small_schema, epsilon=epsilon).encode()))
        assert wire.read_answer(reply) is Refusal.FAILED
    assert not (tmp_path / "ash/budget.db").exists()


def test_files_of_a_node_are_the_owners_alone(tmp_path, small_schema):
    node = make_node(tmp_path, "ash")
    send(
        InProcessGrid(release_app(), [node]), wire.MESSAGE_TYPE, wire.request(fw.plan(small_schema).encode())
    )
    made = [path for path in (tmp_path / "ash").rglob("*") if "budget" in str(path.relative_to(tmp_path))]
    assert len(made) >= 3
    for path in made:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_guarded_app_takes_array_records_of_any_shape(tmp_path, small_schema, model):
    app = train_app(schema=small_schema, model=model, weight="equal")
    grid = InProcessGrid(app, [make_node(tmp_path, "ash", train_population=400, **PRIVATE)])
    for records in (
        RecordDict(),
        RecordDict({"arrays": ArrayRecord({"x": Array(np.zeros(3, np.float32))})}),
        RecordDict(
            {
                "arrays": write_vector(model, model.initial(0)),
                "config": ConfigRecord({"fedwise.settings": "{"}),
            }
        ),
    ):
        assert send(grid, "train", records).error.reason == Refusal.PARAMETERS.sentence


@pytest.mark.parametrize("mods", [[], [secagg_mod]], ids=["without the mod", "with it"])
@pytest.mark.parametrize(
    "terms", [{}, {"secure_aggregation": True}, {"secure_aggregation": True, **PRIVATE}], ids=str
)
def test_secure_aggregation_is_the_guards_own(tmp_path, small_schema, model, mods, terms):
    """The policy asks for masks: an app that forgot the mod still sends nothing else, and rounds count once."""
    app = ClientApp(mods=mods)
    release_app(app)
    train_app(app, schema=small_schema, model=model, settings=LocalSettings(lr=0.01, batch=64))
    names = ["ash", "birch", "cedar"]
    limits = {} if "train_epsilon" in terms else {"train_rounds": 2, "evaluations": 1}
    grid = InProcessGrid(
        app, [make_node(tmp_path, name, seed=i, **limits, **terms) for i, name in enumerate(names)]
    )
    plan = fw.plan(small_schema, epsilon=1.0)
    for node in (1001, 1002, 1003):
        grid.send_and_receive([Message(wire.request(plan.encode()), node, wire.MESSAGE_TYPE)])
    secure = SecAgg(FederationGrid(grid, dict(zip(names, (1001, 1002, 1003), strict=True))), max_weight=1000)
    for _ in range(2):
        messages = [Message(content(model), node, "train") for node in (1001, 1002, 1003)]
        (reply,) = secure.send_and_receive(messages, timeout=30)
        assert np.abs(reply.content["arrays"][model.names[0]].numpy()).max() < 8
    if "secure_aggregation" in terms or mods:
        assert send(grid, "train", content(model)).has_error()
        assert send(grid, "evaluate", content(model)).has_error()
    balance = fw.Ledger(tmp_path / "ash/budget.db").balance()
    assert (balance.rounds, balance.open_rounds) == ((2, 0) if "train_epsilon" in terms else (0, 2))


def test_guard_and_handler_act_on_one_reading_of_the_policy(tmp_path, small_schema, model):
    """An app that names a strict policy for releases and a loose one for training gets the strict one."""
    strict = make_node(tmp_path / "strict", "ash", train_population=400, **PRIVATE)["policy"]
    loose = make_node(tmp_path / "loose", "ash")["policy"]
    app = release_app(policy=strict)
    train_app(app, schema=small_schema, policy=loose, model=model, weight="equal")
    reply = send(InProcessGrid(app, [{}]), "train", content(model))
    assert "loss" not in reply.content["metrics"]
    assert fw.Ledger(tmp_path / "strict/ash/budget.db").balance().rounds == 1
    assert not (tmp_path / "loose/ash/budget.db").exists()


def test_mods_around_private_training_add_nothing_and_answer_nothing(tmp_path, small_schema, model):
    def adding(message, context, call_next):
        reply = call_next(message, context)
        reply.content["exact"] = MetricRecord({"rows": 437})
        return reply

    def answering(message, context, call_next):
        return reader(message, context)

    for i, (mod, fails) in enumerate([(adding, False), (answering, True)]):
        app = ClientApp(mods=[mod])
        train_app(app, schema=small_schema, model=model, weight="equal")
        node = make_node(tmp_path / str(i), "ash", train_population=400, **PRIVATE)
        reply = send(InProcessGrid(app, [node]), "train", content(model))
        assert reply.has_error() is fails
        if fails:
            assert reply.error.reason == Refusal.HANDLER.sentence


def test_a_handler_of_another_under_the_name_of_the_release_is_refused(tmp_path, small_schema, model):
    app = ClientApp()
    app.query(wire.ACTION)(reader)
    train_app(app, schema=small_schema, model=model, weight="equal")
    reply = send(InProcessGrid(app, [make_node(tmp_path, "ash", **PRIVATE)]), wire.MESSAGE_TYPE)
    assert reply.error.reason == Refusal.MESSAGE.sentence


@pytest.mark.parametrize("terms", [{}, PRIVATE], ids=["open", "private"])
@pytest.mark.parametrize("field", ['"epochs":100000000', '"batch":-1', '"lr":1e308'])
def test_settings_without_bound_are_refused_under_every_policy(tmp_path, small_schema, model, terms, field):
    asked = json.loads(msgspec.json.encode(LocalSettings()))
    asked |= json.loads("{" + field + "}")
    config = ConfigRecord(
        {"fedwise.settings": json.dumps({"settings": asked, "attribute": 0, "report": False})}
    )
    app = train_app(schema=small_schema, model=model, weight="equal")
    grid = InProcessGrid(app, [make_node(tmp_path, "ash", train_population=400, **terms)])
    reply = send(grid, "train", RecordDict({**content(model), "config": config}))
    assert reply.error.reason == Refusal.PARAMETERS.sentence


def test_the_mods_alone_speak_secure_aggregation_under_the_policy(tmp_path, small_schema, model):
    """As the guide has it: an app with its own handler, `guard_mod` and `secagg_mod`; a round counts once."""

    def train(message, context):
        metrics = MetricRecord({"num-examples": 10})
        return Message(
            RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message
        )

    app = ClientApp(mods=[guard_mod, secagg_mod])
    app.train()(train)
    names, nodes = ["ash", "birch", "cedar"], (1001, 1002, 1003)
    terms = {"secure_aggregation": True, "train_rounds": 2}
    grid = InProcessGrid(app, [make_node(tmp_path, name, **terms) for name in names])
    secure = SecAgg(
        FederationGrid(grid, dict(zip(names, nodes, strict=True))), max_weight=1000, on_halt="skip"
    )
    for answers in (1, 1, 0):
        assert (
            len(secure.send_and_receive([Message(content(model), node, "train") for node in nodes]))
            == answers
        )
    assert send(grid, "train", content(model)).has_error()
    assert fw.Ledger(tmp_path / "ash/budget.db").balance().open_rounds == 2
