"""The command line: one file per command, heavy imports inside the functions so that --help is instant."""
