"""Every lab of the course, and one made on the spot: skeleton, solution, hints, pytest on a lab's folder."""

import ast
import re
import time
from pathlib import Path

import pytest

from grader.course import catalog
from grader.course.items import CODEGEN, CORRECTNESS, graded_items
from grader.course.skeleton import render
from grader.course.spec import Verdict
from grader.course.submission import Submission
from grader.screen.policy import screen
from grader.tests.helpers.commands import grade, python
from grader.tests.helpers.course import ROOT, copy_course
from grader.tests.helpers.placeholders import PLACEHOLDER
from grader.tests.helpers.results_json import items_of, read_results

LABS = catalog.find()
FILES = sorted({(entry.folder.name, exercise.file) for entry in LABS for exercise in entry.lab.exercises})
MARK = re.compile(r"\s*# (BEGIN|END) TODO \d+")


def by_folder(entry) -> str:
    return entry.folder.name


def placeholders(text: str) -> dict[int, tuple[int, str]]:
    """Number of each open TODO to its first line and its text, by a look at the text alone."""
    found = {}
    for at, line in enumerate(text.split("\n"), start=1):
        if match := PLACEHOLDER.search(line):
            found.setdefault(int(match[1] or match[3]), (at, match[2] or match[4]))
    return found


EVERYDAY = {1}  # whose solution takes few seconds; CI grades all solutions in a step of its own
SOLVED = [
    pytest.param(entry, id=entry.folder.name, marks=[] if entry.number in EVERYDAY else [pytest.mark.nightly])
    for entry in LABS
]


@pytest.fixture(scope="session", params=SOLVED)
def solved(request, tmp_path_factory):
    """A lab, and the results of its solution on the CPU tier."""
    folder = tmp_path_factory.mktemp("solved")
    done = grade("--from", "solutions", "--lab", request.param.number, "--results", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (lab,) = read_results(folder)["labs"]
    return request.param, lab


@pytest.fixture(scope="session")
def untouched(tmp_path_factory):
    """The skeletons, graded where an import of torch or triton fails; output, results and seconds."""
    folder = tmp_path_factory.mktemp("untouched")
    for name in ("torch", "triton"):
        (folder / f"{name}.py").write_text("raise ImportError('a skeleton needs none of this')\n")
    start = time.monotonic()
    done = grade("--results", folder / "results", PYTHONPATH=str(folder))
    seconds = time.monotonic() - start
    assert done.returncode == 0, done.stdout + done.stderr
    return done, {lab["folder"]: lab for lab in read_results(folder / "results")["labs"]}, seconds


# -- trees


def test_there_are_labs_and_files_to_check():
    assert len(LABS) >= 3
    assert len(FILES) >= len(LABS)


@pytest.mark.parametrize(("folder", "file"), FILES)
def test_the_skeleton_is_the_rendered_solution_byte_for_byte(folder, file):
    rendered = render((ROOT / "solutions" / folder / file).read_text("utf-8")).encode()
    assert (ROOT / "labs" / folder / file).read_bytes() == rendered


@pytest.mark.parametrize(("folder", "file"), FILES)
def test_solving_a_lab_only_adds_lines(folder, file):
    skeleton = (ROOT / "labs" / folder / file).read_text("utf-8").split("\n")
    rest = iter((ROOT / "solutions" / folder / file).read_text("utf-8").split("\n"))
    kept = [line for line in skeleton if not PLACEHOLDER.search(line)]
    assert len(kept) < len(skeleton)
    assert [line for line in kept if line not in rest] == []  # `in` moves the iterator on: the order counts


@pytest.mark.parametrize("entry", LABS, ids=by_folder)
def test_solution_and_skeleton_folders_hold_the_same_student_files(entry):
    asked = {exercise.file for exercise in entry.lab.exercises} | {path.name for path in entry.given}
    for tree, extra in (("labs", {"lab.py"}), ("solutions", set())):
        assert {path.name for path in (ROOT / tree / entry.folder.name).glob("[!_]*.py")} == asked | extra


GIVEN = [(entry, module) for entry in LABS for module in entry.lab.given]


def test_a_lab_gives_something():
    assert GIVEN


@pytest.mark.parametrize(("entry", "module"), GIVEN, ids=[module for _, module in GIVEN])
def test_what_may_be_taken_from_a_given_module_is_its_own(entry, module):
    tree = ast.parse((entry.folder / f"{module}.py").read_text("utf-8"))
    named = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    functions = {name for name in named if not name.startswith("_")}
    assigned = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    constants = {name.id for target in assigned for name in ast.walk(target) if isinstance(name, ast.Name)}
    permitted = set(entry.lab.given[module])
    assert permitted <= functions | constants
    assert functions <= permitted


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("import rows\nx = rows.triton.testing", "`rows.triton.testing` is not permitted"),
        ("import rows\nx = rows.wrap_triton", "`rows.wrap_triton` is not permitted"),
        ("from rows import triton", "`from rows import triton` is not permitted"),
        ("from rows import load", "launches no kernel"),  # permitted: what is left to say is another thing
    ],
)
def test_what_a_given_module_imports_itself_stays_closed(code, refused):
    entry, _ = GIVEN[0]
    exercise = entry.lab.exercises[0]
    text = f"{code}\n\n\ndef {exercise.name}(x, *, out=None):\n    return out\n"
    found = screen(Submission(Path(exercise.file), text.encode()), entry.lab, exercise)
    assert found is not None
    assert found.verdict is Verdict.POLICY
    assert refused in found.where


