"""Grade specimens and compare their verdicts with their first lines; see grader/course/specimens.py."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.items import graded_items
from grader.course.spec import Case, Verdict
from grader.course.specimens import Specimen
from grader.grading import prepared
from grader.judge.run import Run
from grader.results.outcome import Outcome
from grader.tests.helpers.course import SEED
from grader.worker.session import Session

HAS_BLOCK_POINTERS = tuple(map(int, version("triton").split(".")[:2])) < (3, 9)


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
    """Grades specimens, all in one session: its processes are warm after the first.

    Without a GPU the session is one that was prepared before the run was known, as on a terminal.
    """

    def __init__(self, folder: Path, tier: str, gpu=None, limit_s: float = 60.0):
        self._folder, self._tier, self._gpu, self._limit_s, self._count = folder, tier, gpu, limit_s, 0
        if tier == "cpu":
            prepared.prepare(tier)
        self.session = Session.of_run("cuda" if tier == "gpu" else "cpu", SEED, confined=True)
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
        target = entry.submission(source, exercise)
        self._lay_out(specimen, target)
        for name in entry.lab.imports.get(exercise.file, ()):  # a mistake in one file, the others are right
            if not target.with_name(name).exists():
                shutil.copyfile(catalog.ROOT / "solutions" / entry.folder.name / name, target.with_name(name))
        run = Run(source, self._tier, SEED, self._gpu, screened=screened, session=self.session)
        last = None
        try:
            for item in graded_items(entry):
                if item.exercise.name != function or item.kind != specimen.kind:
                    continue
                outcome = run.answer(item)
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
    if b"make_block_ptr" in specimen.file.read_bytes() and not HAS_BLOCK_POINTERS:
        pytest.skip(f"Triton {version('triton')} has no block pointers")
    wanted = specimen.screened if screened else specimen.unscreened
    for function in specimen.functions:
        outcome = examiner.grade(specimen, function, screened)
        told = f"{function}: {outcome.where} | {outcome.pattern} | {outcome.cause} | {outcome.printed[-500:]}"
        assert outcome.label in wanted, f"{outcome.label}, not {' or '.join(wanted)}: {told}"
        if specimen.hint is not None:
            assert outcome.hint == specimen.hint, f"hint {outcome.hint}, not {specimen.hint}: {told}"
