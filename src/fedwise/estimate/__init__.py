"""From noisy tables to estimates: consistency, shrinkage to the pool, information with error bars."""
