"""The options of a graded run, declared once, as fields of RunOptions.

The options of the command line (cli/options.py) and of the pytest plugin, the variables of the Makefile and
the arguments of a child process are derived from them.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from grader.course.tiers import AUTO, DEFAULT_ARCH, TIERS
from grader.grading.selection import is_of_a_case


class Reader(enum.Enum):
    """The program that reads an option of a graded run."""

    COMMAND = "the command `grade` only"
    PYTEST = "pytest, which has this option itself"
    PLUGIN = "the grader's pytest plugin, which creates the run"


@dataclass(frozen=True)
class Declaration:
    """The command-line form of a field of RunOptions."""

    flags: str  # `--tier`, or for a switch that is on by default `--screen/--no-screen`
    help: str
    default: Any = None  # the default of the field
    reader: Reader = Reader.PLUGIN
    read: Callable[[str], Any] = str  # converts text to a value; ValueError with a message for the user
    write: Callable[[Any], str] = str  # converts a value to text
    choices: tuple[str, ...] = ()
    make: str = ""  # the variable of the Makefile
    replayed: bool = True  # false if the value is valid only on one machine or in one process
    listed: bool = True  # whether the help lists it

    @property
    def flag(self) -> str:
        """The option as written on a command line; for a switch, the form that is not the default."""
        return self.flags.rpartition("/")[2]

    def words(self, value: Any) -> list[str]:
        """Return the words of a command line for this value; none for None or a switch that is on."""
        if isinstance(value, bool):
            return [] if value else [self.flag]
        return [] if value is None else [self.flag, self.write(value)]


def arch_of(text: str) -> int:
    """Return the compute capability that `sm_90`, `sm_90a` or `90` names: 90. ValueError for other text."""
    digits = text.lower().removeprefix("sm_").rstrip("af")
    if not digits.isdigit():
        raise ValueError(f"--arch {text}: not a GPU architecture; write it as sm_90")
    return int(digits)


CASE = "--case"  # of pytest: a selection by the sizes of a case


@dataclass(frozen=True)
class RunOptions:
    """The options of one graded run."""

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
        Declaration("--tier", "auto uses the GPU if there is one", choices=(AUTO, *TIERS), make="TIER"),
    ] = AUTO
    seed: Annotated[
        int | None, Declaration("--seed", "seed of the inputs, to repeat a run", read=int, make="SEED")
    ] = None
    keyword: Annotated[
        str,
        Declaration("-k", "only items whose name matches, as in pytest", reader=Reader.PYTEST, make="K"),
    ] = ""
    screened: Annotated[
        bool,
        Declaration(
            "--screen/--no-screen", "before running a file, check it for names that are not permitted"
        ),
    ] = True
    confined: Annotated[
        bool,
        Declaration("--confine/--no-confine", "run each file in a sandbox, without rights it does not need"),
    ] = True
    least: Annotated[
        float | None,
        Declaration(
            "--min", "exit with code 1 below this many points", reader=Reader.COMMAND, read=float, make="MIN"
        ),
    ] = None
    arch: Annotated[
        int,
        Declaration(
            "--arch", "GPU to compile for when generated code is checked", read=arch_of, write="sm_{}".format
        ),
    ] = DEFAULT_ARCH
    hidden: Annotated[
        Path | None,
        Declaration("--hidden", "TOML file with further cases, whose data no report shows", read=Path),
    ] = None
    results: Annotated[
        Path,
        Declaration(
            "--results",
            "folder for the reports",
            make="RESULTS",
            reader=Reader.COMMAND,
            read=Path,
            replayed=False,
        ),
    ] = Path("results")
    tell: Annotated[
        int | None,
        Declaration(
            "--tell",
            "file descriptor to write progress messages to, instead of a progress bar",
            reader=Reader.COMMAND,
            read=int,
            replayed=False,
            listed=False,
        ),
    ] = None

    def arguments(self, always: Collection[str] = ()) -> list[str]:
        """Return the words after `python -m grader` for this run, without options that have their default.

        The fields named in `always` are always written.
        """
        return ["grade", *self._words(DECLARED, always)]

    def pytest_arguments(self) -> list[str]:
        """Return the options that pytest and the plugin read, as words of pytest's command line."""
        read = {name: one for name, one in DECLARED.items() if one.reader is not Reader.COMMAND}
        if is_of_a_case(self.keyword):
            return [*replace(self, keyword="")._words(read), CASE, self.keyword]
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
    """Return the command that repeats a run on any machine.

    It leaves out the folder for the reports and the descriptor for progress messages.
    """
    left_out = {one.flag for one in DECLARED.values() if not one.replayed}
    pairs = zip(arguments, ["", *arguments], strict=False)
    kept = [argument for argument, before in pairs if not left_out & {argument, before}]
    return shlex.join(["python", "-m", "grader", *kept])
