"""Options of the command line: those of a graded run, and options set by variables of the Makefile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from grader.course.catalog import LabError
from grader.grading.options import DECLARED, Declaration
from grader.system.exit_codes import FAULT

_TYPES = {str: None, int: int, float: float, Path: click.Path(path_type=Path)}
_TYPED = "grader.typed"


class Option(click.Option):
    """An option that a variable of the Makefile, `make`, can also set."""

    def __init__(self, *declarations: Any, make: str = "", **more: Any):
        super().__init__(*declarations, **more)
        self.make = make

    def words(self, text: str) -> list[str]:
        """Return the option as words of a command line, given the text of its variable.

        Any text sets a flag. For an option with a value of its own, 1 means that value. An option that may be
        repeated is given once for each word of the text.
        """
        flag = self.opts[0]
        if self.is_flag or (isinstance(self.flag_value, str) and text == "1"):
            return [flag]
        return [word for one in (text.split() if self.multiple else [text]) for word in (flag, one)]


def option(*declarations: str, make: str = "", **more: Any) -> Callable:
    """Return `click.option` with the variable of the Makefile that sets it."""
    return click.option(*declarations, cls=Option, make=make, **more)


def run_option(name: str, **changes: Any) -> Callable:
    """Return the option of a field of RunOptions; `changes` replace click's arguments for one command."""
    declared = DECLARED[name]
    has_default = declared.default not in (None, "")
    attributes = {
        "default": declared.write(declared.default) if has_default else declared.default,
        "show_default": has_default,
        "type": click.Choice(declared.choices) if declared.choices else _type(declared),
        "help": declared.help,
        "hidden": not declared.listed,
        "make": declared.make,
    }
    if isinstance(declared.default, bool):
        attributes |= {"default": declared.default, "show_default": False, "type": None}
    attributes |= changes
    if attributes["default"] is None:  # an explicit None counts as a value, so click would never require one
        del attributes["default"]
    return option(declared.flags, name, **attributes)


def run_options(command: Callable) -> Callable:
    """Add every option of a graded run to a command."""
    for name in reversed(DECLARED):
        command = run_option(name)(command)
    return command


class _Read(click.ParamType):
    """A type whose values are parsed by the function of a declaration."""

    name = "text"

    def __init__(self, read: Callable[[str], Any]):
        self._read = read

    def convert(self, value, param, ctx):  # noqa: ARG002 - the signature is click's
        """Return the value; UsageError with the message of the function if it refuses the text."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            raise click.UsageError(str(error), ctx) from None


def _type(declared: Declaration):
    return _TYPES[declared.read] if declared.read in _TYPES else _Read(declared.read)


def _in_one_line(error: click.UsageError) -> str:
    """Return what is wrong with a command; of a missing option also the variable of the Makefile."""
    words = error.format_message()
    missing = error.param if isinstance(error, click.MissingParameter) else None
    return f"{words} With make: {missing.make}=..." if isinstance(missing, Option) and missing.make else words


class Commands(click.Group):
    """Commands that also take options from variables of the Makefile, as `--variable NAME=TEXT`.

    `python -m grader --variable LAB=2 grade` is `python -m grader grade --lab 2`. The text of a variable is
    the value of its option, whatever characters it has. It is an argument and not an environment variable:
    every process of a run would inherit that, and a command could take a value meant for another one.
    """

    def resolve_command(self, ctx, args):
        """Return the command, and its arguments with those from the variables."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            rest = [*rest, *given(command, ctx.params["variables"])]
            ctx.meta[_TYPED] = [name, *rest]
        return name, command, rest

    def invoke(self, ctx):
        """Run the command; if a lab of the course cannot be loaded, print which, and exit.

        Wrong usage is one line, which says what there is to choose from.
        """
        try:
            return super().invoke(ctx)
        except LabError as error:
            click.echo(f"GRADER FAULT  {error}", err=True)
            ctx.exit(FAULT)
        except click.UsageError as error:
            click.echo(_in_one_line(error), err=True)
            ctx.exit(error.exit_code)


def given(command: click.Command, variables: Iterable[str]) -> list[str]:
    """Return variables, `LAB=2`, as options of a command, in order; those of other commands are left out."""
    options = {one.make: one for one in command.params if isinstance(one, Option) and one.make}
    pairs = [one.partition("=") for one in variables]
    return [word for name, _, text in pairs if name in options for word in options[name].words(text)]


def typed() -> list[str]:
    """Return the words after `python -m grader` of the current command, with those from variables."""
    return click.get_current_context().meta[_TYPED]
