"""Upgrade the JSON of an older results.json to the current schema; a test does so for every stored record.

Up to version 2 there was a dictionary `figures`, other modules parsed the words in `where`, and points were
not rounded. Version 1 had no error maps, and no percentages at which speed points begin, pass and are full.
"""

from __future__ import annotations

import re
from typing import Any

JSON = dict[str, Any]  # an object as the json module reads it; used only in this package

CURRENT = 3
BLOCKED = re.compile(r"not looked at until every case of (\w+) is right")
FIRST_WRONG = re.compile(r"(while timed, )?(\w+)\[([\d, ]*)\] {3}yours (.*?) {3}expected (.*)")
ASSURANCE_LEVEL = re.compile(r"L(\d)")
RENAMED = {  # fields of a timing
    "percent": "percent_of_baseline",
    "interval": "interval_percent",
    "zero_at": "zero_at_percent",
    "passing_at": "passing_at_percent",
    "full_at": "full_at_percent",
    "teraflops": "teraflops_per_s",
}
RENAMED_OF_KERNELS = {"shared_limit": "shared_limit_bytes", "load_widths": "load_widths_bytes"}


def upgraded(run: JSON) -> JSON:
    """Return the run in the current schema; anything but a run of an older version is returned unchanged."""
    version = run.get("schema_version")
    if version not in (1, 2):
        return run
    level = ASSURANCE_LEVEL.match(run["assurance"])
    return {
        **run,
        "schema_version": CURRENT,
        "assurance_level": int(level[1]) if level else None,
        "labs": [
            {**lab, "exercises": [_exercise(exercise) for exercise in lab["exercises"]]}
            for lab in run["labs"]
        ],
    }


def _exercise(exercise: JSON) -> JSON:
    return {**exercise, "items": [_item(item) for item in exercise["items"]]}


def _item(item: JSON) -> JSON:
    figures = dict(item.get("figures", {}))
    found = {key: value for key, value in item.items() if key != "figures"}
    found["open_todos"] = figures.pop("todos", [])
    found["kernels"] = [_renamed(kernel, RENAMED_OF_KERNELS) for kernel in figures.pop("kernels", [])]
    if figures:
        found["timing"] = _timing(figures)
    where = item.get("where", "")
    found["needs_gpu"] = item["verdict"] == "NOT_GRADED" and "GPU" in where
    if blocked := BLOCKED.fullmatch(where):
        found["blocked"] = {
            "exercise": blocked[1], "verdict": item["verdict"], "reason": item.get("reason", ""),
        }  # fmt: skip
    if wrong := FIRST_WRONG.fullmatch(where):
        timed, output, index, yours, expected = wrong.groups()
        found["first_wrong"] = {
            "output": output,
            "index": [int(number) for number in index.split(", ") if number],
            "yours": yours,
            "expected": expected,
            "while_timed": timed is not None,
        }
    return found


def _timing(figures: JSON) -> JSON:
    found = _renamed(figures, RENAMED)
    found["rounds"] = [
        {"reference_us": reference, "student_us": student} for reference, student in figures["rounds"]
    ]
    clocks = figures["clocks"]
    sampled = {name: clocks[name] for name in ("sm_mhz", "watts", "celsius")}
    found["clocks"] = clocks | {
        name: dict(zip(("least", "median", "most"), values, strict=True)) if values else None
        for name, values in sampled.items()
    }
    return found


def _renamed(values: JSON, names: dict[str, str]) -> JSON:
    return {names.get(key, key): value for key, value in values.items()}
