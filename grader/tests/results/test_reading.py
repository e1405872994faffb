"""results.json of every version opens, with nothing lost; what is none says so."""

import copy
import hashlib
import io
import json
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from grader.course.spec import Verdict
from grader.report.exports import markdown
from grader.report.page.render import render
from grader.report.terminal import show
from grader.results import points, reading
from grader.results.findings import Blocked, FirstWrong
from grader.results.models import SCHEMA_VERSION, schema
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.result_fakes import a_lab, a_run, a_timing, an_exercise, an_item, record, with_items

FOLDER = ROOT / "solutions" / "results"
VERSION_2 = Path(__file__).with_name("older") / "h200.json"  # labs 2 and 3, as version 2 wrote them


def runs_in(path: Path) -> list[dict]:
    """The runs of a record as its JSON has them; none where it is a record of something else."""
    data = json.loads(path.read_text("utf-8"))
    return [one for one in (data if isinstance(data, list) else [data]) if "labs" in one and "tier" in one]


RECORDS = [path for path in (*sorted(FOLDER.glob("*.json")), VERSION_2) if runs_in(path)]
OLDER = [path for path in RECORDS if runs_in(path)[0]["schema_version"] < 3]


def on_the_terminal(results) -> str:
    text = io.StringIO()
    show(results, Console(file=text, width=200, no_color=True))
    return text.getvalue()


def test_an_undecided_timing_is_shown_with_its_median_and_its_points_are_open():
    run = reading.parse_runs(next(path for path in RECORDS if path.stem == "h200").read_bytes())[0]
    lab = run.labs[0]

    def noisy(item):
        if item.kind != "speed":
            return item
        return item.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "points": 0.0, "undecided": True})

    changed = with_items(run.model_copy(update={"labs": (lab,)}), noisy)
    text, timed = on_the_terminal(changed), [item for item in lab.items if item.timing]
    most = points.text(sum(item.max_points for item in timed))
    count = f"{len(timed)} of {len(timed)}"
    assert f"NOT GRADED  speed, {count}, {most} points: timed twice, too noisy to decide" in text
    assert f"{timed[0].timing.percent_of_baseline:.1f}%" in text
    assert f"{most} of {points.text(lab.max_points)} points need another run, or a decision" in text
    assert "the course staff decides" in render(changed)


def test_records_of_both_older_versions_are_stored():
    assert len(RECORDS) >= 7
    assert {run["schema_version"] for path in RECORDS for run in runs_in(path)} >= {1, 2}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_stored_record_opens_and_reads_the_same_once_it_is_written_again(path):
    before = path.read_bytes()
    runs = reading.parse_runs(before)
    assert len(runs) == len(runs_in(path))
    for run in runs[:3]:
        again = reading.parse(run.model_dump_json())
        assert again == run
        assert (render(again), markdown(again)) == (render(run), markdown(run))
        assert on_the_terminal(again) == on_the_terminal(run)
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_what_a_stored_record_says_is_in_every_report(path):
    old, run = runs_in(path)[0], reading.parse_runs(path.read_bytes())[0]
    page, terminal = render(run), on_the_terminal(run)
    items = [item for lab in old["labs"] for one in lab["exercises"] for item in one["items"]]
    timed = [item["figures"] for item in items if "percent" in item["figures"]]
    kernels = [kernel for item in items for kernel in item["figures"].get("kernels", ())]
    assert timed or kernels
    for figures in timed:
        assert f"{figures['student_us']:>9.1f} us" in terminal
        assert f"{figures['percent']:>8.1f}%" in terminal
        assert f"rounds 1 to {len(figures['rounds'])}; percent of {figures['baseline']}" in page
        assert f"SM clock {figures['clocks']['sm_mhz'][1]:.0f} MHz" in page
    for kernel in kernels:
        assert f"{kernel['registers']} registers" in terminal
        assert kernel["config"] in page


def one_of_each() -> dict:
    """A run of version 2 that holds a timed item, a codegen item, and findings of each kind."""
    run = copy.deepcopy(runs_in(VERSION_2)[0])
    items = [(lab, one, item) for lab in run["labs"] for one in lab["exercises"] for item in one["items"]]
    chosen = [
        next(found for found in items if found[2]["figures"].get("configs")),
        next(found for found in items if found[2]["figures"].get("peers_us")),
        next(found for found in items if found[2]["figures"].get("kernels")),
    ]
    lab, exercise, _ = chosen[0]
    wrong = json.loads(an_item(Verdict.WRONG, max_points=2.0).model_dump_json())
    for name in ("timing", "kernels", "open_todos", "blocked", "first_wrong", "needs_gpu", "undecided"):
        del wrong[name]
    wrong |= {"reason": "MISMATCH", "pattern": "one", "cause": "a cause", "hint": 2, "printed": "words"}
    wrong |= {"where": "out[0, 3]   yours 1.5   expected 2", "tolerance_used": 3.5}
    wrong["frames"] = [{"line": 3, "function": "f", "code": "x = 1"}]
    wrong["figures"] = {"todos": [{"number": 1, "text": "add", "line": 7}]}
    wrong["error_map"] = {
        "version": 1, "output": "out", "shape": [4, 4], "wrong": 1, "first": [0, 3], "box": [0, 0, 3, 3],
        "cells": ["0009", "0000"],
    }  # fmt: skip
    chosen[0][2]["figures"]["clocks"] |= {"reasons": ["sw power cap"], "unread": "power"}
    exercise["items"] = [*(item for _, _, item in chosen), wrong]
    return run | {"labs": [lab | {"exercises": [exercise]}]}


