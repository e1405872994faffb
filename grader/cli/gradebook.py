"""The command that makes grades and pages of a graded class."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from grader.cli.options import option
from grader.cli.shared import FILE, FOLDER
from grader.system.exit_codes import FAULT


@click.command()
@click.argument("out", type=FOLDER)
@option("--roster", type=FILE, make="ROSTER", help="another roster than the class was graded with")
@option(
    "--policy",
    type=FILE,
    make="POLICY",
    help="TOML file with due dates, grace, tokens and what a day late costs",
)
@option(
    "--rubric",
    type=FILE,
    make="RUBRIC",
    help="CSV with points that a person gave; merged with those given before",
)
@option(
    "--leaderboard",
    is_flag=True,
    make="BOARD",
    help="a page with the nicknames of the roster, to be published",
)
def gradebook(out, **options):
    """Make grades.csv, files for Canvas and Moodle, and pages, from a class run's folder OUT.

    Policy, rubric and roster are kept in OUT/gradebook/given, so that a later call needs none of them.
    """
    make_gradebook(Console(soft_wrap=True), out, **options)


def make_gradebook(console: Console, out: Path, **options) -> None:
    """What `gradebook` does; `class` calls it when it has come to its end. Ends the command on an error."""
    from rich.progress import Progress

    from grader.classroom.gradebook import command
    from grader.classroom.gradebook.late import LateError
    from grader.classroom.gradebook.reading import BookError
    from grader.classroom.gradebook.rubric import RubricError
    from grader.classroom.intake.roster import RosterError

    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("pages", total=None)
            made = command.make(
                command.Asked(out, **options),
                begin=lambda students: progress.update(task, total=students),
                done=lambda: progress.advance(task),
            )
    except (BookError, LateError, RubricError, RosterError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        click.echo(f"{error.filename or out}: cannot be written ({error.strerror})", err=True)
        sys.exit(FAULT)
    for line in made.warnings:
        console.print(f"look at this: {line}", highlight=False, markup=False)
    words = f"written: {made.folder}/ with class.html, grades.csv, canvas.csv, moodle.csv, students/"
    console.print(words, highlight=False, markup=False)
