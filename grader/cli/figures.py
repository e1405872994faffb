"""The commands that write interactive pages: the course's figures, and a student's own kernel."""

from __future__ import annotations

import hashlib
import sys
import webbrowser
from pathlib import Path

import click

from grader.cli.options import option, run_option
from grader.cli.shared import FOLDER, entries_of, writable
from grader.course.catalog import Entry
from grader.course.spec import Exercise
from grader.results import by_lab
from grader.results.models import ItemResult
from grader.system import files
from grader.system.exit_codes import FAULT, USAGE

PAGE = "show.html"


@click.command()
@option(
    "--screenshots",
    is_flag=True,
    make="SCREENSHOTS",
    help="also take screenshots, light and dark, with Chromium",
)
def figures(screenshots):
    """Write notebooks/figures/: a page and a static picture of each figure, from its data (course staff)."""
    from grader.site.figures import page
    from grader.site.figures.figure import FOLDER, names

    changed = page.write()
    known = names()
    click.echo(f"{len(known)} figures, {', '.join(known)}: {len(changed)} files changed")
    if screenshots:
        from grader.site.figures import screenshots as camera

        try:
            taken = camera.take(known, FOLDER)
        except camera.NoBrowserError as error:
            click.echo(str(error), err=True)
            sys.exit(FAULT)
        click.echo(f"{len(taken)} screenshots in {camera.PICTURES.relative_to(FOLDER)}/")


@click.command()
@run_option("labs", required=True, help="number of the lab")
@run_option("source", type=FOLDER, help="tree with the file")
@run_option("keyword", help="a function of the lab; by default the one that failed last, else the first")
@option("--n", "n", type=click.IntRange(1), make="N", help="size n, where a function has one")
@option("--size", make="SIZE", help="sizes, as in rows=2,cols=7 or m=6,n=10,k=7")
@option("--block", type=click.IntRange(1, 64), default=4, make="BLOCK", help="size of a block  [default: 4]")
@option("--open", "opened", is_flag=True, make="OPEN", help="open the page in a browser")
@run_option("results", help="folder of the page, and of the run that says what failed")
def show(labs, source, keyword, n, size, block, opened, results):
    """Show your own kernel at work: a page that follows each program line by line, at a small size."""
    from grader.measure.bench.run import size_of
    from grader.site.figures import own_kernel
    from grader.student.what_next import line_of

    entry = _one_of(labs)
    run = by_lab.read(results).get(entry.folder.name)
    items = {one.name: one.items for lab in run.labs for one in lab.exercises} if run else {}
    hashes = {one.name: one.file_sha256 for lab in run.labs for one in lab.exercises} if run else {}
    failed = {name: _failure(of_one) for name, of_one in items.items()}
    exercise = _function(entry, keyword.strip(), [name for name, one in failed.items() if one])
    file = entry.submission(Path(source), exercise).resolve()
    try:
        sizes = own_kernel.sizes_of(exercise, (size_of(size) if size else {}) | ({"n": n} if n else {}))
        same = file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == hashes.get(exercise.name)
        last = failed.get(exercise.name) if same else None
        blamed = (line_of(last) if last else None) or 0
        shown = own_kernel.show(entry, exercise, file, sizes, block, blamed)
    except (own_kernel.NotShownError, ValueError, OSError, SyntaxError) as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE)
    page = writable(results) / PAGE
    files.replace(page, shown.html)
    how = "" if opened else "; OPEN=1 opens it in a browser"
    click.echo("\n".join([*shown.words, f"wrote {page}{how}"]))
    if opened and not webbrowser.open(page.resolve().as_uri()):
        click.echo("no browser was found; open the file yourself", err=True)


def _one_of(labs: str) -> Entry:
    entries = entries_of(labs)
    if len(entries) != 1:
        raise click.UsageError(f"--lab {labs}: name one lab")
    return entries[0]


def _function(entry: Entry, word: str, failed: list[str]) -> Exercise:
    """Return the function that `word` names, else the first that failed, else the first."""
    functions = [one for one in entry.lab.functions if not one.differentiable and not one.native]
    meant = [one for one in functions if word in one.name] if word else functions
    exact = [one for one in meant if one.name == word]
    wrong = [one for one in meant if one.name in failed]
    if not meant:
        names = ", ".join(one.name for one in functions)
        raise click.UsageError(f"-k {word} matches no function of the lab; there are {names}")
    return (exact or wrong or meant)[0]


def _failure(items) -> ItemResult | None:
    return next((one for one in items if one.verdict not in by_lab.NO_MISTAKE and one.blocked is None), None)
