# The owner's terms. Kept on the node; the coordinator never sees this file. Paths are relative to it.
client = "my-hospital"           # public name of this client
schema = "app/schema.toml"       # YOUR copy of the schema: plans on any other are declined
data = "rows.parquet"            # CSV or Parquet
ledger = "budget.db"             # created on first use
max_epsilon = 1.0                # largest epsilon of a single plan
max_delta = 1e-5
budget_epsilon = 1.0             # total over all releases and all private training, for ever
budget_delta = 1e-5
# columns = ["AGEP", "SEX"]      # data columns a plan may read; default: all of the schema
# train_epsilon = 4.0            # DP-SGD: promise of the training phase ...
# train_rounds = 50              # ... for this many rounds and none more; budget_epsilon must have room for both
# secure_aggregation = true      # updates leave inside a masked sum only ...
# least_cohort = 3               # ... over at least this many clients
# evaluations = 0                # how often exact metrics may leave; never under train_epsilon
