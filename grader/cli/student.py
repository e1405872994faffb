"""Commands around a graded run: watch, hint, reset. Commands that only read files do not import torch."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from grader.cli.options import option, run_option
from grader.cli.shared import FOLDER, entries_of, writable
from grader.course import catalog
from grader.grading.options import RunOptions
from grader.system.exit_codes import FAULT, USAGE

RESULTS = run_option("results", help="where the reports are")


@click.command()
@run_option("labs")
@run_option("source", type=FOLDER, help="tree to watch")
@run_option("tier")
@run_option("keyword")
@RESULTS
def watch(**asked):
    """Grade again what each save changed, and keep the last result on screen, until Ctrl-C."""
    from grader.student.watch.command import watch

    options = RunOptions(**asked | {"source": str(asked["source"])})
    entries = entries_of(options.labs)
    writable(options.results)
    watch(options, entries, Console())


@click.command()
@run_option("labs")
@run_option("keyword", help="a hint's number, or a word in a function, file or case")
@option("--again", is_flag=True, make="AGAIN", help="show only what was already revealed")
@option("--all", "everything", is_flag=True, make="ALL", help="reveal all levels of this hint at once")
@RESULTS
def hint(labs, keyword, again, everything, results):
    """Reveal the next level of the hint that your last failure, or your next TODO, points to."""
    from grader.student.hint import NoHintError, give

    try:
        give(entries_of(labs), labs, keyword.strip(), results, Console(), again=again, everything=everything)
    except NoHintError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE)


@click.command()
@run_option("labs", required=True, help="number of the lab, or capstone")
@run_option(
    "keyword",
    default=None,
    help="the file, or a function in it; needed where the lab has several files",
)
@option(
    "--restore",
    is_flag=False,
    flag_value="",
    make="RESTORE",
    help="bring work back: the newest copy, or the named one",
)
@option("--yes", is_flag=True, make="YES", help="do not ask")
@RESULTS
def reset(labs, keyword, restore, yes, results):
    """Put the skeleton of a file back; what you wrote is kept below results/kept."""
    from grader.student import reset as keep

    file = _student_file(labs, keyword)
    try:
        if restore is not None:
            chosen, copy = keep.restore(file, restore or None, results)
            stood = f"; the file that it replaced: {copy}" if copy else ""
            click.echo(f"{_shown(file.path)} is {chosen} again{stood}")
            return
        before = keep.current(file)
        if before == file.skeleton.read_bytes():
            click.echo(f"{_shown(file.path)} is the untouched skeleton")
            return
        # Without a terminal there is no prompt; the copy makes sure that nothing is lost.
        asks = before is not None and not yes and sys.stdin.isatty()
        if asks and not click.confirm(f"Put the skeleton back in {_shown(file.path)}? A copy is kept"):
            click.echo("nothing was changed")
            return
        copy = keep.reset(file, results)
    except keep.ResetError as error:
        click.echo(str(error), err=True)
        sys.exit(FAULT)
    click.echo(f"{_shown(file.path)} is the skeleton again")
    if copy:
        name = f" K={file.path.stem}" if keyword else ""
        click.echo(f"your work: {copy}\nto get it back: make reset LAB={labs}{name} RESTORE=1")


def _student_file(labs: str, word: str | None):
    """Return the one chosen file; UsageError with all files if none or several match."""
    from grader.student.reset import student_files

    files = student_files(entries_of(labs))
    meant = [file for file in files if word is None or file.matches(word)]
    # A function may be in another file than the one of its name: the file comes first.
    meant = [file for file in meant if word == file.path.stem] or meant
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(dict.fromkeys(file.name for file in files)) or "none"
    if word is None:
        raise click.UsageError(f"lab {labs} has several files; name one with K: {names}")
    if meant:
        raise click.UsageError(f"-k {word} matches several files: {', '.join(file.name for file in meant)}")
    raise click.UsageError(f"-k {word} matches no file of the lab; the files are {names}")


def _shown(path: Path) -> Path:
    return path.relative_to(catalog.ROOT) if path.is_relative_to(catalog.ROOT) else path
