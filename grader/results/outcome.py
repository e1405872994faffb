"""The outcome of one case: a verdict, its reason, and the facts that help a student to continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grader.course.items import Item
from grader.course.spec import Reason, Verdict
from grader.course.symptoms import AnySymptom
from grader.results.error_map import ErrorMap
from grader.results.findings import Blocked, FirstWrong, Frame, OpenTodo
from grader.results.kernel_facts import KernelFacts
from grader.results.models import ItemResult
from grader.results.timing import Timing

MAX_FRAMES = 8


@dataclass(frozen=True, eq=False)
class Outcome:
    """A verdict with its reason, and the parts of its message."""

    verdict: Verdict
    reason: Reason = Reason.NONE  # after the slash, as in `WRONG/UNWRITTEN`
    share: float = 0.0  # part of the case's points that was earned, 0 to 1
    where: str = ""  # the first wrong element, or the error's text
    fault: str = ""  # for GRADER_FAULT: what failed, without data of the case
    needs_gpu: bool = False  # for NOT_GRADED: it needs a GPU, or a larger one
    in_the_interpreter: bool = False  # CRASHED by what Triton's interpreter raised; not in results.json
    undecided: bool = False  # for INCONCLUSIVE: a person decides about its points
    blocked: Blocked | None = None
    first_wrong: FirstWrong | None = None
    pattern: str = ""
    cause: str = ""
    plain_cause: str = (
        ""  # seen by the interpreter, and named where no edit mends the file; not in results.json
    )
    symptom: AnySymptom | None = None  # what the cause was taken from; not in results.json
    hint: int | None = None
    frames: tuple[Frame, ...] = ()  # lines of the student's file, innermost call first
    shapes: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # in the first line; not in results.json
    numbers: Mapping[str, int] = field(
        default_factory=dict
    )  # whole ones that the first line names; not in results.json
    open_todos: tuple[OpenTodo, ...] = ()
    printed: str = ""  # output of the student's code, for failures
    used: float | None = None  # share of the tolerance that the worst element used
    timing: Timing | None = None
    kernels: tuple[KernelFacts, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)  # with which it is wrong, and not with others
    right_configs: Mapping[str, str] = field(default_factory=dict)  # with which it is right, if it has those
    launched: Mapping[str, int] = field(default_factory=dict)  # kernels of a right case; not in results.json
    error_map: ErrorMap | None = None  # positions of the wrong elements of a wrong result

    @property
    def label(self) -> str:
        """The verdict, with its reason if it has one: `WRONG/UNWRITTEN`."""
        return self.verdict.value + (f"/{self.reason}" if self.reason else "")


def result_of(item: Item, outcome: Outcome, share: float = 0.0, seconds: float = 0.0) -> ItemResult:
    """Convert an outcome to its form in results.json; `share`, 0 to 1, is the earned part of the points."""
    return ItemResult(
        id=item.id,
        kind=item.kind,
        name=item.name,
        verdict=outcome.verdict,
        reason=outcome.reason,
        points=item.points * share,
        max_points=item.points,
        where=outcome.where,
        needs_gpu=outcome.needs_gpu,
        undecided=outcome.undecided,
        blocked=outcome.blocked,
        first_wrong=outcome.first_wrong,
        pattern=outcome.pattern,
        cause=outcome.cause,
        hint=outcome.hint,
        frames=outcome.frames,
        open_todos=outcome.open_todos,
        printed=outcome.printed,
        tolerance_used=outcome.used,
        timing=outcome.timing,
        kernels=outcome.kernels,
        error_map=outcome.error_map,
        seconds=0.0 if item.case is not None and item.case.label else round(seconds, 3),
    )
