"""Commands for other platforms: export a run or a class, build an autograder for Gradescope."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grader.cli.options import option, run_option
from grader.cli.shared import FILE, FOLDER, entries_of
from grader.system.exit_codes import FAULT

if TYPE_CHECKING:
    from grader.results.models import Results

PLATFORMS = {
    "gradescope": "results.json",
    "classroom50": "result.json",
    "summary": "summary.md",
    "annotations": "annotations.txt",
    "jplag": "similarity",
}


@click.command()
@click.argument("source", metavar="RESULTS", type=click.Path(path_type=Path, exists=True))
@click.option("--to", "platform", type=click.Choice([*PLATFORMS]), required=True)
@option(
    "--gpu", type=FILE, make="GPU", help="results.json of the same files graded on a GPU; its points are used"
)
@option(
    "--out",
    type=click.Path(path_type=Path),
    make="OUT",
    help="file to write; by default the platform's usual name in this folder",
)
def export(source, platform, gpu, out):
    """Write RESULTS, a results.json or its folder, in the format of another platform.

    For jplag, RESULTS is the folder of a class run, and --out is a folder.
    """
    out = out or Path(PLATFORMS[platform])
    try:
        if platform == "jplag":
            _similarity(source, out)
            return
        results = _results(source, gpu)
        text = _text(results, platform)
        if out.resolve() in {source.resolve(), (source / "results.json").resolve()}:
            raise click.UsageError(f"--out {out}: this would overwrite the results; name another file")
        from grader.system.files import replace

        out.parent.mkdir(parents=True, exist_ok=True)
        replace(out, text)
    except OSError as error:
        click.echo(f"{out}: cannot be written ({error.strerror or error})", err=True)
        sys.exit(FAULT)
    click.echo(f"wrote {out}")
    if platform == "gradescope":
        click.echo(_to_enter(results.max_points))


def _to_enter(most: float) -> str:
    from grader.results import points

    return f"autograder points to enter in the assignment's settings: {points.text(most)}"


def _results(source: Path, gpu: Path | None) -> Results:
    from grader.classroom.platforms import merge
    from grader.report.page.command import ReportError, read

    try:
        results = read(source)
        return merge.merged(results, merge.keyed(read(gpu))) if gpu else results
    except ReportError as error:
        raise click.UsageError(str(error)) from None


def _text(results: Results, platform: str) -> str:
    from grader.classroom.platforms import annotations, classroom50, gradescope

    if platform == "annotations":
        return annotations.convert(results)
    if platform == "summary":
        from grader.report.exports import markdown

        return markdown(results)
    if platform == "gradescope":
        return gradescope.convert(results).as_json()
    try:
        return classroom50.convert(results, os.environ).as_json()
    except classroom50.IdentityError as error:
        raise click.UsageError(str(error)) from None


def _similarity(source: Path, out: Path) -> None:
    from grader.classroom.platforms import jplag

    try:
        counts = jplag.write(source, out)
    except FileExistsError as error:
        raise click.UsageError(str(error)) from None
    except (FileNotFoundError, NotADirectoryError):
        raise click.UsageError(f"{source}: not the folder of a class run; `make class` writes one") from None
    for unit, count in counts.items():
        click.echo(f"{out}/{unit}: {count} submissions")
        if count > 1:
            _similar_pairs(out / unit)


def _similar_pairs(folder: Path) -> None:
    from grader.classroom.platforms import jplag

    try:
        pairs = jplag.compare(folder)
    except jplag.JplagError as error:
        click.echo(f"  JPlag failed: {error}")
        return
    if pairs is None:
        click.echo(f"  JPlag is not installed; to compare: {shlex.join(jplag.command(folder))}")
        return
    for pair in pairs:
        click.echo(f"  {pair.percent:3.0f} %  {pair.first}  {pair.second}")
    click.echo(
        f"  {len(pairs)} pairs from {jplag.LEAST_PERCENT} % on; all of them: {folder}/{jplag.REPORT}.jplag"
    )


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@run_option("labs", help="numbers of the labs; usually one, for one assignment")
@run_option("hidden", type=FILE, make="HIDDEN")
@option(
    "--gpu",
    type=FOLDER,
    make="GPU",
    help="folder of a class run on a GPU; its scores are used for the same files",
)
def autograder(out, labs, hidden, gpu):
    """Build OUT, the zip of an autograder for Gradescope; it grades what needs no GPU."""
    from grader.classroom.grading import hidden_check
    from grader.classroom.platforms import autograder as building
    from grader.course.hidden_cases import HiddenError

    if labs and "capstone" in labs:
        raise click.UsageError(f"--lab {labs}: the capstone needs a GPU, which Gradescope's containers lack")
    try:
        if hidden:
            unbuilt = hidden_check.unbuilt(hidden)
            if unbuilt:
                raise HiddenError("\n".join(["hidden cases cannot be built", *unbuilt]))
        scored = building.write(out, entries_of(labs), hidden, gpu)
    except (building.AutograderError, HiddenError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        click.echo(f"{out}: cannot be written ({error.strerror})", err=True)
        sys.exit(FAULT)
    more = f", with GPU scores of {scored} exercises" if gpu else ""
    click.echo(f"wrote {out}, {out.stat().st_size / 1e6:.1f} MB{more}")
    click.echo(_to_enter(sum(entry.lab.points for entry in entries_of(labs))))
