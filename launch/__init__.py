"""Where it runs: the command, and one file per place."""
