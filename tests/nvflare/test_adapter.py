"""NVFlare's side of the release phase without its simulator: executor, filter, channel, controller in this process."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedwise as fw
from fedwise.errors import FedwiseError, PoolError
from fedwise.owner import envelope
from fedwise.owner.policy import Declined, Refusal
from owners import make_node

pytest.importorskip("nvflare", reason="needs the extra nvflare")

from nvflare.apis.controller_spec import TaskCompletionStatus
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import make_reply
from nvflare.app_common.abstract.fl_model import FLModel

from fedwise.nvflare import PolicyFilter, ReleaseExecutor, Selected, SelectedFedAvg, wire

SITES = tuple(f"site-{i}" for i in range(1, 7))


def context(site, **props):
    found = FLContext()
    found.set_prop(ReservedKey.IDENTITY_NAME, site, private=False, sticky=False)
    for key, value in props.items():
        found.set_prop(getattr(FLContextKey, key), value, private=True, sticky=False)
    return found


class Base:
    """Stands in for a controller of NVFlare: tasks are executed at once, in this thread."""

    def __init__(self, *, ignore_result_error=None, rounds=3):
        self.rounds, self.ignored = rounds, ignore_result_error
        self.executors, self.dead, self.dying, self.sent = {}, set(), set(), []
        self.fl_ctx = context("server")
        self.engine = SimpleNamespace(
            get_clients=lambda: [SimpleNamespace(name=site) for site in self.executors]
        )

    def broadcast(self, *, task, fl_ctx, targets, min_responses):
        self.sent += [(task.name, site) for site in targets]
        for site in targets:
            if site not in self.dead:
                result = self.executors[site].execute(task.name, task.data, context(site), None)
                client_task = SimpleNamespace(client=SimpleNamespace(name=site), result=result)
                task.result_received_cb(client_task, fl_ctx)
        if not self.dead & set(targets):
            task.completion_status = TaskCompletionStatus.OK

    def cancel_task(self, task):
        task.completion_status = TaskCompletionStatus.CANCELLED

    def run(self):
        for number in range(self.rounds):
            self.dead |= self.dying if number == 1 else set()
            targets = self.sample_clients(9)
            self.send_model(data=FLModel(params={"w": [0.0]}), targets=targets, callback=lambda result: True)

    def send_model(self, *, data, targets, callback, timeout):
        self.sent += [("train", site) for site in targets]
        for site in set(targets) - self.dead:
            metrics = {"loss": 0.5, "note": "x"}
            callback(FLModel(params={"w": [1.0]}, metrics=metrics, meta={"client_name": site}))

    def send_model_and_wait(self, *, data, targets, timeout):
        self.sent += [("train", site) for site in targets]
        return [FLModel(params={"w": [1.0]}, meta={"client_name": site}) for site in targets]


class Workflow(Selected, Base):
    pass


@pytest.fixture(scope="module")
def plan(small_schema):
    return fw.plan(small_schema, epsilon=1.0)


def make_workflow(root, plan, policies=None, **options):
    settings = {"k": 3, "release_timeout": 0.5, "grace": 0.0, "selection": {"evidence": "none"}}
    made = Workflow(plan=plan.encode().decode(), **{**settings, **options})
    for i, site in enumerate(SITES):
        make_node(root, site, rows=600, seed=i, **(policies or {}).get(site, {}))
        made.executors[site] = ReleaseExecutor(policy=f"{root}/{{site}}/policy.toml")
    return made


def test_release_selection_training_and_the_same_choice_from_files(tmp_path, plan):
    workflow = make_workflow(tmp_path, plan, output=str(tmp_path / "run"))
    with pytest.raises(FedwiseError, match="has not run yet"):
        _ = workflow.federation
    workflow.run()
    files = fw.select(fw.Pool.load(tmp_path / "run/releases"), 3, evidence="none")
    assert workflow.federation.selection.clients == files.clients
    assert workflow.federation.selection.loss == files.loss
    assert [site for name, site in workflow.sent if name == wire.TASK] == list(SITES)
    assert {site for name, site in workflow.sent if name == "train"} == set(files.clients)
    assert workflow.ignored is True
    saved = json.loads((tmp_path / "run/federation.json").read_text())
    assert saved["engine"].startswith("NVFlare 2.9")
    assert saved["rounds"] == 3
    with pytest.raises(FedwiseError, match="chosen site, got 'nobody'"):
        workflow.send_model(data=None, targets=["nobody"], callback=None)


def test_refusal_exhausted_budget_and_dead_sites_end_well(tmp_path, plan, small_schema):
    workflow = make_workflow(tmp_path, plan, {"site-4": {"max_epsilon": 0.1}}, substitutes=1)
    spent = fw.Ledger(tmp_path / "site-5/budget.db", 1.0, 1e-5)
    other = fw.plan(small_schema, epsilon=0.9)
    fw.release(other, tmp_path / "site-5/rows.parquet", client="site-5", ledger=spent)
    workflow.executors["site-7"] = workflow.executors["site-6"]
    workflow.dead.add("site-7")
    workflow._federation = workflow._form()
    federation = workflow.federation
    assert {str(a.node): a.reason.split(" ")[-1] for a in federation.declined} == {
        "site-4": "allows",
        "site-5": "left",
    }
    assert [a.node for a in federation.missing] == ["site-7"]
    assert federation.pool.clients == ("site-1", "site-2", "site-3", "site-6")
    dead, substitute = federation.clients[0], (set(federation.pool.clients) - set(federation.clients)).pop()
    workflow.dying = {dead}
    workflow._form = lambda: federation
    workflow.run()
    assert [(c.kind, c.client, c.round) for c in federation.changes] == [
        ("left", dead, 2),
        ("came", substitute, 2),
    ]
    trained = [site for name, site in workflow.sent if name == "train"]
    assert trained.count(dead) == 2
    assert trained.count(substitute) == 1
    assert not {"site-4", "site-5", "site-7"} & set(trained)
    assert len(spent.history()) == 1


def test_too_few_releases_stop_with_every_reason(tmp_path, plan):
    workflow = make_workflow(tmp_path, plan, {"site-4": {"max_epsilon": 0.1, "name_refusals": True}}, k=6)
    with pytest.raises(
        PoolError, match=r"needs at least 6 releases, got 5 from 6 nodes(.|\n)*site-4 \(declined\)"
    ):
        workflow.run()


def test_workflows_that_wait_are_limited_too(tmp_path, plan):
    workflow = make_workflow(tmp_path, plan)
    workflow._federation = workflow._form()
    workflow.sent.clear()
    results = workflow.send_model_and_wait(data=None)
    assert {site for _, site in workflow.sent} == set(workflow.federation.clients)
    assert len(results) == 3
    workflow._end_round()
    assert workflow.federation.rounds == 1


def asked(guard, name, site="site-1", **props):
    return guard.process("task", context(site, TASK_NAME=name, **props))


def test_the_policy_stands_in_front_of_every_task(tmp_path):
    make_node(tmp_path, "site-1", train_rounds=1, evaluations=0)
    guard = PolicyFilter(policy=f"{tmp_path}/{{site}}/policy.toml")
    assert asked(guard, "train") == "task"
    assert asked(guard, wire.TASK) == "task"
    for name, refusal in (
        ("train", Refusal.BUDGET),
        ("validate", Refusal.BUDGET),
        ("steal", Refusal.MESSAGE),
    ):
        with pytest.raises(Declined) as caught:
            asked(guard, name)
        assert caught.value.refusal is refusal
    make_node(tmp_path, "site-2", train_epsilon=1.0, train_rounds=5)
    with pytest.raises(Declined, match="DP-SGD"):
        asked(guard, "train", "site-2")
    with pytest.raises(Declined, match="no usable policy"):
        asked(guard, "train", "site-3")
    both = PolicyFilter(policy=f"{tmp_path}/site-1/policy.toml, {tmp_path}/site-1/policy.toml")
    with pytest.raises(Declined, match="no usable policy"):
        asked(both, "train")


def test_the_site_names_its_policy_before_the_job_does(tmp_path, plan, monkeypatch):
    """The site's environment goes first, then its workspace, then the job."""
    for folder in ("own", "job", "kit"):
        make_node(tmp_path / folder, "site-1", client=f"{folder}-site-1")
    request = wire.carry(envelope.request(plan.encode()))

    def client(**props):
        executor = ReleaseExecutor(policy=f"{tmp_path}/job/{{site}}/policy.toml")
        reply = executor.execute(wire.TASK, request, context("site-1", **props), None)
        return json.loads(wire.read(reply))["release"]["client"]

    assert client() == "job-site-1"
    kit, source = tmp_path / "workspace/local/fedwise", tmp_path / "kit/site-1"
    kit.mkdir(parents=True)
    (kit / "policy.toml").write_text(
        f'client = "kit"\nschema = "{source}/schema.toml"\ndata = "{source}/rows.parquet"\n'
        f'ledger = "{source}/budget.db"\nmax_epsilon = 1.0\n'
    )
    workspace = SimpleNamespace(get_site_config_dir=lambda: str(tmp_path / "workspace/local"))
    assert client(WORKSPACE_OBJECT=workspace) == "kit"
    monkeypatch.setenv("FEDWISE_POLICY", f"{tmp_path}/own/{{site}}/policy.toml")
    assert client(WORKSPACE_OBJECT=workspace) == "own-site-1"


