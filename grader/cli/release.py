"""The command that writes the course for students, without answers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from grader.cli.options import run_option
from grader.course import catalog
from grader.system.exit_codes import USAGE


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@run_option("labs", help="labs that are out, such as 1,2 or 1,2,capstone; all if not given")
def release(out, labs):
    """Write the course for students to OUT: an empty folder, or an earlier release (course staff).

    The release is made from the last commit, and refused if one of two searches finds an answer in a file.
    Files that students edit are written only once: an update of an earlier release leaves them alone, so no
    pull changes them.
    """
    from grader.classroom.release import build, stages, token_search
    from grader.classroom.release.answers import collect
    from grader.classroom.release.source import ReleaseError, committed

    try:
        commit, tree = committed(catalog.ROOT)
        known = stages.labs_of(tree)
        released = stages.chosen_labs(labs, known) if labs else known
        answers, again = collect(catalog.ROOT), token_search.collect(catalog.ROOT)
        chosen, left, held = build.plan(tree, answers, released, again)
        made = build.write(chosen, out, commit, answers, build.students_files(chosen))
    except (ReleaseError, OSError, ValueError) as error:
        click.echo(f"no release: {error}", err=True)
        sys.exit(USAGE)
    _say_what_is_out(chosen, left, held)
    later = [lab for lab in known if lab not in released]
    click.echo(f"labs in the release: {', '.join(released)}; held back: {', '.join(later) or 'none'}")
    for path in made.kept:
        click.echo(
            f"not changed: {path} was released with an older skeleton. `make reset` brings the new one; "
            "describe in labs/CHANGELOG.md what students change by hand"
        )
    removed = f", {len(made.removed)} removed" if made.removed else ""
    click.echo(
        f"{out}: {len(chosen)} files of commit {commit[:12]}, {made.written} written{removed}; "
        f"no file contains an answer (searched for {len(answers.runs):,} pieces of answers, and again for "
        f"{len(again.words) + len(again.shapes):,} sequences of tokens)"
    )


def _say_what_is_out(chosen, left, held) -> None:
    """Print what was left out or replaced, and the lines of answers that the release shows on purpose."""
    from grader.classroom.release.exemptions import exemptions

    for why, paths in left.items():
        click.echo(f"left out, {len(paths):3} files: {why}")
    for words in held:
        click.echo(f"replaced, because it shows an answer: {words}")
    for one in exemptions():
        shown = [path for path in one.files if path in chosen]
        if shown:
            click.echo(f"exempt from the search in {', '.join(shown)}: {one.reason}\n{one.text}")
