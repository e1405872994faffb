"""A student's own kernel at a small size, program by program and line by line, as a page."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.course import catalog
from grader.course.catalog import Entry
from grader.course.spec import Exercise, lab_word
from grader.site.figures import program_words as words
from grader.site.figures.figure import Figure
from grader.site.figures.page import render
from grader.site.figures.program_life import FIGURE, PHASES
from grader.site.figures.program_steps import of_program
from grader.site.figures.statements import lines, statements
from grader.site.figures.trace import step_of
from grader.system.processes import run_tool

LIMIT_S = 60.0
MOST_LANES = 64  # of a block: beyond it neither a page nor its reader can follow
SIZES = {"n": 10, "rows": 3, "cols": 10, "m": 6, "k": 7}  # as small as shows whole blocks and a tail
BLOCK = 4


class NotShownError(Exception):
    """A call has nothing that a page could show; the message says why and what to do."""


@dataclass(frozen=True)
class Shown:
    """The page of one call, and what the terminal says of it."""

    html: str
    words: tuple[str, ...]


def sizes_of(exercise: Exercise, asked: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of a call: those that were asked for, and small ones for the rest.

    Raises NotShownError for a size that the exercise does not have.
    """
    params = exercise.cases[0].params
    known = [name for name in params if name in SIZES]
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise NotShownError(f"{exercise.name} has no size {unknown[0]}: it has {', '.join(known)}")
    return {name: asked.get(name, SIZES[name]) for name in known}


def show(
    entry: Entry, exercise: Exercise, file: Path, sizes: Mapping[str, int], block: int, blamed: int = 0
) -> Shown:
    """Call a student's function in Triton's interpreter and return the page of its launches.

    The page opens at the first access outside of a tensor, else where the call ended with an error, else at
    the line that is `blamed`. Raises NotShownError if nothing was launched, or too much for a page.
    """
    told = _called(entry, exercise, file, sizes, block)
    source = file.read_text("utf-8")
    size = ", ".join([*(f"{name}={value}" for name, value in sizes.items()), f"BLOCK = {block}"])
    cases = [_case(launch, source, file, size) for launch in told["launches"] if launch["file"] == str(file)]
    cases = [case for case in cases if case["programs"]]
    if told.get("too_long"):
        raise NotShownError(f"{told['too_long']}: choose a smaller one")
    if not cases:
        why = told["error"] or "the call launched no program of a kernel in this file"
        raise NotShownError(f"nothing to show: {why}")
    widest = max(case["block"] for case in cases)
    if widest > MOST_LANES:
        raise NotShownError(
            f"a block has {widest} lanes; a page shows {MOST_LANES}. Take the size of the block from a "
            f"constant with BLOCK in its name, as the skeleton does: it will be {block} here"
        )
    start, why = _start(cases, told["error"], blamed)
    said = tuple(filter(None, (*_of_launches(cases), told["result"], told["error"], why)))
    figure = Figure(
        title=f"{lab_word(entry.folder.name, entry.number).capitalize()}: your {exercise.name}",
        lead=" ".join(said),
        reading=(
            "The lines are those of your file, the addresses and values those of its run in Triton's"
            " interpreter: every load, store and mask was recorded as it happened.",
            "A cell of memory shows a value above its offset in elements; a byte address is the pointer plus"
            " the offset times the bytes of an element.",
            "Dashed lanes are masked off: nothing is read or written there. Where a load names no `other`,"
            " such a lane holds no defined value, shown as ?.",
            "Full red lanes are outside of the tensor. The interpreter leaves them out here; a GPU would read"
            " or write whatever lies there.",
        ),
        compute=dict,
        draw=lambda _: "",
        height_px=FIGURE.height_px,
    )
    data = {"phases": PHASES, "cases": cases, "start": start}
    return Shown(render("program_life", figure, data, ""), said)


