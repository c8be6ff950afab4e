# The public API: every name of `fedwise`, and the module that has it.
from .auditing.audit import audit as audit
from .certificate import Certificate as Certificate
from .errors import FedwiseError as FedwiseError
from .estimation import estimate as estimate
from .forecasting import Forecast as Forecast
from .forecasting import Forecaster as Forecaster
from .objective.pfl import Terms as Terms
from .objective.pfl import Weights as Weights
from .owner.ledger import Ledger as Ledger
from .owner.policy import Policy as Policy
from .owner.release import Release as Release
from .owner.release import release as release
from .planning import Plan as Plan
from .planning import plan as plan
from .pool.pool import Pool as Pool
from .reporting.source import report as report
from .schema import Column as Column
from .schema import Role as Role
from .schema import Schema as Schema
from .search import Annealing as Annealing
from .search import Constraints as Constraints
from .search import Exact as Exact
from .search import Greedy as Greedy
from .search import Selection as Selection
from .search.entry import select as select
from .search.frontiers import frontier as frontier
from .search.frontiers import pareto as pareto
from .search.paper import paper_bounds as paper_bounds
from .training.calibration import calibrate as calibrate
from .training.comparison import compare as compare
from .training.run import Run as Run
from .training.settings import Training as Training
from .training.workflow import train as train

__version__: str
