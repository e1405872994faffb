"""`python -m grader`."""

from grader.cli.main import main

main(prog_name="python -m grader")
