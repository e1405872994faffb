"""What one finished TODO of a lab must give, checked alone while others of its file are still open.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grader.course.spec import Case
from grader.course.submission import Submission
from grader.course.todos import regions_in


@dataclass(frozen=True)
class TodoCheck:
    """A call that shows what one TODO of a kernel, or of a function that it calls, does.

    `code` comes behind the student's file and defines `exercise` anew, as a function that stores numbers into
    `out`. With a `kernel` there is a call for each name that the TODO sets: `shown`, in which NAME stands for
    it, replaces the next placeholder of that kernel. Without, there is one call.
    """

    exercise: str
    number: int
    sizes: str  # of the call, in words
    case: Case  # gives `out` its shape
    code: str
    kernel: str = ""
    shown: str = ""
    lanes: int = 1  # numbers of one program
    expected: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by what it is called
    tiles: tuple[int, int] = (0, 0)  # rows and columns of tiles, of which each has one number
    side: int = 1  # of a tile, in elements


_ADD = """

def elementwise_add(x, y, *, out=None):
    elementwise_add_kernel[(3,)](x, y, out, 10, BLOCK=4)
    return out
"""
_SHOWN = (
    "tl.store(out_ptr + tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK), "
    "tl.cast(NAME, tl.float32) + tl.zeros((BLOCK,), tl.float32))"
)
_PLACES = """

@triton.jit
def _places_of_tiles(out_ptr, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    tile = tl.program_id(axis=0)
    m, n = place(tile, 5 * BLOCK, 6 * BLOCK, BLOCK, BLOCK, GROUP)
    tl.store(out_ptr + 2 * tile, tl.cast(m, tl.float32))
    tl.store(out_ptr + 2 * tile + 1, tl.cast(n, tl.float32))


def matmul(a, b, *, out=None):
    _places_of_tiles[(30,)](out, BLOCK=16, GROUP=3)
    return out
"""
CHECKS = (
    TodoCheck(
        exercise="elementwise_add",
        number=1,
        sizes="n = 10, BLOCK = 4",
        case=Case({"n": 12}, "fp32"),
        code=_ADD,
        kernel="elementwise_add_kernel",
        shown=_SHOWN,
        lanes=4,
        expected={
            "offsets": tuple(map(float, range(12))),
            "mask": tuple(float(at < 10) for at in range(12)),
        },
    ),
    TodoCheck(
        exercise="matmul",
        number=2,
        sizes="5 x 6 tiles of 16 x 16, GROUP_M = 3",
        case=Case({"m": 4, "n": 15, "k": 1}, "fp32"),
        code=_PLACES,
        tiles=(5, 6),
        side=16,
    ),
)


def checks_of(exercise: str, submission: Submission) -> list[TodoCheck]:
    """Return the checks of the finished TODOs of a file that has open ones."""
    left = {todo.number for todo in submission.open_todos}
    done = regions_in(submission.text) - left
    return [one for one in CHECKS if one.exercise == exercise and one.number in done and left]
