"""Site: where an NVFlare site keeps its owner's policy. The job, which a coordinator writes, is asked last."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from ..errors import FedwiseError
from ..owner.policies import Policies
from ..owner.policy import Declined, Policy, Refusal
from ..owner.replies import describe
from ..owner.simulated import simulated_policy
from ..schema.frame import FrameLike
from ..schema.schema import Schema

LOG = logging.getLogger("fedwise")
#: Names the policy file or folder of a site; ``{site}`` is replaced by the site's name.
VARIABLE = "FEDWISE_POLICY"
#: Where a site's policy lies in its workspace, if the variable is not set.
PLACE = Path("fedwise") / "policy.toml"


def site_name(fl_ctx: FLContext) -> str:
    """The site's name in its federation."""
    return str(fl_ctx.get_identity_name())


def simulating(fl_ctx: FLContext) -> bool:
    """Whether NVFlare's simulator runs this site."""
    return bool(fl_ctx.get_prop(FLContextKey.SIMULATE_MODE, False))


def find_policies(fl_ctx: FLContext, *, policy: str = "", schema: str = "") -> Policies:
    """The owner's policies: the site's own environment and workspace first, then what the job says.

    Parameters
    ----------
    policy
        What the job says: a file or folder, ``{site}`` replaced.
    schema
        For simulations: a schema's file or text; every site is then a simulated client.

    Raises
    ------
    Declined
        There is none that can be used.
    """
    name = site_name(fl_ctx)
    try:
        own = os.environ.get(VARIABLE, "").replace("{site}", name)
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        place = Path(workspace.get_site_config_dir()) / PLACE if workspace is not None else None
        if own:
            return Policies.load(own)
        if place is not None and place.exists():
            return Policies.load(place)
        if policy:
            return Policies.load(policy.replace("{site}", name))
        if schema and simulating(fl_ctx):
            text = schema if "\n" in schema else Path(schema).read_text(encoding="utf-8")
            return Policies([simulated_policy(name, Schema.parse(text))])
        raise FedwiseError(f"no policy file; name one in {VARIABLE}, or put it at local/{PLACE} of the site")
    except Exception as cause:
        LOG.error("fedwise: the policy cannot be used: %s", describe(cause))
        raise Declined(Refusal.POLICY) from None


def find_rows(policy: Policy, data: Any, fl_ctx: FLContext) -> FrameLike:
    """The site's rows: where the policy says, else what the job's function or path gives."""
    if policy.data is not None:
        return policy.data
    if callable(data):
        return data(site_name(fl_ctx))
    if data:
        return str(data).replace("{site}", site_name(fl_ctx))
    raise FedwiseError("site has no data; name it in the policy file")
