"""The example's job with a trainer that kills its site: run by the test of the simulator, in a process of its own."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

CODE = Path(__file__).parents[2] / "examples/nvflare"
sys.path[:0] = [str(CODE), str(Path(__file__).parent)]

import job  # noqa: E402
from dying_trainer import Dying  # noqa: E402

if __name__ == "__main__":
    owners, output = (Path(word).resolve() for word in sys.argv[1:3])
    job.Trainer = partial(Dying, code=str(CODE))
    made, names = job.make_job(owners, output, substitutes=1, round_timeout=40, grace=60.0)
    made.simulator_run(str(output.parent / "workspace"), clients=names, threads=len(names))
