"""Helpers of the commands: the chosen labs, the folder for reports."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from grader.course import catalog
from grader.system.exit_codes import FAULT

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


class Ended(SystemExit):
    """The end of a command that has closed and written all that it holds: the process may end at once."""


def writable(folder: Path) -> Path:
    """Return the folder, created if missing; exit if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_text("x")
        probe.unlink()
    except OSError as error:
        click.echo(
            f"{folder}: cannot be written to ({error.strerror}); choose another folder with --results",
            err=True,
        )
        sys.exit(FAULT)
    return folder


def entries_of(labs: str | None):
    """Return labs by their numbers, "1,3", or all labs for None; UsageError for an unknown number."""
    try:
        entries = catalog.find()
    except FileNotFoundError as error:
        click.echo(f"GRADER FAULT  {error}", err=True)
        sys.exit(FAULT)
    if not labs:
        return entries
    if labs == "capstone":
        try:
            return catalog.capstone()
        except FileNotFoundError as error:
            raise click.UsageError(f"--lab capstone: {error}; it may not be released yet") from None
    # A folder's name, such as lab1_elementwise_add, stands for its lab, too.
    words = [re.fullmatch(r"(?:lab)?(\d+)(?:_\w*)?/?", word) for word in labs.replace(",", " ").split()]
    numbers = {int(word[1]) for word in words if word}
    chosen = [entry for entry in entries if entry.number in numbers]
    if not chosen or len(chosen) != len(labs.replace(",", " ").split()):
        known = ", ".join(str(entry.number) for entry in entries)
        raise click.UsageError(f"--lab {labs}: the labs are {known}, or capstone alone")
    return chosen
