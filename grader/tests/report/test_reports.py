"""The reports: valid against their schema, complete, and free of markup that a student wrote."""

import hashlib
import json
import os
import pty
import re
import subprocess
import sys
import xml.etree.ElementTree
from decimal import Decimal
from itertools import pairwise

import jsonschema
import pytest
from markdown_it import MarkdownIt

from grader import __version__
from grader.course import catalog
from grader.course.items import graded_items
from grader.report.terminal import path_of
from grader.results import points, reading
from grader.tests.helpers.commands import grade, plain_environment, python
from grader.tests.helpers.course import ROOT, SEED
from grader.tests.helpers.stable_text import without_times

HOSTILE = (
    "[red]MARK[/red] [/bold] | MARK | `MARK` ``` <b>MARK</b>\n\n# MARK\n\n"
    "| MARK |\n|---|\n- MARK\n\x1b[31mMARK\u2028MARK"
)
ADD = f"""\
import os
import triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x + tl.load(y_ptr + offs, mask=offs < n), mask=offs < n)

def elementwise_add(x, y, *, out=None):
    n = x.numel()
    if n == 7:
        raise ValueError({HOSTILE!r})  # | MARK | <i>MARK</i>
    if n == 129:
        os.write(1, {HOSTILE.encode()!r})
        return out
    if n == 1009:
        os.write(2, b"exit MARK | # MARK" + bytes(range(256)))
        os._exit(0)
    if 0 < n < 10000:
        add_kernel[(1,)](x, y, out, n, BLOCK=triton.next_power_of_2(n))
    return out
"""
REPORTS = ("results.json", "summary.md", "junit.xml")
SUMS = ("points", "graded_points", "not_graded_points", "max_points")


@pytest.fixture(scope="session")
def graded(tmp_path_factory):
    """One run with verdicts of many kinds: lab 1 hostile, lab 2 untouched, every other lab missing."""
    folder = tmp_path_factory.mktemp("graded")
    (folder / "tree" / "lab1_elementwise_add").mkdir(parents=True)
    (folder / "tree" / "lab1_elementwise_add" / "elementwise_add.py").write_text(ADD)
    (folder / "tree" / "lab2_online_softmax").mkdir()
    skeleton = (ROOT / "labs" / "lab2_online_softmax" / "online_softmax.py").read_bytes()
    (folder / "tree" / "lab2_online_softmax" / "online_softmax.py").write_bytes(skeleton)
    done = grade("--from", folder / "tree", "--results", folder, "--no-screen")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


@pytest.fixture(scope="session")
def results(graded):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads((graded[0] / "results.json").read_text("utf-8"), parse_constant=refuse)


@pytest.fixture(scope="session")
def summary(graded) -> str:
    return (graded[0] / "summary.md").read_text("utf-8")


@pytest.fixture(scope="session")
def suite(graded):
    root = xml.etree.ElementTree.parse(graded[0] / "junit.xml").getroot()
    return root if root.tag == "testsuite" else root.find("testsuite")


def exact(points: float) -> Decimal:
    """The number as the file has it."""
    return Decimal(repr(points))


def items_of(results: dict) -> list[dict]:
    return [item for lab in results["labs"] for exercise in lab["exercises"] for item in exercise["items"]]


# -- results.json


