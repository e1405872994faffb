"""Exit codes of `python -m grader` other than 0."""

BELOW = 1  # graded with fewer points than --min, or a check found something
USAGE = 2  # wrong usage
FAULT = 3  # the grader or the machine is at fault; no points are taken off
UNCHECKED = 4  # nothing differs in what could be checked, but not everything could
INTERRUPTED = 130  # Ctrl-C
