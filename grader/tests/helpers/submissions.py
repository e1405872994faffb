"""One run that grades texts as submissions."""

import dataclasses
import shutil
from pathlib import Path

from grader.course import catalog
from grader.course.items import Item, graded_items
from grader.judge.run import Run
from grader.tests.helpers.course import SEED
from grader.worker.session import Session


class Submissions:
    """Grades texts as the student's file of a lab, on the CPU tier, unscreened; one run serves them all."""

    def __init__(self, folder: Path, session: Session):
        self.run = Run(folder, "cpu", SEED, None, screened=False, session=session)
        self.asked: dict[str, Item] = {}  # of the last text, by id
        self._folder, self._count = folder, 0
        self._labs = {entry.number: entry for entry in catalog.find()}

    def grade(self, number: int, text: str | bytes | None, *cases: str, limit_s: float = 20.0):
        """Outcomes by item id for the named cases, `elementwise_add/n=7,fp32`; None is a missing file."""
        entry, exercises = self._labs[number], []
        for exercise in entry.lab.exercises:
            chosen = tuple(
                dataclasses.replace(case, limit_s=limit_s)
                for case in exercise.cases
                if f"{exercise.name}/{case.name}" in cases
            )
            if chosen:
                exercises.append(dataclasses.replace(exercise, cases=chosen, speed=None, codegen=None))
        assert sum(len(exercise.cases) for exercise in exercises) == len(cases) > 0, "a case has another name"
        self._count += 1
        given = entry.given
        lab = dataclasses.replace(entry.lab, exercises=tuple(exercises))
        entry = catalog.Entry(self._folder / f"lab{number}_text{self._count}", number, lab)
        file = entry.submission(self._folder, exercises[0])
        file.parent.mkdir()
        for one in given:
            shutil.copy(one, entry.folder)
        if text is not None:
            file.write_bytes(text.encode() if isinstance(text, str) else text)
        self.asked = {item.id: item for item in graded_items(entry)}
        return {name: self.run.answer(item) for name, item in self.asked.items()}
