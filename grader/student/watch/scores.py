"""The last result of every exercise that is watched, each perhaps of another run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.course.catalog import Entry
from grader.course.spec import Document, Exercise, Verdict, lab_word
from grader.results import points
from grader.results.models import ExerciseResult, Results
from grader.results.points import Score as Points
from grader.student.watch.poll import Poller
from grader.student.watch.sources import sources_of

SETTLED = (Verdict.PASS, Verdict.NOT_GRADED)


@dataclass(frozen=True, eq=False)
class Watched:
    """An exercise of a lab, as it is watched in one tree."""

    entry: Entry
    exercise: Exercise | Document
    source: Path

    @property
    def lab(self) -> str:
        """`lab 2`, or the capstone."""
        return lab_word(self.entry.folder.name, self.entry.number)

    @property
    def key(self) -> tuple[str, str]:
        """How results name it: the lab's folder, and the exercise."""
        return self.entry.folder.name, self.exercise.name

    @property
    def file(self) -> Path:
        """The student's file."""
        return self.entry.submission(self.source, self.exercise)


@dataclass(frozen=True)
class Score:
    """A graded exercise, what its files held when the run began, and when that was saved, as text."""

    result: ExerciseResult
    held: tuple[str, ...]
    saved: str


class Scores:
    """Scores by exercise, what was tried without one, and what stands in the files now."""

    def __init__(self, watched: list[Watched]):
        self.watched = watched
        self.scores: dict[tuple[str, str], Score] = {}
        self._tried: dict[tuple[str, str], tuple[str, ...]] = {}
        self._poller = Poller()
        self._sources: dict[tuple[str, str], tuple[Path, ...]] = {}

    def look(self, now: float) -> bool:
        """Look at all files at this time, in seconds; whether all of them are quiet."""
        if self._poller.look(self._paths(), now) or not self._sources:
            # What a file imports may be new, and then it is looked at, too.
            found = {one.key: sources_of(one.entry, one.exercise, one.source) for one in self.watched}
            self._sources = found
            self._poller.look(self._paths(), now)
        return self._poller.is_quiet(self._paths(), now)

    def _paths(self) -> set[Path]:
        return {path for paths in self._sources.values() for path in paths}

    def sources(self, one: Watched) -> tuple[Path, ...]:
        """All files that decide about an exercise, the student's first."""
        return self._sources[one.key]

    def held(self, one: Watched) -> tuple[str, ...]:
        """What these files hold."""
        return tuple(self._poller.digest(path) for path in self._sources[one.key])

    def stale(self) -> list[Watched]:
        """Exercises whose files hold something else than when they were last graded."""
        return [one for one in self.watched if self._tried.get(one.key) != self.held(one)]

    def is_fresh(self, one: Watched) -> bool:
        """Whether its score is that of the files as they are."""
        score = self.scores.get(one.key)
        return score is not None and score.held == self.held(one)

    def tried(self, one: Watched, what: tuple[str, ...]) -> None:
        """A run over these contents has ended, or can wait for others."""
        self._tried[one.key] = what

    def take(self, results: Results, began_with: dict[tuple[str, str], tuple[str, ...]], saved: str) -> None:
        """Take over what a run graded, which began with these contents; nothing of a run over other files,
        which may have written to the same folder.
        """
        for lab in results.labs:
            for exercise in lab.exercises:
                key = (lab.folder, exercise.name)
                if key in began_with and began_with[key][0] == exercise.file_sha256:
                    self.scores[key] = Score(exercise, began_with[key], saved)

    @property
    def total(self) -> Points:
        """All points."""
        return points.score_of([item for score in self.scores.values() for item in score.result.items])

    @property
    def points(self) -> dict[tuple[str, str], Points]:
        """The points of each exercise, as its part of the total."""
        parts = points.split(self.total, [score.result.items for score in self.scores.values()])
        return dict(zip(self.scores, parts, strict=True))

    @property
    def is_complete(self) -> bool:
        """Whether each score is that of the files as they are."""
        return all(self.is_fresh(one) for one in self.watched if one.key in self.scores)

    def failures(self) -> Iterator[tuple[Watched, Score]]:
        """Exercises with something to mend, in their order."""
        for one in self.watched:
            score = self.scores.get(one.key)
            if score and any(item.verdict not in SETTLED for item in score.result.items):
                yield one, score
