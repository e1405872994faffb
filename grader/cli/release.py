"""The command that writes the course for students, without answers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from grader.course import catalog
from grader.system.exit_codes import USAGE


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
def release(out):
    """Write the course for students to OUT: an empty folder, or an earlier release (course staff).

    The release is made from the last commit, and refused if any file contains an answer. Files that students
    edit are written only once: an update of an earlier release leaves them alone, so no pull changes them.
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
        click.echo(f"replaced, because it shows an answer: {words}")
    for path in made.kept:
        click.echo(
            f"not changed: {path} was released with an older skeleton. `make reset` brings the new one; "
            "describe in labs/CHANGELOG.md what students change by hand"
        )
    removed = f", {len(made.removed)} removed" if made.removed else ""
    click.echo(
        f"{out}: {len(chosen)} files of commit {commit[:12]}, {made.written} written{removed}; "
        f"no file contains an answer (searched for {len(answers.runs):,} pieces of answers)"
    )
