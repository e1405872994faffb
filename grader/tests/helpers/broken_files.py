"""Solutions in which one place is broken, from a table, graded as a student's file would be."""

import re
from dataclasses import dataclass
from pathlib import Path

import tomllib

from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, graded_items
from grader.course.spec import Verdict
from grader.judge.run import Run
from grader.results.outcome import Outcome
from grader.tests.helpers.course import ROOT, SEED
from grader.worker.session import Session

TIERS = {"cpu": CORRECTNESS, "codegen": CODEGEN}  # what of a file is graded: interpreted, and compiled
FINE = (Verdict.PASS, Verdict.NOT_GRADED)
TABLE = ROOT / "grader/tests/judge/broken_files.toml"
SOLUTIONS = {  # what is broken, as the table calls it: folder and file
    "lab1": ("lab1_elementwise_add", "elementwise_add.py"),
    "lab2": ("lab2_online_softmax", "online_softmax.py"),
    "lab3": ("lab3_autotuned_matmul", "autotuned_matmul.py"),
    "rms_norm": ("lab4_production_slice", "rms_norm.py"),
    "rms_norm_backward": ("lab4_production_slice", "rms_norm_backward.py"),
    "layer_norm_linear": ("lab4_production_slice", "layer_norm_linear.py"),
    "layer_norm_linear_backward": ("lab4_production_slice", "layer_norm_linear_backward.py"),
    "dropout": ("lab4_production_slice", "dropout.py"),
    "swiglu": ("triton-kernels", "swiglu.py"),
    "vector_add": ("cuda-kernels", "vector_add/02_vectorised.cu"),
    "reduction": ("cuda-kernels", "reduction/05_deterministic.cu"),
    "matmul": ("cuda-kernels", "matmul/01_naive.cu"),
}

_BONUS = re.compile(
    r"^ *# BONUS \d+:.*?# END BONUS \d+\n", re.MULTILINE | re.DOTALL
)  # another path to the result


@dataclass(frozen=True)
class BrokenFile:
    """A solution with a text replaced, its true cause, and patterns that the cause shown must have."""

    of: str
    name: str
    old: str
    new: str
    truth: str
    says: list[str]
    case: str = ""  # the exercise that is graded; the first one of the file otherwise
    and_old: str = ""
    and_new: str = ""

    @property
    def is_native(self) -> bool:
        """Whether it is CUDA C++."""
        return SOLUTIONS[self.of][1].endswith(".cu")


def table() -> list[BrokenFile]:
    """All broken files."""
    return [BrokenFile(**fields) for fields in tomllib.loads(TABLE.read_text("utf-8"))["file"]]


class Grading:
    """Grades broken files without a GPU, with the screen; one session serves them all."""

    def __init__(self, folder: Path):
        self._folder, self._count, self.session = folder, 0, Session("cpu", SEED)
        entries = [*catalog.find(), *catalog.capstone()]
        self._entries = {entry.folder.name: entry for entry in entries}

    def grade(self, broken: BrokenFile) -> dict[str, Outcome]:
        """By tier, the first outcome of its exercise that is an error; a tier that finds none is left out."""
        folder, file = SOLUTIONS[broken.of]
        entry = self._entries[folder]
        mine = [one for one in entry.lab.exercises if one.file == file]
        exercise = next(one for one in mine if broken.case in ("", one.name))
        self._count += 1
        source = self._folder / str(self._count)
        target = entry.submission(source, exercise)
        right = entry.submission(ROOT / "solutions", exercise)
        target.parent.mkdir(parents=True)
        for other in right.parent.iterdir():
            if other.is_file():
                target.with_name(other.name).write_bytes(other.read_bytes())
        for header in (right.parent.parent).glob("*.cuh"):
            (target.parent.parent / header.name).write_bytes(header.read_bytes())
        text = _BONUS.sub("", right.read_text("utf-8"))
        for old, new in ((broken.old, broken.new), (broken.and_old, broken.and_new)):
            assert old in text, f"{broken.name}: the solution has no {old!r}"
            text = text.replace(old, new, 1) if old else text
        target.write_text(text)
        found = {}
        for tier, kind in TIERS.items():
            asked = [one for one in graded_items(entry) if one.exercise is exercise and one.kind == kind]
            run = Run(source, tier, SEED, None, session=self.session)
            try:
                outcomes = map(run.answer, asked)
                found[tier] = next(one for one in outcomes if one.verdict not in FINE)
            except StopIteration:
                pass
            finally:
                run.close()
        assert found, f"{broken.name}: nothing failed"
        return found
