"""The last result of every watched exercise; they may be from different runs."""

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
    """A watched exercise of a lab, with the tree that its file is in."""

    entry: Entry
    exercise: Exercise | Document
    source: Path

    @property
    def lab(self) -> str:
        """`lab 2`, or the capstone."""
        return lab_word(self.entry.folder.name, self.entry.number)

    @property
    def key(self) -> tuple[str, str]:
        """The names of the lab's folder and the exercise, as in results.json."""
        return self.entry.folder.name, self.exercise.name

    @property
    def file(self) -> Path:
        """The student's file."""
        return self.entry.submission(self.source, self.exercise)


@dataclass(frozen=True)
class Score:
    """A graded exercise, the contents of its files when the run began, and when they were saved, as text."""

    result: ExerciseResult
    held: tuple[str, ...]
    saved: str


class Scores:
    """The last score of each exercise, the contents last tried, and the current contents of the files."""

    def __init__(self, watched: list[Watched]):
        self.watched = watched
        self.scores: dict[tuple[str, str], Score] = {}
        self._tried: dict[tuple[str, str], tuple[str, ...]] = {}
        self._poller = Poller()
        self._sources: dict[tuple[str, str], tuple[Path, ...]] = {}

    def look(self, now: float) -> bool:
        """Read all files and return whether none is being written; `now` is in seconds."""
        if self._poller.look(self._paths(), now) or not self._sources:
            # A changed file may import further files, which then must be read, too.
            found = {one.key: sources_of(one.entry, one.exercise, one.source) for one in self.watched}
            self._sources = found
            self._poller.look(self._paths(), now)
        return self._poller.is_quiet(self._paths(), now)

    def _paths(self) -> set[Path]:
        return {path for paths in self._sources.values() for path in paths}

    def sources(self, one: Watched) -> tuple[Path, ...]:
        """Return all files that an exercise's result depends on, the student's first."""
        return self._sources[one.key]

    def held(self, one: Watched) -> tuple[str, ...]:
        """Return the hashes of these files."""
        return tuple(self._poller.digest(path) for path in self._sources[one.key])

    def stale(self) -> list[Watched]:
        """Return the exercises whose files have changed since they were last tried."""
        return [one for one in self.watched if self._tried.get(one.key) != self.held(one)]

    def is_fresh(self, one: Watched) -> bool:
        """Whether its score is for the current contents of the files."""
        score = self.scores.get(one.key)
        return score is not None and score.held == self.held(one)

    def tried(self, one: Watched, what: tuple[str, ...]) -> None:
        """Record that a run on these contents has ended, or is not worth starting."""
        self._tried[one.key] = what

    def take(self, results: Results, began_with: dict[tuple[str, str], tuple[str, ...]], saved: str) -> None:
        """Store the results of a run that began with these contents.

        Results for other contents are ignored: another run may have written to the same folder.
        """
        for lab in results.labs:
            for exercise in lab.exercises:
                key = (lab.folder, exercise.name)
                if key in began_with and began_with[key][0] == exercise.file_sha256:
                    self.scores[key] = Score(exercise, began_with[key], saved)

    @property
    def total(self) -> Points:
        """The points of all exercises together."""
        return points.score_of([item for score in self.scores.values() for item in score.result.items])

    @property
    def points(self) -> dict[tuple[str, str], Points]:
        """The points of each exercise; they add up to the total."""
        parts = points.split(self.total, [score.result.items for score in self.scores.values()])
        return dict(zip(self.scores, parts, strict=True))

    @property
    def is_complete(self) -> bool:
        """Whether every score is for the current contents of the files."""
        return all(self.is_fresh(one) for one in self.watched if one.key in self.scores)

    def failures(self) -> Iterator[tuple[Watched, Score]]:
        """Yield the exercises with a failure, in their order."""
        for one in self.watched:
            score = self.scores.get(one.key)
            if score and any(item.verdict not in SETTLED for item in score.result.items):
                yield one, score
