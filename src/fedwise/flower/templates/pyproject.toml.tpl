[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "@NAME@"
version = "0.1.0"
description = "A Flower app that chooses its federation before it trains."
license = "Apache-2.0"
# Left empty on purpose: Flower would install these on every node at every run.
# Install fedwise[flower,train] on the server and on the nodes instead.
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedwise"
# Only the app travels: neither the example policy nor results have business on other people's nodes.
fab-include = ["app/*.py", "app/*.toml", "README.md"]

[tool.flwr.app.components]
serverapp = "app.server_app:app"
clientapp = "app.client_app:app"

[tool.flwr.app.config]
# The release phase
epsilon = 1.0
delta = 1e-5
# Size of the federation; 0: half of the nodes
k = 0
# Nodes to wait for. Flower's simulation has 2 unless you ask for more
expected = 2
timeout = 600
# Seconds to wait for stragglers, in both phases, once enough have answered
grace = 60
# Replace a member after so many rounds without an update; 0: never
substitutes = 1
# The training phase
rounds = 3
round-timeout = 600
seed = 0
# Directory for the releases, the selection and the model; empty: log only
output = ""
# Simulation only: rows of each synthetic state, where ledgers go (empty: a temporary directory for each run), and a
# seed of 0 or more for noise that repeats (NO privacy; public data only)
rows = 2000
ledgers = ""
simulated-seed = -1
