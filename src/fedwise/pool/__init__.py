"""Pool: the releases of all clients, and whether each of them is possible."""
