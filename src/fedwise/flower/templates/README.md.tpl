# @NAME@

A Flower app that chooses its federation before it trains, made by `fedwise flower new`.

1. The server sends a public plan to every node.
2. Each node checks it against its owner's policy, charges its own ledger and answers with noisy tables.
3. The server chooses the `k` nodes whose joint data promises the best model, and trains on those only.

## Simulate it (synthetic states on this machine)

```
pip install 'fedwise[flower-simulation,train]'
source env.sh
flwr run . --stream
flwr run . --stream --federation-config 'num-supernodes=50 client-resources-num-cpus=1' -c 'expected=50 k=5 output="result"'
fedwise report result
```

The first line runs on the two nodes that Flower simulates by default and chooses one of them; the second is a real
choice.

## Deploy it

On the server (see the guide for TLS and node keys; `--insecure` is for trying it out on one machine):

```
source env.sh
flower-superlink --insecure --host 0.0.0.0 --disable-runtime-dependency-installation
```

On each node, write `policy.toml` (yours, not the coordinator's) and start:

```
source env.sh
flower-supernode --insecure --superlink SERVER:8000 --node-config 'policy="policy.toml"'
```

Then, with `[superlink.prod]`, `address = "SERVER:8000"` and `insecure = true` in `~/.flwr/config.toml`:

```
flwr run . prod --stream -c 'k=3 expected=5 output="result"'
```

## Make it yours

| file | what to change |
|---|---|
| `app/schema.toml` | your columns and their public domains |
| `app/task.py` | network, training settings |
| `app/server_app.py` | the strategy: any of Flower's, or `fedwise.flower.FedwiseStrategy` |
| `policy.toml` | each owner's terms |

Guide: `docs/how-to/flower.md` of fedwise.
