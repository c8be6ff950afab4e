"""Wire: the Shareable that carries an envelope of the release phase, and nothing else."""

from __future__ import annotations

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable

from ..coordinator.channel import Failure

#: Name of the task that asks a site for its release.
TASK = "fedwise_release"
_KEY = "fedwise"
#: What return codes of NVFlare mean; texts of sites are not repeated.
ERRORS = {
    ReturnCode.EXECUTION_EXCEPTION: "its executor raised an error",
    ReturnCode.TASK_UNKNOWN: "its job has no executor for releases",
    ReturnCode.TASK_UNSUPPORTED: "its job has no executor for releases",
    ReturnCode.TASK_ABORTED: "the task was aborted there",
    ReturnCode.TASK_DATA_FILTER_ERROR: "a filter of the site refused",
    ReturnCode.TASK_RESULT_FILTER_ERROR: "a filter of the site kept its answer",
}


def carry(content: bytes) -> Shareable:
    """An envelope as the data of a task, or as its result."""
    found = Shareable()
    found[_KEY] = content
    return found


def unwrap(shareable: Shareable) -> bytes | None:
    """The envelope in a Shareable, or None where there is none."""
    found = shareable.get(_KEY)
    return found if isinstance(found, bytes) else None


def read(result: Shareable) -> bytes | Failure:
    """A site's answer, or why there is none."""
    code = result.get_return_code()
    if code not in (None, ReturnCode.OK):
        return Failure(ERRORS.get(code, "its task failed"))
    return unwrap(result) or b""
