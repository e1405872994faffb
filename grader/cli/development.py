"""Commands for course developers: architecture page, picture, coverage, other versions of Triton."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from grader.cli.options import run_option
from grader.course import catalog


@click.command()
def architecture():
    """Write the tables of grader/README.md, the drawing of the rooms and their interfaces (course staff)."""
    try:
        from grader.site.architecture import page
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: `make architecture` installs it") from None
    from grader.site.architecture.way import WayError

    try:
        changed = page.write()
    except WayError as error:
        raise click.ClickException(str(error)) from None
    for path in changed:
        click.echo(f"wrote {path.relative_to(catalog.ROOT)}")
    click.echo(f"{len(changed)} files changed")


@click.command()
def picture():
    """Grade the half-finished labs in the README's picture again, and draw the picture (course staff)."""
    from grader.site import graded_run

    try:
        graded_run.grade_again()
    except (RuntimeError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for path in (graded_run.RECORD, graded_run.write().relative_to(catalog.ROOT)):
        click.echo(f"wrote {path}")


@click.command("record-coverage")
@click.argument("counted", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tests", required=True, help="the selected tests, as pytest's options name them")
def record_coverage(counted, tests):
    """Store the coverage of each room from COUNTED, a file that `coverage json` wrote (course staff)."""
    from grader.site import coverage

    try:
        kept = coverage.save(coverage.record(counted, tests))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {kept.relative_to(catalog.ROOT)}; `make tables` shows it")


@click.command()
@click.argument("versions", nargs=-1)
@run_option("keyword", help="only checks whose name contains this")
def toolchains(versions, keyword):
    """Grade, test and run the notebooks with other VERSIONS of Triton; record what passed (course staff)."""
    from grader.measure import toolchains as measured

    checks = [name for name in measured.CHECKS if (keyword or "") in name]
    if not checks:
        raise click.UsageError(f"no check has {keyword!r} in its name: {', '.join(measured.CHECKS)}")
    try:
        for version, check, record in measured.measure(
            versions or measured.VERSIONS, checks, measured.load()
        ):
            measured.RECORD.write_text(record.model_dump_json(indent=1) + "\n")
            click.echo(f"triton {version}, {check.name}: {check.cell}, {check.seconds:.0f} s")
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {measured.RECORD.relative_to(catalog.ROOT)}; `make tables` shows it")


@click.command("student-loop")
@click.option("--repetitions", type=click.IntRange(1), default=3, show_default=True)
def student_loop(repetitions):
    """Measure what a student waits for in `make grade` and `make watch`, and record it (course staff)."""
    from grader.measure import student_loop as measured

    steps = []
    try:
        for step in measured.measure(repetitions):
            steps.append(step)
            prepared = "prepared" if step.prepared else "cold"
            click.echo(f"lab {step.lab}, {prepared}, {step.name}: {', '.join(map(str, step.seconds))} s")
    except measured.NotShownError as error:
        raise click.ClickException(str(error)) from None
    measured.RECORD.write_text(measured.recorded(steps).model_dump_json(indent=1) + "\n")
    click.echo(f"wrote {measured.RECORD.relative_to(catalog.ROOT)}")