def places(value, path=()):
    """Where each number, text and truth value of a record is; of a list the first element stands for all."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list) and value and path[-1] != "items":
        yield from places(value[0], (*path, 0))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from places(one, (*path, number))
    elif value is not None:
        yield path


OTHER = {"verdict": "CRASHED", "reason": "STALE", "cells": "0001"}


def changed(run: dict, path) -> dict:
    """The run with another value in one place."""
    copied = copy.deepcopy(run)
    at = copied
    for step in path[:-1]:
        at = at[step]
    value = at[path[-1]]
    name = path[-2] if path[-1] == 0 else path[-1]
    at[path[-1]] = (
        OTHER[name] if name in OTHER
        else not value if isinstance(value, bool)
        else f"{value}x" if isinstance(value, str)
        else value + 1
    )  # fmt: skip
    return copied


@pytest.mark.parametrize("version", [1, 2])
def test_no_field_of_an_older_record_is_dropped(version):
    run = one_of_each() | {"schema_version": version}
    written = reading.parse(json.dumps(run)).model_dump_json()
    every = [path for path in places(run) if path != ("schema_version",)]
    assert len(every) > 150
    dropped = [
        path for path in every if reading.parse(json.dumps(changed(run, path))).model_dump_json() == written
    ]
    assert dropped == []


def test_words_that_other_modules_read_become_fields():
    run = one_of_each()
    items = run["labs"][0]["exercises"][0]["items"]
    waits = "not looked at until every case of matmul is right"
    items[1] |= {"verdict": "WRONG", "reason": "STALE", "figures": {}, "where": waits}
    items[2] |= {
        "verdict": "NOT_GRADED",
        "figures": {},
        "where": "needs a GPU: too large for the interpreter",
    }
    results = reading.parse(json.dumps(run | {"assurance": "L1; for L2: no Landlock in this kernel"}))
    timed, blocked, left, wrong = results.items
    assert blocked.blocked == Blocked(exercise="matmul", verdict=Verdict.WRONG, reason="STALE")
    assert blocked.blocked.words == blocked.where == waits
    assert (left.needs_gpu, blocked.needs_gpu, timed.needs_gpu) == (True, False, False)
    assert wrong.first_wrong == FirstWrong(output="out", index=(0, 3), yours="1.5", expected="2")
    assert wrong.first_wrong.words == wrong.where
    assert results.assurance_level == 1
    while_timed = wrong.first_wrong.model_copy(update={"while_timed": True, "index": ()})
    items[3]["where"] = while_timed.words
    assert reading.parse(json.dumps(run)).items[3].first_wrong == while_timed


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_the_hash_of_what_was_measured_is_that_of_the_receipt_of_its_time(path):
    run = runs_in(path)[0]
    measured = {
        f"{lab['folder']}/{item['id']}": item["figures"]
        for lab in run["labs"]
        for exercise in lab["exercises"]
        for item in exercise["items"]
        if item["figures"]
    }
    digest = hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()
    assert reading.measured_sha256(json.dumps(run)) == digest


def test_the_hash_of_what_was_measured_changes_with_any_round():
    item = an_item(timing=a_timing())
    rounds = [one.model_dump() for one in item.timing.rounds]
    rounds[3]["student_us"] = (82.0, 82.000001)
    other = an_item(timing=a_timing(rounds=rounds))
    runs = [a_run(a_lab(an_exercise(one))).model_dump_json() for one in (item, item, other)]
    first, same, changed_one = map(reading.measured_sha256, runs)
    assert first == same != changed_one


# -- what is no run


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "3", "[3]", "{}", "[" * 100_000, b"\xff",
        '{"schema_version": 2}', '{"schema_version": 1, "labs": 3}',
    ],
)  # fmt: skip
def test_what_is_no_run_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        reading.parse(text)


def test_a_run_of_a_newer_grader_is_refused_by_its_version():
    with pytest.raises(reading.NewerSchemaError, match=rf"schema version {SCHEMA_VERSION + 1}; this"):
        reading.parse(json.dumps({"schema_version": SCHEMA_VERSION + 1, "more": 1}))


def test_a_link_is_not_read(tmp_path):
    (tmp_path / "results.json").symlink_to(FOLDER / "cpu.json")
    with pytest.raises(ValueError, match="is a link"):
        reading.read(tmp_path / "results.json")


# -- the published schema


def test_the_schema_is_of_version_3_and_every_object_in_it_is_described():
    published = json.loads(schema())
    assert published["properties"]["schema_version"]["const"] == SCHEMA_VERSION == 3
    objects = [published, *published["$defs"].values()]
    assert len(objects) > 12
    for one in objects:
        assert "enum" in one or one["additionalProperties"] is False, one["title"]
    maps = [
        found
        for one in objects
        for found in one.get("properties", {}).values()
        if found.get("type") == "object"
    ]
    assert {found["title"] for found in maps} == {"Shape", "Peers Us", "Configs", "Constants"}
    assert all(found["additionalProperties"] not in (True, {}) for found in maps)
    assert 'additionalProperties": true' not in schema()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_an_older_record_written_again_holds_to_the_published_schema(path):
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    for run in reading.parse_runs(path.read_bytes())[:2]:
        validator.validate(json.loads(run.model_dump_json()))


def test_a_record_cannot_be_changed_in_place():
    results = record("cpu.json")
    with pytest.raises(ValueError, match="frozen"):
        results.points = 3.0
