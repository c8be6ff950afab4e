# The public API: every name of `fedwise`, and the module that has it.
from .errors import FedwiseError as FedwiseError
from .forecasting import Forecast as Forecast
from .forecasting import Forecaster as Forecaster
from .objective.pfl import Terms as Terms
from .objective.pfl import Weights as Weights
from .owner.ledger import Ledger as Ledger
from .owner.release import Release as Release
from .owner.release import release as release
from .planning import Plan as Plan
from .planning import plan as plan
from .pool.pool import Pool as Pool
from .schema import Column as Column
from .schema import Role as Role
from .schema import Schema as Schema
from .search import Annealing as Annealing
from .search import Exact as Exact
from .search import Greedy as Greedy
from .search import Selection as Selection
from .search.frontier import frontier as frontier
from .search.frontier import pareto as pareto
from .search.select import select as select

__version__: str
