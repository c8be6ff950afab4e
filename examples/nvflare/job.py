"""Six hospitals on NVFlare's simulator: release, selection of three, training on these three.

    python examples/nvflare/job.py owners/ run/

`owners/` holds one folder for each site with its policy.toml, schema.toml and rows.parquet; `run/` gets what
`fedwise report run/` reads. In production each site names its own policy in FEDWISE_POLICY.
"""

import sys
from pathlib import Path

from nvflare.job_config.api import FedJob

import fedwise as fw
from fedwise.nvflare import SelectedFedAvg, add_selection

sys.path.insert(0, str(Path(__file__).parent))
from trainer import Trainer

ROUNDS, K = 2, 3


def make_job(owners: Path, output: Path, plan: fw.Plan | None = None, **options) -> tuple[FedJob, list[str]]:
    """The job, and its sites."""
    sites = sorted(home.name for home in owners.iterdir())
    schema = fw.Schema.load(owners / sites[0] / "schema.toml")
    inputs = sum(column.size for column in schema.columns[:-1])
    job = FedJob(name="hospitals", min_clients=1)
    controller = SelectedFedAvg(
        plan=(plan or fw.plan(schema, epsilon=1.0)).encode().decode(), k=K, expected=len(sites),
        output=str(output), num_rounds=ROUNDS, model={"w": [0.0] * inputs}, persistor_id="",
        **{"release_timeout": 120.0, "grace": 60.0, "round_timeout": 60, **options},
    )  # fmt: skip
    job.to_server(controller)
    add_selection(job, sites, policy=f"{owners}/{{site}}/policy.toml")
    for site in sites:
        job.to(Trainer(folder=str(owners)), site, tasks=["train"])
    return job, sites


if __name__ == "__main__":
    made, names = make_job(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
    made.simulator_run(f"{sys.argv[2]}/workspace", clients=names, threads=len(names))
