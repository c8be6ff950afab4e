"""Executor: answers a plan on a site, under the owner's policy. Nothing it raises leaves the site."""

from __future__ import annotations

from typing import Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from ..owner.replies import reply_to
from . import wire
from .site import LOG, find_policies, find_rows


class ReleaseExecutor(Executor):  # type: ignore[misc]  # nvflare is not typed for us
    """Answers tasks named ``fedwise_release``.

    Parameters
    ----------
    policy
        The policy file or folder where the site names none itself; ``{site}`` is replaced by its name. A site's own
        ``FEDWISE_POLICY``, or ``local/fedwise/policy.toml`` in its workspace, goes first.
    data
        Path of the rows where the policy names none, ``{site}`` replaced; or a function of the site's name.
    schema
        For NVFlare's simulator: a schema's file or text. Every site without a policy is then a client whose
        releases say *simulated*. Outside the simulator it is ignored.
    """

    def __init__(self, policy: str = "", data: Any = "", schema: str = "") -> None:
        super().__init__()
        self.policy, self.data, self.schema = policy, data, schema

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """A release, or a refusal from a fixed list."""
        if task_name != wire.TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        made = reply_to(
            wire.unwrap(shareable),
            lambda plan: find_policies(fl_ctx, policy=self.policy, schema=self.schema).for_plan(plan),
            lambda policy: find_rows(policy, self.data, fl_ctx),
            log=LOG,
        )
        return wire.carry(made.content)
