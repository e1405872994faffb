"""What the commands share: the labs meant, the folder for reports."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from grader.course import catalog
from grader.system.exit_codes import FAULT

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


def writable(folder: Path) -> Path:
    """The folder, made where it is missing; ends the command where nothing can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_text("x")
        probe.unlink()
    except OSError as error:
        click.echo(
            f"{folder}: cannot be written to ({error.strerror}); --results names another folder", err=True
        )
        sys.exit(FAULT)
    return folder


def entries_of(labs: str | None):
    """Labs by their numbers, "1,3"; all of them for None. Wrong numbers end the command with a list of right
    ones.
    """
    try:
        entries = catalog.find()
    except (ValueError, FileNotFoundError) as error:
        click.echo(f"GRADER FAULT  {error}", err=True)
        sys.exit(FAULT)
    if not labs:
        return entries
    if labs == "capstone":
        return catalog.capstone()
    numbers = {int(word) for word in labs.replace(",", " ").split() if word.isdigit()}
    chosen = [entry for entry in entries if entry.number in numbers]
    if not chosen or len(chosen) != len(labs.replace(",", " ").split()):
        known = ", ".join(str(entry.number) for entry in entries)
        raise click.UsageError(f"--lab {labs}: the labs are {known}, or capstone alone")
    return chosen
