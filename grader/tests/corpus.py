"""Files that must get a known verdict. The first line of each says which; adding one is adding a file.

    EXPECT WRONG/UNWRITTEN from softmax_forward, hint 2: S12 one block, and no loop over the row
    EXPECT POLICY; unscreened WRONG/UNWRITTEN or CRASHED from elementwise_add: A1 frames are forged
    EXPECT SLOW from elementwise_add/speed, hint 5 on a GPU: S57 neighbours lie far apart
    EXPECT PASS from softmax_forward and softmax_backward: one row in two passes

The verdict is that of the first item of the named function that does not pass; where several functions are
named, it holds for each. `unscreened` is the verdict with the static screen switched off. A folder in the
place of
a file is laid out beside the submission as it is; its one `.py` file with such a line is the submission.
A `.cu` file has the line in a comment.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from conftest import SEED

from grader import catalog
from grader.outcome import Outcome
from grader.questions import CODEGEN, CORRECTNESS, SPEED, questions
from grader.run import Run
from grader.session import Session
from grader.spec import Case, Verdict

VERDICT = r"[A-Z_]+(?:/[A-Z_]+)?"
VERDICTS = f"{VERDICT}(?: or {VERDICT})*"
LINE = re.compile(
    rf"EXPECT (?P<screened>{VERDICTS})(?:; unscreened (?P<unscreened>{VERDICTS}))? "
    r"from (?P<functions>\w+(?: and \w+)*)(?:/(?P<kind>speed|code))?(?:, hint (?P<hint>\d+))?"
    r"(?: on a (?P<where>CPU|GPU))?: (?:(?P<row>[A-DFS]\d+) )?(?P<says>\S.*)"
)
KINDS = {None: CORRECTNESS, "speed": SPEED, "code": CODEGEN}


@dataclasses.dataclass(frozen=True)
class Specimen:
    """One file or folder with the verdict it must get."""

    path: Path
    file: Path
    screened: tuple[str, ...]
    unscreened: tuple[str, ...]  # as screened, where line one says nothing else
    functions: tuple[str, ...]
    kind: str
    hint: int | None
    where: str  # CPU or GPU where only one of them shows it, else empty
    row: str
    says: str

    @property
    def name(self) -> str:
        """Unique, and readable in a list of tests."""
        return "/".join(self.path.with_suffix("").parts[-3:])


def first_line(file: Path) -> str:
    """Of the docstring, or the comment that CUDA C++ has in its place."""
    if file.suffix == ".cu":
        return file.read_text("utf-8").partition("\n")[0].removeprefix("// ")
    return (ast.get_docstring(ast.parse(file.read_bytes())) or "").partition("\n")[0]


def read(path: Path) -> Specimen:
    """The specimen at `path`; ValueError where line one is not as it must be."""
    files = [path] if path.is_file() else sorted(path.glob("*.py"))
    for file in files:
        line = first_line(file)
        found = LINE.fullmatch(line)
        if found:
            break
    else:
        raise ValueError(f"{path}: line one does not say which verdict to expect")
    screened = tuple(found["screened"].split(" or "))
    return Specimen(
        path,
        file,
        screened,
        tuple(found["unscreened"].split(" or ")) if found["unscreened"] else screened,
        tuple(found["functions"].split(" and ")),
        KINDS[found["kind"]],
        int(found["hint"]) if found["hint"] else None,
        found["where"] or "",
        found["row"] or "",
        found["says"],
    )


def find(*patterns: str) -> list[Specimen]:
    """All specimens below the repository that match; ValueError where there are none."""
    paths = sorted(path for pattern in patterns for path in catalog.ROOT.glob(pattern))
    kept = [path for path in paths if path.name[0] not in "._"]
    if not kept:
        raise ValueError(f"nothing matches {', '.join(patterns)}: a corpus that is empty shows nothing")
    return [read(path) for path in kept]


def said(outcome: Outcome) -> str:
    """`WRONG/UNWRITTEN`, or the verdict alone where it has no reason."""
    return outcome.verdict.value + (f"/{outcome.reason}" if outcome.reason else "")


def one_dtype_each(cases: Sequence[Case]) -> list[Case]:
    """Of cases that differ in their dtype alone one, in turn another: where time is short, as in the
    interpreter, which runs the same code for all of them.
    """
    alike: dict[str, list[Case]] = {}
    for case in cases:
        alike.setdefault(case.name.removesuffix(case.dtype), []).append(case)
    groups = ([case for case in group if not case.needs_gpu] or group for group in alike.values())
    return [group[number % len(group)] for number, group in enumerate(groups)]


class Examiner:
    """Grades specimens, all in one session: its processes are warm after the first."""

    def __init__(self, folder: Path, tier: str, gpu=None, limit_s: float = 60.0):
        self._folder, self._tier, self._gpu, self._limit_s, self._count = folder, tier, gpu, limit_s, 0
        self.session = Session("cuda" if tier == "gpu" else "cpu", SEED)
        self._entries = [*catalog.find(), *catalog.capstone()]

    def grade(self, specimen: Specimen, function: str, screened: bool = True) -> Outcome:
        """The first outcome of the function that is neither PASS nor NOT_GRADED, or the last PASS."""
        entry, exercise = self._home(specimen, function)
        limit_s = 3.0 if "TIMEOUT" in " ".join(specimen.screened + specimen.unscreened) else self._limit_s
        right = self._tier == "cpu" and specimen.screened == ("PASS",)
        asked = one_dtype_each(exercise.cases) if right else exercise.cases
        cases = tuple(dataclasses.replace(case, limit_s=limit_s) for case in asked)
        exercise = dataclasses.replace(exercise, cases=cases)
        exercises = tuple(exercise if one.name == function else one for one in entry.lab.exercises)
        entry = dataclasses.replace(entry, lab=dataclasses.replace(entry.lab, exercises=exercises))
        self._count += 1
        source = self._folder / str(self._count)
        self._lay_out(specimen, entry.submission(source, exercise))
        run = Run(source, self._tier, SEED, self._gpu, screened=screened, session=self.session)
        last = None
        try:
            for question in questions(entry):
                if question.exercise.name != function or question.kind != specimen.kind:
                    continue
                outcome = run.answer(question)
                if outcome.verdict is Verdict.NOT_GRADED:
                    continue
                last = outcome
                if outcome.verdict is not Verdict.PASS:
                    break
        finally:
            run.close()
        assert last is not None, "nothing of this could be graded on this machine"
        return last

    def _home(self, specimen: Specimen, function: str):
        """The function's exercise: of the lab that the specimen lies with, else of the first that has one."""
        homes = [
            (entry, one) for entry in self._entries for one in entry.lab.exercises if one.name == function
        ]
        assert homes, f"no lab asks for {function}"
        own = [home for home in homes if home[0].folder.name in specimen.path.parts]
        return (own or homes)[0]

    def _lay_out(self, specimen: Specimen, target: Path) -> None:
        if specimen.path.is_dir():
            shutil.copytree(specimen.path, target.parent, symlinks=True)
            (target.parent / specimen.file.name).replace(target)
        else:
            target.parent.mkdir(parents=True)
            shutil.copyfile(specimen.file, target)

    def close(self) -> None:
        """End what the session holds."""
        self.session.close()


def check(examiner: Examiner, specimen: Specimen, screened: bool = True) -> None:
    """Every function that line one names gets its verdict, and the hint where one is named."""
    wanted = specimen.screened if screened else specimen.unscreened
    for function in specimen.functions:
        outcome = examiner.grade(specimen, function, screened)
        told = f"{function}: {outcome.where} | {outcome.pattern} | {outcome.cause} | {outcome.printed[-500:]}"
        assert said(outcome) in wanted, f"{said(outcome)}, not {' or '.join(wanted)}: {told}"
        if specimen.hint is not None:
            assert outcome.hint == specimen.hint, f"hint {outcome.hint}, not {specimen.hint}: {told}"
