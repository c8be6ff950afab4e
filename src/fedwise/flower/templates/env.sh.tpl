# Source this before flwr, flower-superlink or flower-supernode: nobody is told what runs here.
export FLWR_TELEMETRY_ENABLED=0
export FLWR_DISABLE_UPDATE_CHECK=1
export RAY_USAGE_STATS_ENABLED=0
