# The names of `fedwise.flower`, and the module that has each.
import fedwise.owner.policy

from .client_app import release_app as release_app
from .client_app import release_mod as release_mod
from .grid import FederationGrid as FederationGrid
from .guard import guard_mod as guard_mod
from .inprocess import InProcessGrid as InProcessGrid
from .secagg import SecAgg as SecAgg
from .secagg import secagg_mod as secagg_mod
from .secagg import secagg_mod_for as secagg_mod_for
from .server_app import Absence as Absence
from .server_app import Federation as Federation
from .server_app import select_federation as select_federation
from .strategy import FedwiseStrategy as FedwiseStrategy
from .training import initial_arrays as initial_arrays
from .training import train_app as train_app

Policy = fedwise.owner.policy.Policy
