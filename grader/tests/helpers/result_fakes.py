"""Parts of results that nobody measured, for tests of what is made of them."""

from grader.course import catalog
from grader.course.spec import Verdict
from grader.results import reading, scoring
from grader.results.machine import Machine
from grader.results.models import ExerciseResult, ItemResult, LabResult, Results
from grader.results.timing import Clocks, Timing

SUMS = ("points", "graded_points", "not_graded_points", "max_points")


def a_timing(**changes) -> Timing:
    """A timing of a shape that is half as fast as its baseline."""
    facts = {
        "shape": {"n": 1 << 20},
        "dtype": "fp32",
        "baseline": "torch.add",
        "calls_per_block": 4,
        "student_us": 20.0,
        "reference_us": 10.0,
        "percent_of_baseline": 50.0,
        "interval_percent": (49.0, 51.0),
        "zero_at_percent": 40.0,
        "passing_at_percent": 70.0,
        "full_at_percent": 90.0,
        "overhead_us": 2.0,
        "bytes_moved": 3 << 22,
        "flops": 0,
        "floor_us": 3.0,
        "terabytes_per_s": 0.6,
        "teraflops_per_s": 0.0,
        "peers_us": {},
        "rounds": ({"reference_us": (42.0, 42.0), "student_us": (82.0, 82.0)},) * 11,
        "rounds_dropped": 0,
        "configs": {},
        "clocks": Clocks(sm_mhz=None, watts=None, celsius=None, reasons=(), unread=""),
    }
    return Timing.model_validate({**facts, **changes})


def an_item(verdict=Verdict.PASS, points=0.0, max_points=0.0, **more) -> ItemResult:
    """An item of a correctness case."""
    facts = {"id": "f/correctness/n=7,fp32", "kind": "correctness", "name": "n=7,fp32", "seconds": 0.0}
    return ItemResult.model_validate(
        {**facts, "verdict": verdict, "points": points, "max_points": max_points, **more}
    )


def with_items(results: Results, change) -> Results:
    """The same run with each item as `change` gives it back; its sums are as they were."""
    return with_exercises(
        results, lambda one: one.model_copy(update={"items": tuple(change(item) for item in one.items)})
    )


def with_exercises(results: Results, change) -> Results:
    """The same run with each exercise as `change` gives it back."""
    labs = tuple(
        lab.model_copy(update={"exercises": tuple(change(exercise) for exercise in lab.exercises)})
        for lab in results.labs
    )
    return results.model_copy(update={"labs": labs})


def record(name: str) -> Results:
    """A stored run of the solutions."""
    return reading.read(catalog.ROOT / "solutions" / "results" / name)


def a_run(*labs: LabResult, **changes) -> Results:
    """A run on a CPU with these labs."""
    sums = {name: sum(getattr(lab, name) for lab in labs) for name in SUMS}
    facts = {
        "grader": "0", "date": "2026-01-15T12:00:00+00:00", "seconds": 1.0, "command": "", "tier": "cpu",
        "source": "labs", "seed": 0, "arch": 90, "assurance": "", "labs": labs,
        "machine": Machine(gpu=None, platform="", python="", torch="", triton="", numpy=""),
    }  # fmt: skip
    return Results(**{**facts, **sums, **changes})


def a_lab(*exercises: ExerciseResult, **changes) -> LabResult:
    """A lab with these exercises."""
    items = [item for exercise in exercises for item in exercise.items]
    earned, graded, still_open = scoring.total(items)
    facts = {
        "folder": "lab1_elementwise_add", "number": 1, "title": "elementwise add", "points": earned,
        "graded_points": graded, "not_graded_points": still_open, "exercises": exercises,
        "max_points": sum(item.max_points for item in items),
    }  # fmt: skip
    return LabResult(**{**facts, **changes})


def an_exercise(*items: ItemResult, **changes) -> ExerciseResult:
    """A graded function with these items."""
    facts = {"name": "f", "file": "f.py", "file_sha256": None, "items": items}
    return ExerciseResult(**{**facts, **changes})