@pytest.mark.slow
def test_a_file_gets_the_given_module_of_the_course_and_not_its_neighbour(tmp_path):
    entry, module = GIVEN[0]
    exercise = entry.lab.exercises[0]
    file = entry.submission(tmp_path / "tree", exercise)
    file.parent.mkdir(parents=True)
    file.write_bytes(entry.submission(ROOT / "solutions", exercise).read_bytes())
    (file.parent / f"{module}.py").write_text("raise RuntimeError('the neighbour was imported')\n")
    keyword = f"{exercise.name} and correctness and 127"
    done = grade(
        "--lab", entry.number, "--from", tmp_path / "tree", "-k", keyword, "--results", tmp_path / "results"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    graded = [items_of(lab) for lab in read_results(tmp_path / "results")["labs"]]
    assert "PASS" in {item["verdict"] for items in graded for item in items}


@pytest.mark.parametrize("entry", LABS, ids=by_folder)
def test_every_hint_that_a_lab_cites_is_in_its_readme(entry):
    text = (entry.folder / "README.md").read_text("utf-8")
    cited = {hint for hint, _ in entry.lab.causes.values() if hint is not None}
    assert cited
    assert cited <= {int(number) for number in re.findall(r"<summary>Hint (\d+)\b", text)}


# -- skeletons


@pytest.mark.parametrize("entry", LABS, ids=by_folder)
def test_every_question_of_an_untouched_skeleton_is_not_started(untouched, entry):
    items = items_of(untouched[1][entry.folder.name])
    assert [item["id"] for item in items] == [item.id for item in graded_items(entry)]
    assert {item["verdict"] for item in items} == {"NOT_STARTED"}
    assert untouched[1][entry.folder.name]["points"] == 0


@pytest.mark.parametrize("entry", LABS, ids=by_folder)
def test_an_untouched_skeleton_names_every_open_todo_and_its_line(untouched, entry, tmp_path):
    whole, labs, _ = untouched
    alone = grade("--lab", str(entry.number), "--results", tmp_path).stdout
    places = set()
    for exercise in labs[entry.folder.name]["exercises"]:
        expected = placeholders((ROOT / "labs" / entry.folder.name / exercise["file"]).read_text("utf-8"))
        assert expected
        for item in exercise["items"]:
            named = {todo["number"]: (todo["line"], todo["text"]) for todo in item["open_todos"]}
            assert named == expected
        for number, (line, text) in expected.items():
            places.add((exercise["file"], line))
            assert f"{entry.folder.name}/{exercise['file']}:{line}  TODO {number}: {text}" in alone
    (line,) = (
        one for one in whole.stdout.splitlines() if one.startswith(f"lab {entry.number}  {entry.lab.title}")
    )
    assert f"not started, {len(places)} TODOs" in line


def test_the_whole_course_untouched_is_reported_in_25_lines_with_where_to_begin(untouched):
    lines = untouched[0].stdout.splitlines()
    assert len(lines) <= 25
    assert lines[-1].startswith("Next: TODO 1 in labs/lab1_elementwise_add/elementwise_add.py:")


def test_untouched_skeletons_are_reported_without_traceback_or_pass(untouched):
    done, _, seconds = untouched
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr == ""
    assert not re.search(r"\b(ok|PASS|FAIL)\b", done.stdout)
    assert seconds < 10


# -- solutions


def test_the_solution_gets_every_point_that_needs_no_gpu(solved):
    (entry, lab), needs_no_gpu = solved, 0.0
    assert lab["folder"] == entry.folder.name
    verdicts = {item["id"]: item["verdict"] for item in items_of(lab)}
    for item in graded_items(entry):
        on_cpu = item.kind == CODEGEN or (item.kind == CORRECTNESS and not item.case.needs_gpu)
        needs_no_gpu += item.points if on_cpu else 0.0
        assert verdicts.pop(item.id) == ("PASS" if on_cpu else "NOT_GRADED")
    assert verdicts == {}
    assert needs_no_gpu > 0
    assert lab["points"] == lab["graded_points"] == pytest.approx(needs_no_gpu)
    assert lab["points"] + lab["not_graded_points"] == pytest.approx(lab["max_points"])
    assert lab["max_points"] == pytest.approx(entry.lab.points)


@pytest.mark.parametrize("entry", LABS, ids=by_folder)
def test_every_exercise_has_cases_that_a_laptop_can_grade(entry):
    for exercise in entry.lab.exercises:
        assert any(not case.needs_gpu for case in exercise.cases)


def test_no_solution_comes_near_the_tolerance(solved):
    used = [item["tolerance_used"] for item in items_of(solved[1]) if item["tolerance_used"]]
    assert all(share < 0.9 for share in used)


# -- pytest on a lab's folder


def test_a_lab_folder_given_to_pytest_lists_the_cases_that_match():
    done = python("-m", "pytest", "labs/lab2_online_softmax", "-k", "backward", "--collect-only", "-q")
    listed = [line for line in done.stdout.splitlines() if "::" in line]
    assert done.returncode == 0, done.stdout + done.stderr
    assert listed
    assert all("lab2_online_softmax/lab.py::softmax_backward/" in line for line in listed)


def test_a_lab_file_given_to_pytest_lists_each_case_once():
    entry = LABS[0]
    done = python("-m", "pytest", entry.lab_file.relative_to(ROOT), "--collect-only", "-q")
    listed = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert listed == [item.id for item in graded_items(entry)]


@pytest.mark.slow
def test_bare_pytest_passes_a_solution():
    keyword = "correctness and fp16 and not 65537"
    done = python(
        "-m", "pytest", "labs/lab1_elementwise_add", "--from", "solutions", "--tier", "cpu", "-k", keyword
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = sum(c.dtype == "fp16" and c.params["n"] != 65537 for c in LABS[0].lab.exercises[0].cases)
    assert re.search(rf"\b{passed} passed", done.stdout)
    assert not re.search(r"\b(skipped|failed)\b", done.stdout)


def test_bare_pytest_fails_a_skeleton_with_its_todos_and_no_traceback():
    done = python("-m", "pytest", "labs/lab1_elementwise_add", "--tier", "cpu", "-k", "fp16 and 129")
    assert done.returncode == 1
    assert "TODO 3: launch enough programs" in done.stdout
    assert "Traceback" not in done.stdout
    assert "grader/" not in done.stdout.partition("FAILURES")[2]


# -- one lab more

LAB = '''\
"""Lab 9: what is asked of row_sum, and how it is graded."""

from grader.course.spec import Case, Exercise, Lab, Layout, Tolerance
from grader.course.symptoms import LabSymptom, Symptom


def unit(case, inputs, reference):
    return (2.0**-23 * inputs["x"].abs().sum(dim=1),)


class Mistake(LabSymptom):
    MEANS = "means"


def symptom_of(case, inputs, expected, got):
    return Mistake.MEANS if got.allclose(expected / case.params["cols"], rtol=1e-2) else None


LAB = Lab(
    title="row sum",
    exercises=(
        Exercise(
            name="row_sum",
            file="row_sum.py",
            points=10,
            inputs=lambda rng, case: {"x": rng.normal(case.params["rows"], case.params["cols"])},
            reference=lambda x: (x.sum(dim=1),),
            torch_op=lambda x: (x.sum(dim=1),),
            tolerance=Tolerance(unit),
            symptom_of=symptom_of,
            cases=(
                Case({"rows": 70, "cols": 129}),
                Case({"rows": 3, "cols": 1001}),
                Case({"rows": 70, "cols": 129}, layouts={"x": Layout(pad=7)}),
                Case({"rows": 70, "cols": 129}, "bf16"),
            ),
        ),
    ),
    causes={
        Symptom.NOTHING_WRITTEN: (1, "the sums never reach `out`"),
        Mistake.MEANS: (2, "these are means: nothing is divided by the number of columns"),
        Symptom.WRONG: (1, "look at the row stride"),
    },
)
'''
ROW_SUM = '''\
"""Sum each row."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, n_cols, stride_x, BLOCK: tl.constexpr):
    """out[i] = sum x[i, :]; program i owns row i."""
    # BEGIN TODO 1: sum the row and store it (about 5 lines)
    row = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(x, axis=0))
    # END TODO 1


def row_sum(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Sums over the last dimension of x, (n_rows, n_cols), into `out`, (n_rows,)."""
    # BEGIN TODO 2: launch one program a row (about 2 lines)
    n_rows, n_cols = x.shape
    row_sum_kernel[(n_rows,)](x, out, n_cols, x.stride(0), BLOCK=triton.next_power_of_2(n_cols))
    # END TODO 2
    return out
'''


@pytest.fixture(scope="module")
def course_with_lab9(tmp_path_factory):
    root = copy_course(tmp_path_factory.mktemp("course"))
    texts = {
        "labs/lab9_row_sum/lab.py": LAB,
        "labs/lab9_row_sum/README.md": "# Row sum\n\n<details><summary>Hint 1: rows</summary></details>\n"
        "<details><summary>Hint 2: sums</summary></details>\n",
        "solutions/lab9_row_sum/row_sum.py": ROW_SUM,
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    before = {path: path.read_bytes() for path in root.rglob("*.py")}
    done = python("-m", "grader", "skeletons", root=root)
    assert done.returncode == 0, done.stderr
    assert "wrote labs/lab9_row_sum/row_sum.py" in done.stdout
    assert all(path.read_bytes() == text for path, text in before.items())
    return root


def test_a_lab_in_a_new_folder_is_found(course_with_lab9):
    done = python("-m", "grader", "list", root=course_with_lab9)
    assert "lab 9  row sum, 10 points  (lab9_row_sum)" in done.stdout


def test_the_skeleton_of_a_new_lab_is_written_and_not_started(course_with_lab9):
    skeleton = (course_with_lab9 / "labs" / "lab9_row_sum" / "row_sum.py").read_text()
    assert "next_power_of_2" not in skeleton
    assert "tl.sum" not in skeleton
    done = grade("--lab", "9", root=course_with_lab9)
    assert done.returncode == 0, done.stderr
    (lab,) = read_results(course_with_lab9 / "results")["labs"]
    assert [item["verdict"] for item in items_of(lab)] == ["NOT_STARTED"] * 4
    for number, (line, text) in placeholders(skeleton).items():
        assert f"lab9_row_sum/row_sum.py:{line}  TODO {number}: {text}" in done.stdout


@pytest.mark.slow
def test_the_solution_of_a_new_lab_gets_every_point(course_with_lab9):
    done = grade("--lab", "9", "--from", "solutions", "--min", "7.5", root=course_with_lab9)
    assert done.returncode == 0, done.stdout + done.stderr
    (lab,) = read_results(course_with_lab9 / "results")["labs"]
    assert [item["verdict"] for item in items_of(lab)] == ["PASS"] * 3 + ["NOT_GRADED"]
    assert (lab["points"], lab["not_graded_points"]) == (7.5, 2.5)


@pytest.mark.slow
def test_a_new_lab_names_a_symptom_of_its_own(course_with_lab9):
    file = course_with_lab9 / "wrong" / "lab9_row_sum" / "row_sum.py"
    file.parent.mkdir(parents=True)
    file.write_text(ROW_SUM.replace("tl.sum(x, axis=0)", "tl.sum(x, axis=0) / n_cols"))
    grade("--lab", "9", "--from", "wrong", root=course_with_lab9)
    (lab,) = read_results(course_with_lab9 / "results")["labs"]
    told = {(item["cause"], item["hint"]) for item in items_of(lab) if item["verdict"] == "WRONG"}
    # The line is found by an edit, and the hint is that of the lab's own symptom.
    code = "`tl.sum(x, axis=0) / n_cols` is divided by `n_cols`, which does not belong there"
    assert [(cause.partition(": ")[2], hint) for cause, hint in told] == [(code, 2)]


@pytest.mark.parametrize("entry", LABS, ids=by_folder)
def test_the_list_of_labs_names_every_file_that_a_student_writes(entry):
    (row,) = [
        line
        for line in (ROOT / "labs" / "README.md").read_text("utf-8").splitlines()
        if line.startswith("| ") and f"({entry.folder.name}/README.md)" in line
    ]
    for exercise in entry.lab.exercises:
        assert f"`{exercise.file}`" in row
