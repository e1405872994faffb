"""Commands for course staff: grade a class, verify a receipt, make a synthetic class, show costs."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from grader.cli.gradebook import make_gradebook
from grader.cli.options import option, run_option
from grader.cli.shared import FILE, FOLDER
from grader.system.exit_codes import BELOW, FAULT, INTERRUPTED, UNCHECKED


@click.command("class")
@click.argument("submissions", type=FOLDER)
@option(
    "--roster",
    type=FILE,
    make="ROSTER",
    help="CSV with one line for each student, as Canvas or Moodle exports it",
)
@run_option("labs", help="numbers of the labs, or capstone, as in 1,2,capstone; all labs by default")
@run_option("tier", type=click.Choice(["auto", "cpu", "gpu"]))
@option("--out", default="results/class", show_default=True, type=click.Path(path_type=Path), make="OUT")
@option("--site", type=FILE, make="SITE", help="TOML file of a Slurm cluster; this machine by default")
@option(
    "--jobs",
    type=click.IntRange(1),
    make="JOBS",
    help="gradings at once; by default two for each GPU, of which one computes on it, or one for two cores",
)
@option(
    "--only",
    multiple=True,
    metavar="ID",
    make="ONLY",
    help="grade only this student; may be given several times",
)
@option("--again", is_flag=True, make="AGAIN", help="grade even if nothing has changed, with fresh inputs")
@option(
    "--regrade",
    type=click.Choice(["better", "latest"]),
    default="better",
    show_default=True,
    make="REGRADE",
    help="which attempt at the same files counts; the latest may lower a grade",
)
@run_option("keyword", default=None)
@run_option("hidden", type=FILE, make="HIDDEN")
@option(
    "--secret",
    type=FILE,
    make="SECRET",
    help="file with the secret of all seeds, not of the seals; drawn by default",
)
@option(
    "--limit", "limit_s", type=click.FloatRange(min=1), default=3600, show_default=True, make="LIMIT",
    help="seconds for one lab of one student",
)  # fmt: skip
@option(
    "--blind", type=click.FloatRange(0, 100), make="BLIND",
    help="percentage of submissions to grade a second time  [default: 5, with --only 0]",
)  # fmt: skip
@option(
    "--attempts",
    type=click.Choice(["last", "best", "refuse"]),
    default="last",
    show_default=True,
    make="ATTEMPTS",
    help="which attempt counts if a student handed in several with different files",
)
@click.option("--self-test/--no-self-test", default=True, help="first grade files whose verdict is known")
@option(
    "--ungated", is_flag=True, make="UNGATED", help="also grade on a GPU that has no gate: correctness only"
)
def grade_class(submissions, blind, **options):
    """Grade the folders, zips and git repositories in SUBMISSIONS; after a stop, repeat it to continue."""
    try:
        import parsl  # noqa: F401 - only the extra `class` installs it
    except ImportError:
        click.echo("grading a class needs Parsl; install it with: make setup EXTRA=class", err=True)
        sys.exit(FAULT)
    from grader.classroom.grading import run
    from grader.classroom.grading.machines import SiteError
    from grader.classroom.grading.run_lock import BusyError
    from grader.classroom.intake.roster import RosterError

    asked = run.Asked(submissions=submissions, blind_share=None if blind is None else blind / 100, **options)
    console = Console(soft_wrap=True)
    try:
        code = run.grade_class(asked, console)
    except (run.AskedError, RosterError, SiteError, BusyError) as error:
        raise click.UsageError(str(error)) from None
    except KeyboardInterrupt:
        click.echo("stopped; run the same command again to continue", err=True)
        sys.exit(INTERRUPTED)
    if (asked.out / "run.json").is_file():
        make_gradebook(console, asked.out)
    sys.exit(code)


@click.command()
@click.argument("receipt", type=FILE)
@option(
    "--tolerance", type=click.FloatRange(min=0), default=3, show_default=True, metavar="PERCENT",
    make="TOLERANCE",
)  # fmt: skip
@run_option("hidden", type=FILE, make="HIDDEN", help="TOML file of hidden cases that the first grading used")
def verify(receipt, tolerance, hidden):
    """Grade the submission of RECEIPT again, and name everything that differs.

    Exit code 0: agrees. 1: differs. 4: nothing differs, but without a key or a file not everything could be
    checked.
    """
    from grader.classroom.grading import verify as verifying

    try:
        found = verifying.verify(receipt, tolerance, hidden)
    except verifying.VerifyError as error:
        raise click.UsageError(str(error)) from None
    except verifying.MachineError as error:
        click.echo(str(error), err=True)
        sys.exit(FAULT)
    for line in found.lines:
        click.echo(line)
    if found.agrees and found.unseen:
        click.echo("nothing differs in what could be checked; not everything could")
        sys.exit(UNCHECKED)
    click.echo("agrees" if found.agrees else "differs")
    sys.exit(0 if found.agrees else BELOW)


@click.command()
@click.argument("out", type=FOLDER)
@run_option(
    "hidden", type=FILE, make="HIDDEN", help="TOML file of hidden cases that the class was graded with"
)
@click.option("--dry-run", is_flag=True, help="show who would change, and write nothing")
def rescore(out, hidden, dry_run):
    """Compute the points of the class run OUT again after a change of points or thresholds; grade nothing."""
    from grader.classroom.grading import rescore as rescoring
    from grader.classroom.grading.run_lock import BusyError

    console = Console(soft_wrap=True)
    try:
        rescoring.rescore(out, hidden, console, write=not dry_run)
    except (rescoring.RescoreError, BusyError) as error:
        raise click.UsageError(str(error)) from None
    if not dry_run:
        make_gradebook(console, out)


@click.command("synthetic-class")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--count", type=click.IntRange(1), default=200, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--slow", is_flag=True, help="also write files that reach a time limit, a minute for each case")
@click.option(
    "--check", "out", type=FOLDER, help="folder of a class run, to compare with the expected verdicts"
)
def synthetic_class(folder, count, seed, slow, out):
    """Write a class with known verdicts to FOLDER, or check a graded one (course staff)."""
    from grader.classroom.grading import synthetic

    if out is None:
        if folder.exists():
            raise click.UsageError(f"{folder} already exists; name another folder")
        synthetic.make(folder, count, seed, slow)
        click.echo(f"wrote {folder}: submissions, roster.csv, expected.json")
        return
    wrong = synthetic.check(folder, out)
    for line in wrong:
        click.echo(line)
    click.echo(f"{len(wrong)} verdicts are not as expected" if wrong else "every verdict is as expected")
    sys.exit(BELOW if wrong else 0)


@click.command("class-cost")
@click.argument("runs", nargs=-1, required=True, type=FOLDER)
@click.option("--record", type=click.Path(path_type=Path), help="also write the record to this file")
def class_cost(runs, record):
    """Show what the finished RUNS of `class` cost, and whether runs of equal files agree (course staff)."""
    from grader.classroom import records
    from grader.classroom.grading import cost

    try:
        found = cost.measure(runs)
    except cost.CostError as error:
        raise click.UsageError(str(error)) from None
    if record:
        records.write(record, found)
    click.echo(cost.render(found))