def test_results_validate_against_the_printed_schema(results):
    schema = json.loads(python("-m", "grader", "schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(results)
    broken = {**results, "labs": [{**results["labs"][0], "points": "many"}]}
    assert not jsonschema.Draft202012Validator(schema).is_valid(broken)
    assert not jsonschema.Draft202012Validator(schema).is_valid({**results, "extra": 1})


def test_results_read_back_as_the_model_that_wrote_them(graded, results):
    text = (graded[0] / "results.json").read_text("utf-8")
    assert json.loads(reading.parse(text).model_dump_json()) == results


def test_results_hold_every_question_of_every_lab_once(results):
    assert [item["id"] for item in items_of(results)] == [
        q.id for entry in catalog.find() for q in graded_items(entry)
    ]


def test_points_of_items_labs_and_run_agree(results):
    for lab in results["labs"]:
        items = items_of({"labs": [lab]})
        open_items = [item for item in items if item["verdict"] in ("NOT_GRADED", "GRADER_FAULT")]
        for name, field, own in (
            ("points", "points", items),
            ("max_points", "max_points", items),
            ("not_graded_points", "max_points", open_items),
        ):
            total = sum((exact(item[field]) for item in own), Decimal(0))
            assert exact(lab[name]) == total.quantize(Decimal("0.000001")), (lab["folder"], name)
        assert exact(lab["graded_points"]) + exact(lab["not_graded_points"]) == exact(lab["max_points"])
        assert all(item["points"] == 0 for item in items if item["verdict"] != "PASS")
    for field in SUMS:
        assert exact(results[field]) == sum(exact(lab[field]) for lab in results["labs"])


def test_no_points_in_the_file_have_the_noise_of_floating_point(graded, results):
    text = (graded[0] / "results.json").read_text("utf-8")
    decimals = [len(one) for one in re.findall(r'"(?:\w+_)?points": \d+\.(\d+)', text)]
    assert max(decimals) == 9, "no share of a case was met"
    sums = [part[name] for part in (results, *results["labs"]) for name in SUMS]
    assert max(-exact(one).as_tuple().exponent for one in sums) <= 6


def test_the_run_met_the_verdicts_it_was_made_for(results):
    one = {item["name"]: item["verdict"] for item in items_of({"labs": results["labs"][:1]})}
    expected = {
        "n=7,fp32": "CRASHED",
        "n=129,fp32": "WRONG",
        "n=1009,fp32": "CRASHED",
    }
    assert {name: one[name] for name in expected} == expected
    assert (one["n=1,fp32"], one["n=7,bf16"]) == ("PASS", "NOT_GRADED")
    rest = {item["verdict"] for item in items_of({"labs": results["labs"][1:]})}
    assert rest == {"NOT_STARTED"}


@pytest.mark.slow
def test_results_are_kept_where_the_text_of_an_error_is_no_unicode(tmp_path):
    file = tmp_path / "lab1_elementwise_add" / "elementwise_add.py"
    file.parent.mkdir()
    file.write_text('def elementwise_add(x, y, *, out=None):\n    raise ValueError("\\udcff")\n')
    done = grade(
        "--lab",
        1,
        "--from",
        tmp_path,
        "--results",
        tmp_path / "out",
        "-k",
        "correctness and fp16 and 7",
        "--no-screen",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert {
        item["verdict"] for item in items_of(json.loads((tmp_path / "out" / "results.json").read_text()))
    } == {"CRASHED"}


# -- what every report carries


def test_results_carry_machine_versions_hashes_and_seed(graded, results):
    machine = results["machine"]
    assert machine["gpu"] or machine["gpu_missing"]
    assert all(re.match(r"\d+\.\d+", machine[name]) for name in ("torch", "triton", "numpy", "python"))
    assert (results["grader"], results["seed"], results["tier"]) == (__version__, SEED, "cpu")
    assert results["assurance"]
    assert str(SEED) in results["command"]
    for lab in results["labs"]:
        for exercise in lab["exercises"]:
            path = graded[0] / "tree" / lab["folder"] / exercise["file"]
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
            assert exercise["file_sha256"] == digest


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_names_what_a_second_run_needs_to_agree(graded, results, name):
    text = (graded[0] / name).read_text("utf-8")
    machine = results["machine"]
    digests = {e["file_sha256"][:8] for lab in results["labs"] for e in lab["exercises"] if e["file_sha256"]}
    needed = {str(SEED), machine["torch"], machine["triton"], __version__, *digests, results["assurance"][:2]}
    needed.add(machine["gpu"]["name"] if machine["gpu"] else machine["gpu_missing"])
    assert len(digests) == 2
    assert sorted(word for word in needed if word not in text) == []


def test_the_terminal_names_gpu_versions_tier_and_seed(graded, results):
    machine, text = results["machine"], graded[1].stdout
    for words in (
        f"grader {__version__}",
        f"torch {machine['torch']}",
        f"triton {machine['triton']}",
        f"seed {SEED}",
    ):
        assert words in text
    assert "tier cpu" in text
    assert "no GPU" in text or machine["gpu"]


# -- summary.md


def test_the_summary_has_one_row_for_each_exercise_and_kind(summary):
    tokens = MarkdownIt().enable("table").parse(summary)
    rows = [[], []]
    for token, inline in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        if token.type in ("td_open", "th_open"):
            rows[-1].append(inline.content)
    found = [(lab, exercise, kind) for lab, exercise, kind, _, _ in rows[3:]]
    asked = [(str(e.number), q.exercise.name, q.kind) for e in catalog.find() for q in graded_items(e)]
    assert found == list(dict.fromkeys(asked))


def test_text_of_a_student_is_nothing_but_code_in_the_summary(summary):
    tokens = MarkdownIt().enable("table").parse(summary)
    code = [token for token in tokens if token.type == "code_block"]
    assert "".join(token.content for token in code).count("MARK") > 10
    assert [t.type for t in tokens if t.type != "code_block" and "MARK" in t.content] == []
    headings = [inline.content for token, inline in pairwise(tokens) if token.type == "heading_open"]
    assert [heading for heading in headings if "MARK" in heading] == []
    assert len(headings) == 3
    assert headings[1:] == ["Files", "What failed"]


def test_the_summary_says_how_many_points_were_not_graded(summary, results):
    assert results["not_graded_points"] > 0
    assert f"{points.text(results['not_graded_points'])} points not graded" in summary


# -- junit.xml


def test_an_item_that_was_not_graded_is_skipped_and_never_passed(suite, results):
    verdicts = [item["verdict"] for item in items_of(results)]
    cases = suite.findall("testcase")
    assert len(cases) == len(verdicts) == int(suite.get("tests"))
    assert int(suite.get("skipped")) == verdicts.count("NOT_GRADED") > 0
    assert int(suite.get("errors")) == 0
    passed = [case for case in cases if not {child.tag for child in case} & {"skipped", "failure", "error"}]
    assert len(passed) == verdicts.count("PASS") > 0
    assert int(suite.get("failures")) == len(verdicts) - verdicts.count("PASS") - verdicts.count("NOT_GRADED")
    for case in cases:
        verdict = case.find("properties/property[@name='verdict']").get("value")
        assert (case.find("skipped") is not None) == (verdict == "NOT_GRADED")


def test_a_failure_in_junit_holds_the_message_and_no_frame_of_the_grader(suite):
    texts = [failure.text or "" for failure in suite.iter("failure")]
    assert texts
    assert not any("run.py" in text or "Traceback" in text for text in texts)
    assert any("nothing was launched" in text for text in texts)


# -- the terminal


def test_points_that_were_not_graded_are_shown_and_not_counted(graded, results):
    text = graded[1].stdout
    left = points.text(results["not_graded_points"])
    said = re.search(
        rf"^{left} of {points.text(results['max_points'])} points need a GPU: (.*)$", text, re.MULTILINE
    )
    reasons = re.findall(r"([^,()]+) \(([\d.]+)\)", said[1])
    assert [why.strip() for why, _ in reasons] == [
        "bf16 is wrong in the interpreter",
        "speed",
    ]
    assert sum(float(own) for _, own in reasons) == pytest.approx(float(left))
    assert f"{points.text(results['points'])} / {points.text(results['graded_points'])}" in text
    assert "NOT GRADED" not in text


def test_what_the_terminal_prints_for_each_kind_adds_up_to_the_lab_and_the_labs_to_the_total(graded):
    labs, kinds = [], []
    for line in graded[1].stdout.splitlines():
        if found := re.match(
            r"(?:  (?:correctness|generated code|speed) |(lab .*), (?:total |not st)).* ([\d.]+) / ([\d.]+)$",
            line,
        ):
            own = Decimal(found[2]), Decimal(found[3])
            if found[1]:
                assert own == tuple(map(sum, zip(*kinds, strict=True))) or "not started" in line
                labs.append(own)
                kinds = []
            else:
                kinds.append(own)
    earned, of = re.search(r"^total +([\d.]+) / ([\d.]+)$", graded[1].stdout, re.MULTILINE).groups()
    assert len(labs) == len(catalog.find())
    assert tuple(map(sum, zip(*labs, strict=True))) == (Decimal(earned), Decimal(of))


def test_what_the_summary_prints_for_each_kind_adds_up(summary):
    head = re.match(r"## ([\d.]+) of [\d.]+ points\n\n([\d.]+) points not graded", summary)
    rows = re.findall(r"\| ([\d.]+) / ([\d.]+) \|$", summary, re.MULTILINE)
    assert sum(Decimal(earned) for earned, _ in rows) == Decimal(head[1])
    assert sum(Decimal(most) for _, most in rows) == 100 * len(catalog.find())


def test_markup_of_a_student_is_shown_as_it_was_written(graded):
    assert "[red]MARK[/red] [/bold] | MARK | `MARK`" in graded[1].stdout


@pytest.mark.parametrize("name", ["stdout", "summary.md", "junit.xml", "results.json"])
def test_no_report_that_is_piped_or_written_has_a_control_character(graded, name):
    text = graded[1].stdout if name == "stdout" else (graded[0] / name).read_text("utf-8")
    assert sorted({char for char in text if not (char.isprintable() or char in "\n\t")}) == []


def on_a_terminal(*arguments: object, **more: str) -> str:
    """What `python -m grader grade` writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-B", "-m", "grader", "grade", "--tier", "cpu", *map(str, arguments)]
    environment = plain_environment(TERM="xterm-256color", **more)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:  # the other end has closed
            pass
        os.close(ours)
    assert process.returncode == 0
    return b"".join(parts).decode()


COLOUR = re.compile(r"\x1b\[[\d;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])\b[\d;]*m")


def test_no_color_keeps_colour_off_a_terminal_that_would_show_it(tmp_path):
    assert COLOUR.search(on_a_terminal("--lab", "1", "--results", tmp_path))
    assert not COLOUR.search(on_a_terminal("--lab", "1", "--results", tmp_path, NO_COLOR="1"))


def test_no_escape_code_of_a_student_reaches_a_terminal(tmp_path):
    file = tmp_path / "lab1_elementwise_add" / "elementwise_add.py"
    file.parent.mkdir()
    bomb = '"TODO 1: \x1b]0;title\x07\x1b[8m"'
    file.write_text(f"def elementwise_add(x, y, *, out=None):\n    raise NotImplementedError({bomb})\n")
    shown = on_a_terminal("--lab", "1", "--from", tmp_path, "--results", tmp_path / "out")
    assert "TODO 1" in shown
    assert "\x1b]0" not in shown
    assert "\x1b[8m" not in shown


def test_brackets_in_the_name_of_a_folder_are_shown(tmp_path):
    folder = tmp_path / "[red]out[" / "bold]"
    done = grade("--lab", "1", "--results", folder)
    assert done.returncode == 0, done.stderr
    assert f"written: {folder}/results.json" in done.stdout


@pytest.mark.slow
def test_a_second_run_with_the_seed_gives_the_same_verdicts_and_figures(graded, results, tmp_path):
    # A worker that served other cases before has printed more, and a cause is that of all cases of a run.
    own = ("seconds", "printed", "cause", "hint")
    grade(
        "--lab",
        "1",
        "--from",
        graded[0] / "tree",
        "--results",
        tmp_path,
        "-k",
        "correctness and 129",
        "--no-screen",
    )
    again = items_of(json.loads((tmp_path / "results.json").read_text("utf-8")))
    first = {item["id"]: item for item in items_of(results)}
    assert any(item["where"].startswith("out[") for item in again)
    for item in again:
        assert all(item[key] == first[item["id"]][key] for key in item if key not in own)


@pytest.mark.slow
def test_two_runs_of_one_seed_say_the_same_where_a_message_hangs_on_the_order_of_a_set(tmp_path):
    words = [f"BLOCK_{letter}" for letter in "ABCDEFGHIJ"]
    start, rest = ADD.replace("import os\n", "").split("    if n == 7")
    rest = rest[rest.index("    if 0 < n") :]
    text = f"{start}    if n:\n        raise ValueError(' '.join({set(words)!r}))\n{rest}"
    lab = tmp_path / "tree" / "lab1_elementwise_add"
    lab.mkdir(parents=True)
    (lab / "elementwise_add.py").write_text(text)
    told = []
    for name in ("first", "second"):
        options = ["--lab", 1, "--from", tmp_path / "tree", "-k", 129, "--results", tmp_path / name]
        assert grade(*options).returncode == 0
        told.append((tmp_path / name / "results.json").read_text())
    assert all(word in told[0] for word in words)
    assert without_times(told[0]) == without_times(told[1])


@pytest.mark.parametrize("source", ["labs", "solutions", "/somewhere/else", "../else"])
def test_the_file_that_a_report_names_can_be_opened_from_the_checkout(source):
    for entry in (*catalog.find(), *catalog.capstone()):
        for exercise in entry.lab.exercises:
            named = path_of(entry.folder.name, exercise.file, source)
            made = exercise.file.endswith(".json")  # by a command, so it is not there yet
            assert (ROOT / named).parent.is_dir() if made else (ROOT / named).is_file(), named
            assert named.startswith("solutions/") == (source == "solutions")
