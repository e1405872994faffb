"""`python -m grader`."""

from grader.cli import main

main(prog_name="python -m grader")
