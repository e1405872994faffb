"""What the commands share: exit codes, the command as it was typed, the folder for reports."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

BELOW, USAGE, FAULT, INTERRUPTED = 1, 2, 3, 130  # exit codes, beside 0


def command_of(arguments: list[str]) -> str:
    """What was asked for, to be typed again, without the folder for the reports: a path of one machine."""
    pairs = zip(arguments, ["", *arguments], strict=False)
    kept = [argument for argument, before in pairs if "--results" not in (argument, before)]
    return shlex.join(["python", "-m", "grader", *kept])


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