def _called(entry: Entry, exercise: Exercise, file: Path, sizes: Mapping[str, int], block: int) -> dict:
    asked = {
        "lab_file": str(entry.lab_file),
        "file": str(file),
        "exercise": exercise.name,
        "params": {**exercise.cases[0].params, **sizes},
        "block": block,
    }
    child = run_tool(
        [sys.executable, "-B", "-m", "grader.site.figures.interpret_call"],
        LIMIT_S,
        given=json.dumps(asked).encode(),
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(catalog.ROOT)},
        cwd=catalog.ROOT,
    )
    if child.code:
        last = child.complaint.strip().splitlines()[-1:] or [f"exit code {child.code}"]
        raise NotShownError(f"the call ended Triton's interpreter: {last[0]}")
    return json.loads(child.output)


def _case(launch: dict, source: str, file: Path, size: str) -> dict:
    known = statements(source, launch["kernel"])
    item_bytes = {one["name"]: one["item_bytes"] for one in launch["buffers"]}
    programs = [
        [step_of(step) for step in program if any(one.first <= step["line"] <= one.last for one in known)]
        for program in launch["programs"]
    ]
    wide = [len(access.offsets) for program in programs for step in program for access in step.accesses]
    held = [
        len(one) for program in programs for step in program for one in step.changed.values()
        if isinstance(one, list)
    ]  # fmt: skip
    block = max([1, *wide, *held])
    return {
        "title": launch["kernel"],
        "size": size,
        "file": file.name,
        "code": [{"number": number, "text": text} for number, text in lines(source, launch["kernel"])],
        "buffers": [_buffer(one, launch["constants"]) for one in launch["buffers"]],
        "block": block,
        "names": _names(launch["places"]),
        "is_owner_shown": False,
        "programs": [of_program(program, known, item_bytes) for program in programs],
    }


def _names(places: Sequence[Sequence[int]]) -> list[str]:
    """Return the programs' ids: one number where the grid has one axis."""
    axes = max((at + 1 for place in places for at, one in enumerate(place) if one), default=1)
    return [str(place[0]) if axes == 1 else f"({', '.join(map(str, place[:axes]))})" for place in places]


def _buffer(told: dict, constants: Mapping[str, int]) -> dict:
    shape, strides = told["shape"], told["strides"]
    rows, cols, stride = 1, len(told["values"]), len(told["values"])
    if len(shape) == 2 and strides[1] == 1 and strides[0] >= shape[1]:
        (rows, cols), stride = shape, strides[0]
    blocks = [value for name, value in constants.items() if "BLOCK" in name and isinstance(value, int)]
    return {
        "name": told["name"],
        "values": [words.shown(one) for one in told["values"]],
        "item_bytes": told["item_bytes"],
        "rows": rows,
        "cols": cols,
        "stride": stride,
        "block": blocks[0] if blocks and 0 < blocks[0] <= MOST_LANES else cols,
    }


def _of_launches(cases: Sequence[dict]) -> list[str]:
    found = []
    for case in cases:
        many = len(case["programs"])
        found.append(f"{case['title']}, {case['size']}: {many} program{'s' * (many > 1)}.")
    return found


def _start(cases: Sequence[dict], error: str, blamed: int) -> tuple[dict, str]:
    """Return where the page opens, and why."""
    for at, case in enumerate(cases):
        for pid, program in enumerate(case["programs"]):
            for number, step in enumerate(program):
                access = next((one for one in step["accesses"] if "outside" in one), None)
                if access:
                    verb = "reads" if access["kind"] == "load" else "writes"
                    where = f"Line {step['lines'][0]}, program {case['names'][pid]}"
                    words_of = f"{where}: {verb} outside of {access['buffer']}."
                    return {"size": at, "pid": pid, "step": number}, words_of
    last = len(cases) - 1
    ended = cases[last]["programs"]
    if error and ended[-1]:
        place = {"size": last, "pid": len(ended) - 1, "step": len(ended[-1]) - 1}
        return place, f"The call ended at line {ended[-1][-1]['lines'][0]}."
    for at, case in enumerate(cases):
        for pid, program in enumerate(case["programs"]):
            for number, step in enumerate(program):
                if step["lines"][0] <= blamed <= step["lines"][1]:
                    return {"size": at, "pid": pid, "step": number}, f"It opens at line {blamed}."
    return {"size": 0, "pid": len(cases[0]["programs"]) - 1, "step": 0}, ""
