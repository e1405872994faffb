"""Set up .venv for every other command."""
