"""Owner: everything that runs beside the rows, and decides what may leave."""
