"""The model of results.json, one graded run, and its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, Literal

from grader.course.items import CODEGEN
from grader.course.spec import Reason, Verdict
from grader.results.base import ItemPoints, Model, Points
from grader.results.error_map import ErrorMap
from grader.results.findings import Blocked, FirstWrong, Frame, OpenTodo
from grader.results.kernel_facts import KernelFacts
from grader.results.machine import Machine
from grader.results.timing import Timing

SCHEMA_VERSION: Final = 3
MOST_BYTES = 64 << 20  # limit of a results.json; a run in which every case fails is far below


class ItemResult(Model):
    """One case, codegen check or timed shape."""

    id: str
    kind: str
    name: str
    verdict: Verdict
    reason: Reason = Reason.NONE
    points: ItemPoints
    max_points: ItemPoints
    where: str = ""
    needs_gpu: bool = False  # it needs a GPU, or a larger one, to be graded
    undecided: bool = False  # INCONCLUSIVE: a person decides; false in runs that counted the better end
    blocked: Blocked | None = None
    first_wrong: FirstWrong | None = None
    pattern: str = ""
    cause: str = ""
    hint: int | None = None
    frames: tuple[Frame, ...] = ()
    open_todos: tuple[OpenTodo, ...] = ()
    printed: str = ""
    tolerance_used: float | None = None
    timing: Timing | None = None
    kernels: tuple[KernelFacts, ...] = ()
    error_map: ErrorMap | None = None
    seconds: float

    @property
    def label(self) -> str:
        """The verdict, with its reason if it has one: `WRONG/MISMATCH`."""
        return self.verdict.value + (f"/{self.reason}" if self.reason else "")


class ExerciseResult(Model):
    """One graded function or document, with its file and the hash of that file."""

    name: str
    file: str
    file_sha256: str | None
    imports_sha256: str = ""  # hash of the student's other files that it imports; empty without any
    items: tuple[ItemResult, ...]

    @property
    def code_sha256(self) -> str:
        """The hash of all of the student's code that this result is about; empty if there was no file."""
        return "/".join(filter(None, (self.file_sha256, self.imports_sha256))) if self.file_sha256 else ""


class LabResult(Model):
    """One lab: points earned, points graded, and points that this machine could not grade."""

    folder: str
    number: int
    title: str
    points: Points
    graded_points: Points
    not_graded_points: Points
    max_points: Points
    exercises: tuple[ExerciseResult, ...]

    @property
    def items(self) -> list[ItemResult]:
        """All items, in their order."""
        return [item for exercise in self.exercises for item in exercise.items]

    @property
    def was_run(self) -> bool:
        """Whether a case or a document of it was graded, and not only its generated code."""
        return any(item.kind != CODEGEN and item.verdict is not Verdict.NOT_GRADED for item in self.items)

    @property
    def is_begun(self) -> bool:
        """Whether something of it was written and graded."""
        return any(item.verdict not in (Verdict.NOT_STARTED, Verdict.NOT_GRADED) for item in self.items)


# How calls are timed: which of them, how often, against what, and how a percentage follows. To be raised with
# every change that moves a percentage, because those of two protocols cannot be compared.
# 1: the sum of both blocks of a round; an interval that stayed wide counted its upper end.
# 2: blocks behind a gate, without hand-shakes; the faster block of each side; the reference counts at most
# LEEWAY slower than it is alone.
# 3: the ratio of the rounds by Hodges and Lehmann in place of their median.
TIMING_PROTOCOL = 3


class Results(Model):
    """A graded run, from which every other report is made."""

    schema_version: Literal[3] = SCHEMA_VERSION
    grader: str
    date: str
    seconds: float
    command: str
    tier: str
    source: str
    seed: int
    arch: int
    assurance: str
    assurance_level: int | None = None  # 1 for L1; None if nothing was run
    no_gate: str = ""  # why calls on the GPU ran without a gate; "" if they did not
    machine: Machine
    timing_protocol: int = 1  # of the percentages in it
    points: Points
    graded_points: Points
    not_graded_points: Points
    max_points: Points
    labs: tuple[LabResult, ...]

    @property
    def items(self) -> list[ItemResult]:
        """All items, in their order."""
        return [item for lab in self.labs for item in lab.items]

    def every_item(self) -> Iterator[tuple[LabResult, ExerciseResult, ItemResult]]:
        """Yield each item of the run with its lab and its exercise."""
        for lab in self.labs:
            for exercise in lab.exercises:
                for item in exercise.items:
                    yield lab, exercise, item


def schema() -> str:
    """Return the JSON Schema of results.json, as JSON."""
    return json.dumps(Results.model_json_schema(), indent=1)
