# The names of `fedwise.nvflare`, and the module that has each.
from .channel import NVFlareChannel as NVFlareChannel
from .controller import Selected as Selected
from .controller import SelectedFedAvg as SelectedFedAvg
from .executor import ReleaseExecutor as ReleaseExecutor
from .job import add_selection as add_selection
from .policy_filter import PolicyFilter as PolicyFilter
