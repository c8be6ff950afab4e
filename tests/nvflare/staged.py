"""The example's job with a plan in two stages: run by the test of the simulator, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/nvflare"))

import job

import fedwise as fw

if __name__ == "__main__":
    owners, output = (Path(word).resolve() for word in sys.argv[1:3])
    plan = fw.plan(fw.Schema.load(owners / "site-1" / "schema.toml"), stages=[0.1, 1.0])
    shortlist = {"shortlist": {"size": 4, "redraws": 10}}
    made, names = job.make_job(owners, output, plan, selection=shortlist)
    made.simulator_run(str(output.parent / "workspace"), clients=names, threads=len(names))
