"""The course as its tests use it: where it stands, a copy of it, and texts of its solutions."""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SEED = 20240229


def copy_course(target: Path) -> Path:
    """The repository's grader, labs, capstone and solutions in another folder."""
    for name in ("grader", "labs", "gpu-programming", "solutions"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    shutil.copyfile(ROOT / "pyproject.toml", target / "pyproject.toml")
    return target


def solution(number: int) -> str:
    """The text of a lab's solution."""
    (path,) = ROOT.glob(f"solutions/lab{number}_*/*.py")
    return path.read_text("utf-8")


def swap(text: str, *pairs: str) -> str:
    """The text with each `old` replaced by the `new` that follows it; every `old` must stand there."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text, f"the solution no longer holds {old!r}"
        text = text.replace(old, new)
    return text
