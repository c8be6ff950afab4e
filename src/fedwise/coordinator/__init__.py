"""Coordinator: ask nodes, pool what comes back, choose, replace who leaves. Knows bytes, and no engine."""
