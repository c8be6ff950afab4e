"""Policy filter: the owner's policy in front of every task a site receives, whatever executes it."""

from __future__ import annotations

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from ..owner.admission import Asked, admit
from ..owner.policies import Policies
from ..owner.policy import Declined, Policy, Refusal
from . import wire
from .site import LOG, find_policies

#: Tasks of NVFlare's workflows that ask for metrics of a model.
_METRICS = {AppConstants.TASK_VALIDATION, "evaluate"}


class PolicyFilter(Filter):  # type: ignore[misc]  # nvflare is not typed for us
    """Lets a task pass, or stops it before anything looks at rows.

    Put it among the filters of task data, or, as an owner, into the scope of the site's own ``privacy.json``, where no
    job can leave it out. fedwise's DP-SGD does not run on NVFlare: a policy with ``train_epsilon`` trains nothing.

    Parameters
    ----------
    policy, schema
        As for `ReleaseExecutor`.
    """

    def __init__(self, policy: str = "", schema: str = "") -> None:
        super().__init__()
        self.policy, self.schema = policy, schema

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """The task as it came. Raises `Declined`, which NVFlare reports as a filter's error without its text."""
        name = str(fl_ctx.get_prop(FLContextKey.TASK_NAME))
        asked = classify(name)
        try:
            admit(self._terms(fl_ctx, asked), asked, name=name)
        except Declined as refused:
            LOG.warning("fedwise: declined a %s task: %s", name, refused.refusal.sentence)
            raise
        return shareable

    def _terms(self, fl_ctx: FLContext, asked: Asked) -> Policy:
        """The one policy of the site. Of several none says which task a model belongs to, so nothing is trained."""
        found: Policies = find_policies(fl_ctx, policy=self.policy, schema=self.schema)
        if len(found) > 1 and asked is not Asked.RELEASE:
            raise Declined(Refusal.POLICY)
        return next(iter(found))


def classify(name: str) -> Asked:
    """What a task of this name wants."""
    if name == wire.TASK:
        return Asked.RELEASE
    if name in _METRICS:
        return Asked.METRICS
    return Asked.TRAINING if name == AppConstants.TASK_TRAIN else Asked.OTHER
