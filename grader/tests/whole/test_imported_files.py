"""Hand-ins whose files import one another: each folder of imported_files/ gets the verdict of EXPECT.json.

The files that a folder lacks are those of the solution. The cases were written before the rules that judge
them.
"""

import dataclasses
import json
import shutil

import pytest

from grader.course import catalog
from grader.course.items import CORRECTNESS, graded_items
from grader.course.spec import Verdict
from grader.judge.run import Run
from grader.tests.helpers.course import ROOT, SEED
from grader.worker.session import Session

FOLDERS = sorted(ROOT.glob("grader/tests/imported_files/*/"))
CASES = 4  # of the function, those that need no GPU


def test_there_are_hand_ins_of_both_kinds():
    verdicts = [json.loads((folder / "EXPECT.json").read_text())["verdict"] for folder in FOLDERS]
    assert verdicts.count("PASS") >= 9
    assert verdicts.count("POLICY") >= 9


@pytest.fixture(scope="module")
def session():
    session = Session("cpu", SEED)
    yield session
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_hand_in_gets_its_verdict(folder, session, tmp_path):
    expected = json.loads((folder / "EXPECT.json").read_text())
    entry = next(one for one in catalog.find() if one.lab.imports)
    exercise = next(one for one in entry.lab.exercises if one.name == expected["function"])
    chosen = tuple(case for case in exercise.cases if not case.needs_gpu)[:CASES]
    short = dataclasses.replace(exercise, cases=chosen, speed=None, codegen=None)
    asked = dataclasses.replace(entry, lab=dataclasses.replace(entry.lab, exercises=(short,)))
    target = tmp_path / entry.folder.name
    shutil.copytree(folder, target)
    for name in {one.file for one in entry.lab.exercises}:
        if not (target / name).exists():
            shutil.copyfile(ROOT / "solutions" / entry.folder.name / name, target / name)
    run = Run(tmp_path, "cpu", SEED, None, session=session)
    try:
        outcomes = [run.answer(item) for item in graded_items(asked) if item.kind == CORRECTNESS]
    finally:
        run.close()
    outcome = next((one for one in outcomes if one.verdict is not Verdict.PASS), outcomes[-1])
    wanted = expected["verdict"]
    assert outcome.verdict.value in ([wanted] if isinstance(wanted, str) else wanted), outcome.where
