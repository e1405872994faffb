"""Files for other platforms hold to the formats that these publish, and say what results.json says."""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile

import jsonschema
import pytest
from click.testing import CliRunner

from grader.classroom.gradebook import facts, flags
from grader.classroom.platforms import autograder, classroom50, gradescope, jplag, merge
from grader.classroom.platforms.autograder import AutograderError, GpuScores
from grader.cli.main import main
from grader.course import catalog
from grader.course.skeleton import COPIES, render
from grader.course.spec import Reason, Verdict
from grader.report.exports import markdown
from grader.results import points
from grader.results.findings import Frame, OpenTodo
from grader.tests.classroom.class_fakes import LABS, FakeClass, lab_of, record, small_class, wrong
from grader.tests.helpers.commands import grade
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.result_fakes import with_exercises

ONE, TWO = LABS
RECORDS = ("cpu.json", "h200.json", "h200-capstone.json")
RUNNER = {
    "CLASSROOM": "gpu",
    "ASSIGNMENT": "lab2",
    "OWNER": "ada",
    "SUBMISSION_TAG": "submit/2026-10-05T12-00-00Z-a1b2c3d",
    "COMMIT_URL": "https://example.org/c",
    "RELEASE_URL": "https://example.org/r",
}


ANSWERED = """import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # BEGIN TODO 1: all of it (about 5 lines)
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    tl.store(out_ptr + offs, x + y, mask=mask)
    # END TODO 1
"""


def held(converted, name):
    """What is written, held against the format that was written down, formats of strings included."""
    text = converted if isinstance(converted, str) else converted.as_json()
    written = json.loads(text, parse_constant=pytest.fail)
    schema = json.loads((ROOT / "grader" / "tests" / "formats" / name).read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(written, schema)
    return written


def broken():
    """A wrong answer that printed what a terminal would obey."""
    return lab_of(
        record("cpu.json"),
        ONE,
        lambda item: wrong(item).model_copy(update={"printed": "\x1b[31m<b>red</b>\x00"}),
    )


@pytest.mark.parametrize("name", RECORDS)
def test_gradescope_reads_a_stored_run(name):
    results = record(name)
    converted = held(gradescope.convert(results), "gradescope-results.schema.json")
    tests = converted["tests"]
    assert sum(test.get("score", 0) for test in tests) == pytest.approx(results.points, abs=0.01)
    assert sum(test.get("max_score", 0) for test in tests) == pytest.approx(results.graded_points, abs=0.01)
    assert converted["score"] == pytest.approx(results.points, abs=0.01)
    assert len({test["number"] for test in tests}) == len(tests) > 0
    assert all(test["score"] <= test["max_score"] for test in tests if "score" in test)


def test_what_was_not_graded_is_neither_passed_nor_failed_in_gradescope():
    tests = held(gradescope.convert(record("cpu.json")), "gradescope-results.schema.json")["tests"]
    speed = [test for test in tests if ": speed" in test["name"]]
    assert speed
    # Without a status Gradescope takes it from the points, and 0 of 0 is all of them: green.
    assert not [test for test in speed if {"status", "score", "max_score"} & set(test)]
    assert all("NOT GRADED" in test["output"] and "not graded" in test["tags"] for test in speed)


def test_cases_that_wait_do_not_stand_in_a_passed_test_of_gradescope():
    items = lab_of(record("cpu.json"), ONE).labs[0].exercises[0].items
    waiting = next(item.id for item in items if item.kind == "correctness" and item.max_points)

    def waits(item):
        if item.id != waiting:
            return item
        return item.model_copy(update={"verdict": Verdict.NOT_GRADED, "points": 0.0, "where": "needs a GPU"})

    results = lab_of(record("cpu.json"), ONE, waits)
    tests = held(gradescope.convert(results), "gradescope-results.schema.json")["tests"]
    passed = [test for test in tests if test.get("status") == "passed"]
    assert passed
    assert not [
        test for test in passed if "NOT_GRADED" in str(test["extra_data"]) or "NOT GRADED" in str(test)
    ]
    (of_waiting,) = [
        test for test in tests if test["name"] == "elementwise_add: correctness, not graded here"
    ]
    assert not {"status", "score", "max_score"} & set(of_waiting)
    assert sum(test.get("score", 0) for test in tests) == pytest.approx(results.points, abs=0.01)


def test_an_undecided_timing_is_open_on_every_platform_and_named_for_a_person():
    def noisy(item):
        if item.kind != "speed":
            return item
        return item.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "points": 0.0, "undecided": True})

    results = merge.scored(lab_of(record("h200.json"), ONE, noisy))
    assert results.not_graded_points == sum(item.max_points for item in results.items if item.undecided) > 0
    made = held(gradescope.convert(results), "gradescope-results.schema.json")
    (waiting,) = [test for test in made["tests"] if test["name"] == "elementwise_add: speed, not graded here"]
    assert not {"status", "score", "max_score"} & set(waiting)
    assert "the course staff decides" in waiting["output"]
    assert "decision of the course staff" in made["output"]
    assert [one["name"] for one in made["leaderboard"]] == ["points"]
    assert sum(test.get("score", 0) for test in made["tests"]) == pytest.approx(results.points, abs=0.01)
    notes, looks = flags.of_results(results)
    assert any("decide the points" in look and "elementwise_add at " in look for look in looks)
    assert not any("INCONCLUSIVE" in note for note in notes)
    (exercise,) = facts.exercises_of(results, points.score_of(results.items))
    assert exercise.percent is None
    assert exercise.not_graded == pytest.approx(results.not_graded_points)
    text = markdown(results)
    assert "INCONCLUSIVE" in text
    assert f"{points.text(results.not_graded_points)} points not graded" in text


