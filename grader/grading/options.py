"""What a graded run can be asked for, declared once: each field of RunOptions says how its option is written.

The options of the command line (cli/options.py) and of the pytest plugin, the variables of the Makefile and
the arguments of a child process are made from it.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from grader.course.tiers import AUTO, DEFAULT_ARCH, TIERS


class Reader(enum.Enum):
    """Who reads an option of a graded run."""

    COMMAND = "the command alone"
    PYTEST = "pytest, whose own option it is"
    PLUGIN = "the grader's plugin for pytest, which makes the run of it"


@dataclass(frozen=True)
class Declaration:
    """How a field of RunOptions is written on a command line."""

    flags: str  # `--tier`; for what is on unless it is switched off `--screen/--no-screen`
    help: str
    default: Any = None  # the field's
    reader: Reader = Reader.PLUGIN
    read: Callable[[str], Any] = str  # a value from its text; ValueError with a message for the user
    write: Callable[[Any], str] = str  # the text of a value
    choices: tuple[str, ...] = ()
    make: str = ""  # its variable of the Makefile
    replayed: bool = True  # false for what holds on one machine or in one process only
    listed: bool = True  # in the help

    @property
    def flag(self) -> str:
        """The option as a command line has it: of a switch the one that changes something."""
        return self.flags.rpartition("/")[2]

    def words(self, value: Any) -> list[str]:
        """The option with this value, as words of a command line; none for a value that is not given."""
        if isinstance(value, bool):
            return [] if value else [self.flag]
        return [] if value is None else [self.flag, self.write(value)]


def arch_of(text: str) -> int:
    """The compute capability that `sm_90`, `sm_90a` or `90` names, 90; ValueError for anything else."""
    digits = text.lower().removeprefix("sm_").rstrip("af")
    if not digits.isdigit():
        raise ValueError(f"--arch {text}: write it as sm_90")
    return int(digits)


@dataclass(frozen=True)
class RunOptions:
    """What one graded run was asked for."""

    labs: Annotated[
        str | None,
        Declaration(
            "--lab",
            "numbers of the labs, as in 2 or 1,3, or capstone; all labs by default",
            reader=Reader.COMMAND,
            make="LAB",
        ),
    ] = None
    source: Annotated[
        str,
        Declaration(
            "--from", "tree to grade: labs, solutions, any folder like them, or reference", make="FROM"
        ),
    ] = "labs"
    tier: Annotated[
        str,
        Declaration("--tier", "auto takes the GPU where there is one", choices=(AUTO, *TIERS), make="TIER"),
    ] = AUTO
    seed: Annotated[
        int | None, Declaration("--seed", "seed of the inputs, for a replay", read=int, make="SEED")
    ] = None
    keyword: Annotated[
        str,
        Declaration("-k", "only items whose name matches, as in pytest", reader=Reader.PYTEST, make="K"),
    ] = ""
    screened: Annotated[
        bool,
        Declaration("--screen/--no-screen", "read each file for what is not permitted before it is run"),
    ] = True
    confined: Annotated[
        bool, Declaration("--confine/--no-confine", "run each file with no rights it does not need")
    ] = True
    least: Annotated[
        float | None,
        Declaration(
            "--min", "exit with 1 below this many points", reader=Reader.COMMAND, read=float, make="MIN"
        ),
    ] = None
    arch: Annotated[
        int,
        Declaration(
            "--arch", "GPU to compile for where code is inspected", read=arch_of, write="sm_{}".format
        ),
    ] = DEFAULT_ARCH
    hidden: Annotated[
        Path | None,
        Declaration("--hidden", "TOML file with further cases, which no report gives away", read=Path),
    ] = None
    results: Annotated[
        Path,
        Declaration("--results", "where the reports go", reader=Reader.COMMAND, read=Path, replayed=False),
    ] = Path("results")
    tell: Annotated[
        int | None,
        Declaration(
            "--tell",
            "descriptor to tell the progress to, in place of a bar",
            reader=Reader.COMMAND,
            read=int,
            replayed=False,
            listed=False,
        ),
    ] = None

    def arguments(self, always: Collection[str] = ()) -> list[str]:
        """The words after `python -m grader` that ask for this run, without options that have their default.

        The fields named in `always` are written whatever they hold.
        """
        return ["grade", *self._words(DECLARED, always)]

    def pytest_arguments(self) -> list[str]:
        """Those of the options that pytest and the plugin read, as words of pytest's command line."""
        read = {name: one for name, one in DECLARED.items() if one.reader is not Reader.COMMAND}
        return self._words(read)

    def _words(self, declared: dict[str, Declaration], always: Collection[str] = ()) -> list[str]:
        given = {name: getattr(self, name) for name in declared}
        said = {name: one for name, one in given.items() if name in always or one != declared[name].default}
        return [word for name, one in said.items() for word in declared[name].words(one)]


def _declared() -> dict[str, Declaration]:
    hints = get_type_hints(RunOptions, include_extras=True)
    return {
        one.name: replace(hints[one.name].__metadata__[0], default=one.default) for one in fields(RunOptions)
    }


DECLARED = _declared()  # by the names of the fields, in their order


def command_of(arguments: list[str]) -> str:
    """What was asked for, to be typed again, without what holds on one machine or in one process only: the
    folder for the reports, the descriptor for the progress.
    """
    left_out = {one.flag for one in DECLARED.values() if not one.replayed}
    pairs = zip(arguments, ["", *arguments], strict=False)
    kept = [argument for argument, before in pairs if not left_out & {argument, before}]
    return shlex.join(["python", "-m", "grader", *kept])
