"""The command that makes the tree that students get."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from grader.course import catalog
from grader.system.exit_codes import USAGE


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
def release(out):
    """Write the tree that students get to OUT: an empty folder, or an earlier release (course staff).

    It is made from the last commit, and refused where any file holds an answer. Files that students write are
    written once: in an earlier release they stay as they were handed out, so that no pull changes them.
    """
    from grader.classroom.release import build
    from grader.classroom.release.answers import collect
    from grader.classroom.release.source import ReleaseError, committed

    try:
        commit, tree = committed(catalog.ROOT)
        answers = collect(catalog.ROOT)
        chosen, left, held = build.plan(tree, answers)
        made = build.write(chosen, out, commit, answers, build.students_files(chosen))
    except (ReleaseError, OSError, ValueError) as error:
        click.echo(f"no release: {error}", err=True)
        sys.exit(USAGE)
    for why, paths in left.items():
        click.echo(f"left out, {len(paths):3} files: {why}")
    for words in held:
        click.echo(f"held back: {words}, as it shows an answer")
    for path in made.kept:
        click.echo(
            f"not touched: {path} was handed out with another skeleton. `make reset` brings the new one; "
            "say in labs/CHANGELOG.md what to change by hand"
        )
    removed = f", {len(made.removed)} removed" if made.removed else ""
    click.echo(
        f"{out}: {len(chosen)} files of commit {commit[:12]}, {made.written} written{removed}; "
        f"no answer in any of them ({len(answers.runs):,} pieces of answers looked for)"
    )
