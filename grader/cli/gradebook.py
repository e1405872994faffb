"""The command that writes the grades and pages of a graded class."""

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
@option(
    "--roster",
    type=FILE,
    make="ROSTER",
    help="roster to use in place of the one that the class was graded with",
)
@option(
    "--policy",
    type=FILE,
    make="POLICY",
    help="TOML file with due dates, grace period, late tokens and the penalty for each day late",
)
@option(
    "--rubric",
    type=FILE,
    make="RUBRIC",
    help="CSV with manually given points; merged with the earlier ones",
)
@option(
    "--leaderboard",
    is_flag=True,
    make="BOARD",
    help="also write a leaderboard to publish, with the nicknames of the roster",
)
def gradebook(out, **options):
    """Write grades.csv, files for Canvas and Moodle, and pages, from the folder OUT of a class run.

    Policy, rubric and roster are copied to OUT/gradebook/given, so a later call can leave them out.
    """
    make_gradebook(Console(soft_wrap=True), out, **options)


@click.command()
@click.argument("out", type=FOLDER)
@option("--only", metavar="ID", required=True, make="ONLY", help="id of the student, as in OUT/students")
@option("--yes", is_flag=True, make="YES", help="erase without asking")
def erase(out, only, yes):
    """Erase one student from the class run OUT: files, results, logs, pages and every mention."""
    from grader.classroom.gradebook.command import FOLDER as BOOK
    from grader.classroom.grading import erase as erasing
    from grader.classroom.grading.run_lock import BusyError

    if not yes:
        click.confirm(f"erase {only} from {out}? This cannot be undone", abort=True)
    try:
        erased = erasing.erase(out, only, out / BOOK)
    except (erasing.EraseError, BusyError) as error:
        raise click.UsageError(str(error)) from None
    for line in erased.removed:
        click.echo(f"erased: {line}")
    for line in erased.left:
        click.echo(f"not erased: {line}")
    make_gradebook(Console(soft_wrap=True), out)


def make_gradebook(console: Console, out: Path, **options) -> None:
    """Write the gradebook of the class run in `out`; `class` calls it at its end. Exits on an error."""
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
        console.print(f"warning: {line}", highlight=False, markup=False)
    words = f"written: {made.folder}/ with class.html, grades.csv, canvas.csv, moodle.csv, students/"
    console.print(words, highlight=False, markup=False)
