"""The command line, `python -m grader`."""
