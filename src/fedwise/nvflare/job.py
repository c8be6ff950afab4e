"""Job: what a job of NVFlare's Job API needs for the release phase, in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.job_config.defs import FilterType

from . import wire
from .executor import ReleaseExecutor
from .policy_filter import PolicyFilter


def add_selection(
    job: Any, sites: list[str], *, policy: str = "", data: str = "", schema: str | Path = ""
) -> None:
    """Give every site of a `FedJob` the executor for releases, and the owner's policy in front of its other tasks.

    Parameters
    ----------
    job
        The job, with a `SelectedFedAvg` (or another `Selected` controller) for its server.
    sites
        Names of the sites. Their executors for training are added as ever, for the task ``train`` and not for all.
    policy, data, schema
        As for `ReleaseExecutor`. The schema's text travels in the job, so its file is not needed on the sites.
    """
    if "fedwise" not in job.job.app_packages:  # it is installed on the sites; its source does not travel
        job.set_app_packages([*job.job.app_packages, "fedwise"])
    text = Path(schema).read_text(encoding="utf-8") if schema else ""
    for site in sites:
        job.to(ReleaseExecutor(policy=policy, data=data, schema=text), site, tasks=[wire.TASK])
        job.to(
            PolicyFilter(policy=policy, schema=text),
            site,
            tasks=["train", "validate"],
            filter_type=FilterType.TASK_DATA,
        )