CRASH = "ZeroDivisionError: a message of 1 crash at import"


def crashed():
    """A file that ends while it is imported: every item of each of its exercises has the same message."""

    def crash(item):
        facts = {"verdict": Verdict.CRASHED, "points": 0.0, "where": CRASH, "cause": "", "timing": None}
        frames = (Frame(line=9, function="<module>", code="1 / 0"),)
        return item.model_copy(update={**facts, "reason": Reason.NONE, "frames": frames})

    return lab_of(record("cpu.json"), TWO, crash)


@pytest.mark.parametrize("platform", ["gradescope", "summary", "annotations"])
def test_one_crash_is_told_once(platform, tmp_path):
    (tmp_path / "results.json").write_text(crashed().model_dump_json())
    asked = ["export", "--to", platform, str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    assert len(crashed().labs[0].exercises) > 1
    assert (tmp_path / "out").read_text("utf-8").count(CRASH) == 1


def test_a_failure_in_gradescope_has_the_words_of_the_report_and_nothing_that_a_terminal_obeys():
    converted = held(gradescope.convert(broken()), "gradescope-results.schema.json")
    test = converted["tests"][0]
    assert test["status"] == "failed"
    assert "the last, partial block was never written" in test["output"]
    assert test["output_format"] == "text", "what a student printed must not become markup"
    assert "\x1b" not in test["output"]
    assert len(test["output"]) < gradescope.MOST_OUTPUT + 100


def test_the_leaderboard_in_gradescope_has_the_percentages_of_a_gpu():
    board = gradescope.convert(record("h200.json")).leaderboard
    assert board[0].name == "points"
    matmul = next(one for one in board if one.name.startswith("matmul,"))
    timed = [
        i for lab in record("h200.json").labs for e in lab.exercises if e.name == "matmul" for i in e.items
    ]
    percents = [item.timing.percent_of_baseline for item in timed if item.kind == "speed"]
    assert min(percents) - 0.1 <= matmul.value <= max(percents) + 0.1
    assert len(gradescope.convert(record("cpu.json")).leaderboard) == 1


@pytest.mark.parametrize("name", RECORDS)
def test_classroom50_reads_a_stored_run(name):
    results = record(name)
    converted = held(classroom50.convert(results, RUNNER), "classroom50-result.schema.json")
    tests = converted["tests"]
    assert converted["score"] == sum(test["score"] for test in tests)
    # Whole numbers are all that it takes: they are hundredths of a point, so that 43.75 stays 43.75.
    assert converted["score"] == pytest.approx(results.points * 100, abs=0.51)
    assert converted["max-score"] == pytest.approx(results.graded_points * 100, abs=0.51)
    assert converted["max-score"] == sum(test["max-score"] for test in tests) >= converted["score"]
    assert all(test["score"] <= test["max-score"] for test in tests)


def test_an_exercise_that_nobody_judged_has_not_passed_in_classroom50():
    def unjudged(item):
        return item.model_copy(update={"verdict": Verdict.NOT_GRADED, "points": 0.0})

    converted = classroom50.convert(lab_of(record("cpu.json"), ONE, unjudged), RUNNER)
    assert [(test.passed, test.max_score) for test in converted.tests] == [(False, 0)]


def test_outside_of_classroom50s_runner_the_missing_variables_are_named():
    with pytest.raises(classroom50.IdentityError, match="CLASSROOM, ASSIGNMENT"):
        classroom50.convert(record("cpu.json"), {})


@pytest.mark.parametrize("platform", ["gradescope", "classroom50", "summary", "annotations"])
def test_export_writes_the_file_and_exits_with_0(platform, tmp_path):
    out = tmp_path / "there" / "out"
    source = ROOT / "solutions" / "results" / "cpu.json"
    asked = ["export", "--to", platform, str(source), "--out", str(out)]
    done = CliRunner().invoke(main, asked, env=RUNNER)
    assert done.exit_code == 0
    assert done.output.splitlines()[0] == f"wrote {out}"
    assert bool(out.read_text("utf-8").strip()) == (platform != "annotations"), "every answer is right there"


def test_the_points_to_enter_in_gradescope_are_said(tmp_path):
    source = ROOT / "solutions" / "results" / "cpu.json"
    asked = ["export", "--to", "gradescope", str(source), "--out", str(tmp_path / "out")]
    said = CliRunner().invoke(main, asked).output.splitlines()
    most = points.text(record("cpu.json").max_points)
    assert said[1:] == [f"autograder points to enter in the assignment's settings: {most}"]


def test_export_never_writes_over_the_results_it_reads(tmp_path):
    shutil.copy(ROOT / "solutions" / "results" / "cpu.json", tmp_path / "results.json")
    before = (tmp_path / "results.json").read_bytes()
    asked = ["export", "--to", "gradescope", str(tmp_path), "--out", str(tmp_path / "results.json")]
    assert CliRunner().invoke(main, asked).exit_code == 2
    assert (tmp_path / "results.json").read_bytes() == before


@pytest.mark.slow
def test_make_autograder_says_the_points_to_enter(tmp_path):
    asked = ["autograder", str(tmp_path / "autograder.zip"), "--lab", "1"]
    said = CliRunner().invoke(main, asked).output.splitlines()
    most = points.text(sum(one.lab.points for one in catalog.find() if one.number == 1))
    assert said[1:] == [f"autograder points to enter in the assignment's settings: {most}"]


HOSTILE = "x\n::set-env name=A::b\r\n  ::error::forged\n##[add-path]/tmp\r%0A::add-mask::c"


def annotated(results, tmp_path):
    (tmp_path / "results.json").write_text(results.model_dump_json())
    asked = ["export", "--to", "annotations", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    return (tmp_path / "out").read_bytes().decode().split("\n")[:-1]


def test_a_failure_is_an_annotation_at_its_line(tmp_path):
    line, *others = annotated(crashed(), tmp_path)
    place = f"file=labs/{TWO}/online_softmax.py,line=9,title=CRASHED"
    assert line.startswith(f"::error {place}")
    assert CRASH in line.partition("::error ")[2].partition("::")[2]
    assert others == []


def test_an_open_todo_is_a_notice_at_its_line(tmp_path):
    todos = (OpenTodo(number=1, text="add, 100 %: all", line=31), OpenTodo(number=2, text="launch", line=40))

    def not_started(item):
        return item.model_copy(update={"verdict": Verdict.NOT_STARTED, "points": 0.0, "open_todos": todos})

    path = f"labs/{ONE}/elementwise_add.py"
    assert annotated(lab_of(record("cpu.json"), ONE, not_started), tmp_path) == [
        f"::notice file={path},line=31,title=NOT STARTED::TODO 1: add, 100 %25: all",
        f"::notice file={path},line=40,title=NOT STARTED::TODO 2: launch",
    ]


def test_a_wrong_answer_is_annotated_at_its_function_if_the_file_is_the_graded_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "import triton\n\n\ndef other():\n    pass\n\n\ndef elementwise_add(a, b):\n    pass\n"
    file = tmp_path / "labs" / ONE / "elementwise_add.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    sha = hashlib.sha256(text.encode()).hexdigest()
    for source in ("labs", str(tmp_path / "labs")):
        results = broken().model_copy(update={"source": source})
        same = with_exercises(results, lambda one: one.model_copy(update={"file_sha256": sha}))
        place = f"file=labs/{ONE}/elementwise_add.py,line=8,title=WRONG/UNWRITTEN"
        assert place in annotated(same, tmp_path)[0]
    assert "line=" not in annotated(results, tmp_path)[0], "another file has other lines"


def test_no_text_of_a_submission_is_a_command_of_its_own_in_the_log(tmp_path):
    def hostile(item):
        facts = {
            "verdict": Verdict.CRASHED,
            "points": 0.0,
            "where": HOSTILE,
            "cause": HOSTILE,
            "printed": HOSTILE,
        }
        frames = (Frame(line=3, function=HOSTILE, code=HOSTILE),)
        return item.model_copy(update={**facts, "name": HOSTILE, "frames": frames})

    lines = annotated(lab_of(record("cpu.json"), ONE, hostile), tmp_path)
    assert lines
    for line in lines:
        command, properties, data = re.fullmatch(r"::(error|notice) (.*?)::(.*)", line).groups()
        assert command == "error"
        names = [one.partition("=")[0] for one in properties.split(",")]
        assert names == ["file", "line", "title"]
        assert not set("\r\n") & set(data)
        assert "%0A::add-mask" not in data, "a percent sign of the text is escaped too"


def test_a_gpus_exercise_takes_the_place_of_the_same_file_alone():
    cpu, gpu = lab_of(record("cpu.json"), ONE), lab_of(record("h200.json"), ONE)

    def of_file(sha256):
        same = with_exercises(gpu, lambda one: one.model_copy(update={"file_sha256": sha256}))
        return merge.merged(cpu, merge.keyed(same))

    both = of_file(cpu.labs[0].exercises[0].file_sha256)
    assert (both.points, both.not_graded_points) == (pytest.approx(100.0), 0.0)
    assert of_file("0" * 64).points == pytest.approx(cpu.points)


def test_jplag_gets_a_folder_a_student_and_the_skeletons(tmp_path, monkeypatch):
    out = small_class(tmp_path / "out")
    fake = FakeClass(out)
    for name, text in (("ada", "mine = 1\n"), ("bob", "mine = 2\n")):
        intake = out / "students" / name / "intake.json"
        file = {"path": f"{ONE}/elementwise_add.py", "sha256": "0", "bytes": 9, "found": "x.py"}
        intake.write_text(json.dumps(json.loads(intake.read_text()) | {"files": [file]}))
        path = fake.folder.student(name).files / ONE / "elementwise_add.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    counts = jplag.write(out, tmp_path / "similarity")
    assert counts == {ONE: 2, TWO: 0}
    place = tmp_path / "similarity" / ONE
    assert sorted(p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file()) == [
        "base/elementwise_add.py",
        "submissions/ada/elementwise_add.py",
        "submissions/bob/elementwise_add.py",
    ]
    skeleton = ROOT / COPIES / "labs" / ONE / "elementwise_add.py"
    assert (place / "base" / "elementwise_add.py").read_bytes() == skeleton.read_bytes()
    asked = ["export", "--to", "jplag", str(out), "--out", str(tmp_path / "similarity")]
    assert CliRunner().invoke(main, asked).exit_code == 2, "a folder in use is not written to"
    asked[-1] = str(tmp_path / "again")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = CliRunner().invoke(main, asked).output
    assert f"JPlag is not installed; to compare: jplag -l python3 -bc {tmp_path}/again/{ONE}/base" in said
    assert said.count("to compare") == 1, "nobody can be compared where fewer than two handed in"


def test_jplag_gets_one_folder_for_partners_so_that_they_are_no_similar_pair(tmp_path):
    out = small_class(tmp_path / "out")
    fake = FakeClass(out)
    for name, partners in (("ada", ["cyd"]), ("bob", []), ("cyd", ["ada"])):
        intake = out / "students" / name / "intake.json"
        file = {"path": f"{ONE}/elementwise_add.py", "sha256": "0", "bytes": 9, "found": "x.py"}
        more = {"files": [file], "partners": partners, "graded_with": "ada" if name == "cyd" else ""}
        intake.write_text(json.dumps(json.loads(intake.read_text()) | more))
        path = fake.folder.student(name).files / ONE / "elementwise_add.py"
        path.parent.mkdir(parents=True)
        path.write_text("mine = 1\n")
    assert jplag.write(out, tmp_path / "similarity")[ONE] == 2
    folders = (tmp_path / "similarity" / ONE / "submissions").iterdir()
    assert sorted(path.name for path in folders) == ["ada+cyd", "bob"]


# What JPlag 6.3 writes with --csv-export, as in its CsvComparisonOutput and CLI: <report>/results.csv.
FAKE_JPLAG = """\
#!/bin/sh
echo "$*" > "{folder}/asked"
while [ "$1" != -r ]; do shift; done
[ -e "{folder}/broken" ] && {{ echo "[ERROR] Not enough valid submissions"; exit 1; }}
/bin/mkdir -p "$2"
printf 'submissionName1,submissionName2,averageSimilarity,maxSimilarity\\n' > "$2/results.csv"
printf 'ada,bob,0.71,0.9\\nada,cid,0.69,1.0\\nbob,cid,0.985,1.0\\n' >> "$2/results.csv"
"""


def test_jplag_is_run_where_it_is_installed_and_the_similar_pairs_are_listed(tmp_path, monkeypatch):
    program = tmp_path / "jplag"
    program.write_text(FAKE_JPLAG.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    lab = tmp_path / "lab"
    (lab / "base").mkdir(parents=True)
    assert jplag.compare(lab) == [jplag.Pair("bob", "cid", 98.5), jplag.Pair("ada", "bob", 71.0)]
    asked = (tmp_path / "asked").read_text().split()
    assert asked[-3:] == ["--mode", "RUN", str(lab / "submissions")], "no viewer is started"
    (tmp_path / "broken").touch()
    (lab / "report" / "results.csv").unlink()
    with pytest.raises(jplag.JplagError, match="Not enough valid submissions"):
        jplag.compare(lab)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The zip for lab 1, with GPU scores and a hidden case."""
    folder = tmp_path_factory.mktemp("built")
    fake = FakeClass(folder / "class")
    fake.add("ada", line={"id": "ada"})
    gpu = lab_of(record("h200.json"), ONE)
    fake.grade("ada", ONE, gpu)
    fake.finish(tier="gpu")
    hidden = folder / "hidden.toml"
    hidden.write_text('[[case]]\nexercise = "elementwise_add"\nparams = { n = 517 }\n')
    asked = ["autograder", str(folder / "out.zip"), "--lab", "1", "--hidden", str(hidden)]
    done = CliRunner().invoke(main, [*asked, "--gpu", str(folder / "class")])
    assert done.exit_code == 0, done.output
    assert "GPU scores of 1 exercises" in done.output
    return folder / "out.zip"


@pytest.mark.slow
def test_the_zip_has_both_scripts_at_its_root_and_they_can_be_run(built):
    with zipfile.ZipFile(built) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        assert all(modes[name] & stat.S_IXUSR for name in ("setup.sh", "run_autograder"))
        assert all(archive.read(name).startswith(b"#!") for name in ("setup.sh", "run_autograder"))
    assert stat.S_IMODE(modes["course/hidden.toml"]) == stat.S_IMODE(modes["course/gpu.json"]) == 0o600


@pytest.mark.slow
def test_the_zip_has_no_solution_and_no_test(built):
    with zipfile.ZipFile(built) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert "course/labs/lab1_elementwise_add/lab.py" in contents
    assert not [
        name for name in contents if {"solutions", "tests", "wrong", "variants"} & set(name.split("/"))
    ]
    texts = set(contents.values())
    handed_out = {path.read_bytes() for path in (ROOT / "labs").rglob("*.py")}  # some of it is given
    solutions = [p for p in (ROOT / "solutions").rglob("*.py") if p.read_bytes() not in handed_out]
    assert len(solutions) > 50
    assert not [path for path in solutions if path.read_bytes() in texts]


@pytest.mark.slow
def test_the_zip_has_skeletons_whatever_was_written_in_labs(built):
    """The instructor may have solved a lab in place; the copies of the skeletons go into the zip."""
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
        copies = [name for name in names if name.startswith(f"course/{COPIES.as_posix()}/")]
        for copy in copies:
            given = f"course/{copy.removeprefix(f'course/{COPIES.as_posix()}/')}"
            assert archive.read(given) == archive.read(copy)
    assert len(copies) > 8


@pytest.mark.slow
def test_the_zip_has_no_page_for_course_staff(built):
    with zipfile.ZipFile(built) as archive:
        names = [name.removeprefix("course/") for name in archive.namelist()]
        pages = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".md")}
    assert len(pages) > 5
    assert [
        name
        for name in names
        if re.match(r"grader/(classroom/.*)?[A-Za-z]+\.md|grader/classroom/ci/[^g]", name)
    ] == []
    assert [name for name, text in pages.items() if "STAFF" in text] == []


@pytest.fixture
def checkout(tmp_path):
    """A course of two files and a solution, in which a test can plant an answer."""
    for tree in ("grader/course/skeletons/labs/lab1_x", "labs/lab1_x", "gpu-programming", "solutions/lab1_x"):
        (tmp_path / tree).mkdir(parents=True)
    for name in autograder.FILES:
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "solutions/lab1_x/x.py").write_text(ANSWERED)
    for tree in ("labs", "grader/course/skeletons/labs"):
        (tmp_path / tree / "lab1_x/x.py").write_text(render(ANSWERED))
    return tmp_path


def test_an_answer_in_the_skeletons_place_is_replaced(checkout):
    (checkout / "labs/lab1_x/x.py").write_text(ANSWERED)
    assert autograder.course(checkout)["labs/lab1_x/x.py"].data.decode() == render(ANSWERED)


@pytest.mark.parametrize("renamed", [False, True], ids=["as it is", "with other names"])
def test_a_zip_with_an_answer_is_refused(checkout, renamed):
    text = re.sub(r"\b(offs|mask|x|y|n)\b", r"\1_1", ANSWERED) if renamed else ANSWERED
    (checkout / "labs/lab1_x/notes.txt").write_text(text)
    with pytest.raises(AutograderError, match=r"notes\.txt holds an answer: solutions/lab1_x/x\.py"):
        autograder.course(checkout)


@pytest.mark.slow
def test_the_same_course_gives_the_same_zip(tmp_path):
    for name in ("a.zip", "b.zip"):
        autograder.write(tmp_path / name, catalog.find()[:1])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


@pytest.mark.slow
def test_gpu_scores_in_the_zip_name_nobody(built):
    with zipfile.ZipFile(built) as archive:
        scores = GpuScores.model_validate_json(archive.read("course/gpu.json"))
    assert [key[:2] for key in scores.keyed] == [(ONE, "elementwise_add")]
    assert "ada" not in scores.model_dump_json()


def test_a_class_that_no_gpu_graded_has_no_scores_for_the_zip(tmp_path):
    fake = FakeClass(tmp_path / "class")
    fake.add("ada", line={"id": "ada"})
    fake.grade("ada", ONE, lab_of(record("cpu.json"), ONE))
    fake.finish()
    with pytest.raises(AutograderError, match="on a GPU"):
        autograder.gpu_scores(tmp_path / "class", {ONE})


def run_container(built, root, files):
    """The scripts of the zip in Gradescope's folders, with this Python in place of the container's."""
    with zipfile.ZipFile(built) as archive:
        archive.extractall(root / "source")
    (root / "submission").mkdir()
    for name, data in files.items():
        (root / "submission" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "submission" / name).write_bytes(data)
    environment = os.environ | {"AUTOGRADER_ROOT": str(root), "AUTOGRADER_PYTHON": sys.executable}
    for name in ("GRADER_SCRATCH", "PYTHONPATH"):
        environment.pop(name, None)
    done = subprocess.run(
        ["bash", str(root / "source" / "run_autograder")],
        cwd=root, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    file = root / "results" / "results.json"
    return done, held(file.read_text("utf-8"), "gradescope-results.schema.json") if file.exists() else None


@pytest.mark.slow
def test_a_skeleton_is_graded_as_gradescope_does_it(built, tmp_path):
    data = (ROOT / "labs" / ONE / "elementwise_add.py").read_bytes()
    done, results = run_container(built, tmp_path, {"elementwise_add (1).py": data})
    assert done.returncode == 0, done.stdout + done.stderr
    assert results["score"] == 0
    assert "TODO" in results["tests"][0]["output"]
    assert f"uploaded: elementwise_add (1).py, graded as {ONE}/elementwise_add.py" in results["output"]
    assert "n=517" not in json.dumps(results), "a hidden case is given away"


@pytest.mark.nightly
def test_with_one_warm_parent_at_a_time_the_verdicts_are_the_same(tmp_path):
    asked = ["--lab", "1", "--from", "solutions", "-k", "compiles or 65537"]
    done = grade(*asked, "--results", tmp_path, GRADER_LEAN="1")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    items = results["labs"][0]["exercises"][0]["items"]
    assert [item["verdict"] for item in items] == ["PASS", "PASS", "NOT_GRADED", "PASS"]
    assert results["assurance"][:2] in ("L1", "L2"), "what the ended parent found out is lost"


@pytest.mark.slow
def test_a_submission_that_cannot_be_opened_safely_gets_the_reason_and_no_points(built, tmp_path):
    done, results = run_container(built, tmp_path, {"work.zip": b"PK\5\6 no archive"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert results["score"] == 0
    assert results["tests"][0]["status"] == "failed"
    assert results["tests"][0]["output"]


@pytest.mark.slow
def test_an_upload_that_is_not_graded_is_named(built, tmp_path):
    done, results = run_container(built, tmp_path, {"solution.py": b"x = 1\n"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no uploaded file was graded\nnot graded: solution.py: not a collected file" in results["output"]


@pytest.mark.slow
def test_a_fault_of_the_container_gives_no_zero(built, tmp_path):
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "again")
    asked = tmp_path / "again" / "course" / "autograder.json"
    asked.write_text(json.dumps({"labs": "1", "limit_s": 0.01}))
    shutil.make_archive(str(tmp_path / "slow"), "zip", tmp_path / "again")
    data = (ROOT / "labs" / ONE / "elementwise_add.py").read_bytes()
    done, results = run_container(tmp_path / "slow.zip", tmp_path / "root", {"elementwise_add.py": data})
    assert (done.returncode, results) == (3, None)
    assert "exit code 124" in done.stdout
