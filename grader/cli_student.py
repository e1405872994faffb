"""The commands around a graded run: watch, hint, reset. Those that only read files import no torch."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from grader import catalog
from grader.cli_shared import FAULT, TIERS, USAGE, entries_of, writable

RESULTS = click.option(
    "--results",
    "folder",
    default="results",
    show_default=True,
    type=click.Path(path_type=Path),
    help="where the reports are",
)


@click.command()
@click.option("--lab", "labs", help="numbers of the labs, as in 2 or 1,3, or capstone; all labs by default")
@click.option(
    "--from",
    "source",
    default="labs",
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="tree to watch",
)
@click.option("--tier", type=TIERS, default="auto", show_default=True, help="as in grade")
@click.option("-k", "keyword", default="", help="only items whose name matches, as in grade")
@RESULTS
def watch(labs, source, tier, keyword, folder):
    """Grade again what a save has changed, and keep the last result on screen, until Ctrl-C."""
    from grader.watch.command import Asked, watch

    watch(Asked(labs, entries_of(labs), source, tier, keyword, writable(folder)), Console())


@click.command()
@click.option("--lab", "labs", help="numbers of the labs, or capstone; all labs by default")
@click.option("-k", "keyword", default="", help="a hint's number, or a word in a function, file or case")
@click.option("--again", is_flag=True, help="show what was revealed already, and nothing more")
@click.option("--all", "everything", is_flag=True, help="reveal all levels of this hint at once")
@RESULTS
def hint(labs, keyword, again, everything, folder):
    """Reveal the next level of the hint that your last failure, or your next TODO, points to."""
    from grader.hint_command import NoHintError, give

    try:
        give(entries_of(labs), labs, keyword.strip(), folder, Console(), again=again, everything=everything)
    except NoHintError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE)


@click.command()
@click.option("--lab", "labs", required=True, help="number of the lab, or capstone")
@click.option("-k", "word", help="the file, or a function in it; needed where the lab has several files")
@click.option(
    "--restore",
    is_flag=False,
    flag_value="",
    help="bring work back: the newest copy, or the one that is named",
)
@click.option("--yes", is_flag=True, help="do not ask")
@RESULTS
def reset(labs, word, restore, yes, folder):
    """Put the skeleton of a file back; what you wrote is kept below results/kept."""
    from grader import keep

    file = _student_file(labs, word)
    try:
        if restore is not None:
            chosen, copy = keep.restore(file, restore or None, folder)
            stood = f"; what stood there: {copy}" if copy else ""
            click.echo(f"{_shown(file.path)} is {chosen} again{stood}")
            return
        before = keep.current(file)
        if before == file.skeleton.read_bytes():
            click.echo(f"{_shown(file.path)} is the untouched skeleton")
            return
        # Without a terminal there is nobody to ask, and nothing is lost.
        asks = before is not None and not yes and sys.stdin.isatty()
        if asks and not click.confirm(f"Put the skeleton back in {_shown(file.path)}? A copy is kept"):
            click.echo("nothing was changed")
            return
        copy = keep.reset(file, folder)
    except keep.KeepError as error:
        click.echo(str(error), err=True)
        sys.exit(FAULT)
    click.echo(f"{_shown(file.path)} is the skeleton again")
    if copy:
        name = f" K={file.path.stem}" if word else ""
        click.echo(f"your work: {copy}\nto get it back: make reset LAB={labs}{name} RESTORE=1")


def _student_file(labs: str, word: str | None):
    """The one file that is meant; wrong usage, with the files there are, where it is none or several."""
    from grader.keep import student_files

    files = student_files(entries_of(labs))
    meant = [file for file in files if word is None or file.matches(word)]
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(dict.fromkeys(file.name for file in files)) or "none"
    if word is None:
        raise click.UsageError(f"lab {labs} has several files, name one with K: {names}")
    if meant:
        raise click.UsageError(f"-k {word} may be any of {', '.join(file.name for file in meant)}")
    raise click.UsageError(f"-k {word}: no file that a student fills in; those are {names}")


def _shown(path: Path) -> Path:
    return path.relative_to(catalog.ROOT) if path.is_relative_to(catalog.ROOT) else path