def test_the_simulator_needs_no_policy_and_marks_its_releases(tmp_path, plan, small_schema):
    make_node(tmp_path, "site-1")
    executor = ReleaseExecutor(schema=small_schema.to_toml(), data=str(tmp_path / "{site}/rows.parquet"))
    request = wire.carry(envelope.request(plan.encode()))
    simulated = executor.execute(wire.TASK, request, context("site-1", SIMULATE_MODE=True), None)
    assert json.loads(wire.read(simulated))["release"]["simulated"] is True
    deployed = executor.execute(wire.TASK, request, context("site-1"), None)
    assert json.loads(wire.read(deployed))["code"] == "policy"
    other = executor.execute("train", request, context("site-1"), None)
    assert other.get_return_code() == ReturnCode.TASK_UNKNOWN


def test_a_site_without_the_executor_is_left_out_with_a_reason():
    assert wire.read(make_reply(ReturnCode.TASK_UNKNOWN)).reason == "its job has no executor for releases"
    assert wire.read(make_reply("NEW_CODE")).reason == "its task failed"
    assert wire.read(wire.carry(b"x")) == b"x"


def load_example():
    path = Path(__file__).parents[2] / "examples/nvflare/job.py"
    spec = importlib.util.spec_from_file_location("nvflare_job", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def test_a_job_holds_every_setting_and_not_our_source(tmp_path):
    """NVFlare's Job API writes the settings of both classes into the job, and does not copy fedwise into it."""
    for i, site in enumerate(SITES[:2]):
        make_node(tmp_path / "owners", site, rows=50, seed=i)
    job, sites = load_example().make_job(tmp_path / "owners", tmp_path / "run", substitutes=2)
    assert sites == list(SITES[:2])
    job.export_job(str(tmp_path / "job"))
    (server,) = (tmp_path / "job").rglob("config_fed_server.json")
    (workflow,) = json.loads(server.read_text())["workflows"]
    assert workflow["path"].endswith(SelectedFedAvg.__name__)
    settings = workflow["args"]
    assert (settings["k"], settings["num_rounds"], settings["substitutes"]) == (3, 2, 2)
    assert fw.Plan.decode(settings["plan"].encode()).epsilon == 1.0
    assert not list((tmp_path / "job").rglob("fedwise"))
    clients = [json.loads(file.read_text()) for file in (tmp_path / "job").rglob("config_fed_client.json")]
    assert clients
    for config in clients:
        assert [entry["tasks"] for entry in config["executors"]] == [[wire.TASK], ["train"]]
        assert sorted(config["task_data_filters"][0]["tasks"]) == ["train", "validate"]


def test_stages_ask_a_shortlist_again_and_a_site_may_allow_less(tmp_path, small_schema):
    staged = fw.plan(small_schema, stages=[0.1, 1.0])
    less = {site: {"max_epsilon": 0.5, "answer_less": True} for site in SITES[:3]}
    selection = {"evidence": "none", "shortlist": {"size": 4, "redraws": 10}}
    workflow = make_workflow(tmp_path, staged, less, selection=selection)
    workflow.run()
    pool = workflow.federation.pool
    asked = [site for name, site in workflow.sent if name == wire.TASK]
    assert asked[:6] == list(SITES)
    assert len(asked) == 10
    for site, epsilon in zip(pool.clients, pool.epsilons.tolist(), strict=True):
        assert epsilon == (0.1 if site not in asked[6:] else 0.5 if site in less else 1.0)
        assert len(fw.Ledger(tmp_path / site / "budget.db").history()) == asked.count(site)
