"""Hidden cases: read from a file outside the repository; reports do not show their data.

[[case]]
exercise = "softmax_forward"
params = { rows = 29, cols = 1003 }
dtype = "fp16"
layouts = { x = { pad = 7 } }
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from grader.course import catalog
from grader.course.catalog import Entry
from grader.course.spec import Case, Document, Exercise, Layout
from grader.system.files import read_toml

LABEL = "hidden "  # before the number of a case, counted by exercise
HEAD = re.compile(r"\s*\[\[\s*case\s*\]\]")


class _Layout(BaseModel):
    model_config = ConfigDict(extra="forbid")
    transposed: bool = False
    pad: int = Field(0, ge=0)
    expanded: bool = False
    far: bool = False
    step: int = Field(1, ge=1)
    swapped: bool = False


class _Case(BaseModel):
    model_config = ConfigDict(extra="forbid")
    exercise: str
    params: dict[str, int | float | str | bool]
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    layouts: dict[str, _Layout] = {}
    allocates: bool = False
    gpu_only: bool = False
    bitwise: bool | None = None  # None: true if it is for all of the exercise's other cases
    also_right: tuple[str, ...] = ()
    limit_s: float = Field(60.0, gt=0)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    case: list[_Case] = Field(min_length=1)


class HiddenError(Exception):
    """The file with hidden cases cannot be used; the message names the field."""


def read(path: Path) -> dict[str, list[_Case]]:
    """Read hidden cases, by exercise; HiddenError if the file is not valid."""
    try:
        cases = read_toml(path, _File).case
    except ValueError as error:
        raise HiddenError(str(error)) from None
    found: dict[str, list[_Case]] = {}
    for case in cases:
        found.setdefault(case.exercise, []).append(case)
    return found


def read_known(path: Path) -> dict[str, list[_Case]]:
    """Read hidden cases, by exercise; HiddenError also if the course has no exercise of that name."""
    cases = read(path)
    entries = [*catalog.find(), *catalog.capstone()]
    known = {one.name for entry in entries for one in entry.lab.functions}
    strangers = sorted(set(cases) - known)
    if strangers:
        raise HiddenError(f"{path}: no lab has an exercise {strangers[0]}")
    return cases


def place(path: Path, exercise: str, label: str) -> str:
    """Return where a hidden case stands, as `cases.toml:7: hidden 2 of softmax`."""
    number = int(label.removeprefix(LABEL))
    ordered = [case.exercise for case in read_toml(path, _File).case]
    before = [k for k, name in enumerate(ordered) if name == exercise][number - 1]
    heads = [k for k, line in enumerate(path.read_text("utf-8").splitlines(), 1) if HEAD.match(line)]
    line = f":{heads[before]}" if len(heads) == len(ordered) else ""  # an inline array has no heads
    return f"{path}{line}: {label} of {exercise}"


def add(entry: Entry, cases: Mapping[str, list[_Case]]) -> Entry:
    """Return the lab with hidden cases after its own; all cases of an exercise share its points equally."""
    exercises = tuple(_with(one, cases.get(one.name, [])) for one in entry.lab.exercises)
    return replace(entry, lab=replace(entry.lab, exercises=exercises))


def _with(exercise: Exercise | Document, hidden: list[_Case]) -> Exercise | Document:
    if not hidden or not isinstance(exercise, Exercise):
        return exercise
    alike = all(case.bitwise for case in exercise.cases)
    cases = tuple(
        Case(
            one.params,
            one.dtype,
            {name: Layout(**layout.model_dump()) for name, layout in one.layouts.items()},
            allocates=one.allocates,
            gpu_only=one.gpu_only,
            bitwise=alike if one.bitwise is None else one.bitwise,
            also_right=one.also_right,
            limit_s=one.limit_s,
            label=f"{LABEL}{number}",
        )
        for number, one in enumerate(hidden, 1)
    )
    return replace(exercise, cases=(*exercise.cases, *cases))
