"""A release: no answer leaves in any disguise, and what leaves works."""

import base64
import gzip
import html
import io
import json
import re
import shutil
import subprocess
import tarfile
import urllib.parse
import zipfile

import pytest

from grader.classroom.release import build
from grader.classroom.release.answers import SHORTEST, collect, plain, task_regions
from grader.classroom.release.contents import TESTS, File, choose
from grader.classroom.release.source import ReleaseError, committed
from grader.classroom.release.withheld import hold_back
from grader.tests.classroom.release_trees import lying, missing_in
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

SOLUTIONS = sorted(ROOT.glob("solutions/lab*/[!_]*.py")) + sorted(
    ROOT.glob("solutions/gpu-programming/*-kernels/**/*.cu")
)
WRONG = sorted(path for path in ROOT.glob("solutions/**/wrong/*") if path.is_file())
VARIANTS = sorted(ROOT.glob("solutions/**/variants/*.py"))
ANSWER = max(
    task_regions((ROOT / "solutions/lab2_online_softmax/online_softmax.py").read_text("utf-8")), key=len
)

LAB3 = (ROOT / "solutions/lab3_autotuned_matmul/autotuned_matmul.py").read_text("utf-8")
PLACE, LISTED = (next(one for one in task_regions(LAB3) if word in one) for word in ("per_group", "CONFIGS"))
CONFIGS = [tuple(map(int, row.split(", "))) for row in re.findall(r"_config\((.+)\)", LISTED)]
PARTS = "BLOCK_M: {}, BLOCK_N: {}, BLOCK_K: {}, GROUP_M: 8, num_warps: {}, num_ctas: 1, num_stages: {}"


@pytest.fixture(scope="module")
def answers():
    return collect(ROOT)


@pytest.fixture(scope="module")
def released(answers):
    """The files of a release of what lies here."""
    chosen, left = choose(lying(ROOT))
    return *hold_back(chosen, answers), left


@pytest.fixture(scope="module")
def course(released, answers, tmp_path_factory):
    """A release on disk, which tests leave as it is."""
    out = tmp_path_factory.mktemp("release") / "course"
    write(released[0], out, answers)
    return out


def write(files, out, answers):
    return build.write(files, out, "0" * 40, answers, build.students_files(files))


def archive(name, text):
    held = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as opened:
            opened.writestr("answer.py", text)
    else:
        with tarfile.open(fileobj=held, mode="w:gz") as opened:
            one = tarfile.TarInfo("answer.py")
            one.size = len(text.encode())
            opened.addfile(one, io.BytesIO(text.encode()))
    return held.getvalue()


def notebook(**cell):
    return json.dumps({"cells": [{"cell_type": "code", "outputs": [], **cell}]}, indent=1).encode()


def spans(text):
    """As a highlighter writes code into a page."""
    return re.sub(r"\w+", r'<span class="n">\g<0></span>', html.escape(text))


def lines(prefix, text=ANSWER):
    return "\n".join(prefix.format(at) + line for at, line in enumerate(text.splitlines(), start=8))


PAGE = f"<script>{json.dumps({'source': ANSWER})}</script>"
COPY = "grader/course/skeletons/labs/lab2_online_softmax/online_softmax.py"
PLANTED = {
    "a skeleton's copy": (COPY, ANSWER.encode()),
    "the student's file": ("labs/lab2_online_softmax/online_softmax.py", ANSWER.encode()),
    "a notebook's cell": ("notebooks/12_more.ipynb", notebook(source=ANSWER.splitlines(keepends=True))),
    "a notebook's attachment": ("notebooks/12_more.ipynb", notebook(attachments={"a": {"text": ANSWER}})),
    "an escaped page": ("labs/images/page.html", f"<pre>{html.escape(ANSWER)}</pre>".encode()),
    "a page in a page": ("labs/page.html", f'<iframe srcdoc="{html.escape(PAGE)}">'.encode()),
    "a highlighted page": ("labs/page.html", spans(ANSWER).encode()),
    "a record of a run": ("labs/run.json", json.dumps([{"cause": ANSWER}]).encode()),
    "unicode escapes": ("labs/run.json", "".join(f"\\u{ord(one):04x}" for one in ANSWER).encode()),
    "a README's quote": ("labs/README.md", lines("> ").encode()),
    "a listing with numbers": ("labs/README.md", lines("{:3}  ").encode()),
    "a patch": ("labs/CHANGELOG.md", lines("+").encode()),
    "comments": ("grader/results/scoring.py", lines("# ").encode()),
    "a string in code": ("grader/results/scoring.py", f"TEXT = {ANSWER!r}".encode()),
    "lines without spaces": ("labs/a.txt", re.sub(r"[ \t]", "", ANSWER).encode()),
    "base64": ("labs/a.txt", base64.encodebytes(ANSWER.encode())),
    "an address": ("labs/a.txt", urllib.parse.quote(ANSWER).encode()),
    "UTF-16": ("labs/a.txt", ANSWER.encode("utf-16")),
    "a zip": ("labs/a.zip", archive("a.zip", ANSWER)),
    "a tar": ("labs/a.tgz", archive("a.tgz", ANSWER)),
    "a zip in base64 in a page": ("labs/a.html", b'<a href="' + base64.b64encode(archive("a.zip", ANSWER))),
    "gzip": ("labs/images/report.png", gzip.compress(ANSWER.encode())),
    "a part of a longer line": ("labs/a.txt", b"x " * 50 + " ".join(ANSWER.split()).encode() + b" y"),
}  # fmt: skip


@pytest.mark.slow
def test_no_released_file_holds_an_answer(released, answers):
    files, _, left = released
    assert len(files) > 150
    assert len(answers.runs) > 100_000
    build.check(files, answers)
    assert sum(len(paths) for paths in left.values()) > 500


def test_what_stays_here_is_not_in_a_release(course):
    paths = {str(path.relative_to(course)) for path in course.rglob("*")}
    folders = r"solutions|results(/|$)|.*\.git(/|$)|.*/(wrong|variants|cheats|faults)(/|$)|\.ci"
    strange = rf"{folders}|.*record\.json|.*\.pyc"
    assert paths
    assert [path for path in paths if re.match(strange, path)] == []


@pytest.mark.parametrize("disguise", PLANTED)
def test_a_planted_answer_is_found_in(disguise, answers):
    path, data = PLANTED[disguise]
    with pytest.raises(ReleaseError, match=rf"{re.escape(path)} holds an answer: .*softmax"):
        build.check({path: File(data)}, answers)


def test_a_planted_answer_stops_the_whole_release(answers):
    paths = ("Makefile", "labs/README.md", "solutions/README.md")
    tree = {path: File((ROOT / path).read_bytes()) for path in paths}
    assert set(build.plan(tree, answers)[0]) == {"Makefile", "labs/README.md"}
    tree["labs/lab1_elementwise_add/notes.txt"] = File(ANSWER.encode())
    with pytest.raises(ReleaseError, match="nothing was written"):
        build.plan(tree, answers)


def test_a_link_is_not_handed_out(answers):
    with pytest.raises(ReleaseError, match=r"a symbolic link.*labs/notes\.md"):
        build.plan({"labs/notes.md": File(b"../solutions/README.md", link=True)}, answers)


def test_every_task_of_every_solution_is_told_from_its_skeleton(answers):
    regions = [(path, region) for path in SOLUTIONS for region in task_regions(path.read_text("utf-8"))]
    assert len(regions) > 50
    missed = [(path.name, plain(region)) for path, region in regions if not answers.found_in(region)]
    # What is left is too short to be told from any other text.
    assert [one for one in missed if len(one[1]) >= SHORTEST + 32] == []
    assert len(missed) < len(regions) / 10, missed


@pytest.mark.parametrize("paths", [WRONG, VARIANTS], ids=["wrong", "variants"])
def test_every_wrong_and_every_other_answer_is_known(paths, answers):
    assert len(paths) > 20
    assert [path.name for path in paths if not answers.found_in(path.read_text("utf-8"))] == []


def test_a_cell_that_shows_an_answer_loses_its_output_and_nothing_else(answers):
    shown = {"output_type": "stream", "name": "stdout", "text": ANSWER.splitlines(keepends=True)}
    kept = {"output_type": "stream", "name": "stdout", "text": ["2 GB/s\n"]}
    cells = [{"cell_type": "code", "source": ["listing()"], "outputs": [one]} for one in (shown, kept)]
    tree = {"notebooks/12_more.ipynb": File(json.dumps({"cells": cells, "nbformat": 4}).encode())}
    chosen, _, held = build.plan(tree, answers)
    first, second = json.loads(chosen["notebooks/12_more.ipynb"].data)["cells"]
    assert held == ["notebooks/12_more.ipynb: outputs of 1 cells"]
    assert first["source"] == ["listing()"]
    assert "Not shown" in first["outputs"][0]["text"][0]
    assert second == cells[1]


TABLES = {
    "code": "".join(f"    _config({', '.join(map(str, row))}),\n" for row in CONFIGS),
    "code on a line": ", ".join(f"({', '.join(map(str, row))})" for row in CONFIGS),
    "as the autotuner prints it": "".join(
        f"Autotuning kernel matmul_kernel with config {PARTS.format(m, n, k, warps, stages)}, maxnreg: None\n"
        for m, n, k, stages, warps in CONFIGS
    ),
    "a table": "".join(
        f"| {m}, {n}, {k}; {stages} stages, {warps} warps | {at} KB | 63% |\n"
        for at, (m, n, k, stages, warps) in enumerate(CONFIGS)
    ),
    "in another order": "".join(f"{row}\n" for row in reversed(CONFIGS)),
}


@pytest.mark.parametrize("form", TABLES)
def test_an_answer_of_numbers_is_found_in_every_form(form, answers):
    text = TABLES[form]
    cell = notebook(source=["x\n"], outputs=[{"text": text.splitlines(keepends=True)}])
    for data in (text.encode(), json.dumps([text]).encode(), cell):
        with pytest.raises(ReleaseError, match=r"notes holds an answer: .*lab3_autotuned_matmul/"):
            build.check({"labs/notes": File(data)}, answers)
    build.check({"labs/notes": File("".join(text.splitlines(keepends=True)[2:]).encode())}, answers)


@pytest.mark.parametrize("form", [form for form in TABLES if form != "code on a line"])
def test_three_of_four_rows_are_an_answer_too(form, answers):
    text = "".join(TABLES[form].splitlines(keepends=True)[1:])
    with pytest.raises(ReleaseError, match=r"notes holds an answer: .*lab3_autotuned_matmul/"):
        build.check({"labs/notes": File(text.encode())}, answers)


def test_a_task_is_an_answer_also_where_a_file_of_its_own_lab_gives_it(tmp_path):
    """Whatever a given file or another skeleton shows, only the list of exemptions permits it."""
    given = "# GIVEN: nothing to complete here.\n\n" + re.sub(r"^ *#.*\n", "", PLACE, flags=re.MULTILINE)
    for path, text in {"lab3_matmul/matmul.py": LAB3, "lab3_matmul/order.py": given}.items():
        (tmp_path / "solutions" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "solutions" / path).write_text(text, "utf-8")
    with pytest.raises(ReleaseError, match=r"order\.py holds an answer: solutions/lab3_matmul/matmul\.py"):
        build.check({"labs/lab3_matmul/order.py": File(given.encode())}, collect(tmp_path))


def test_rows_of_mostly_digits_in_a_task_count(tmp_path):
    row = ", ".join(str(at * 37 % 4096) for at in range(40))
    task = f"# BEGIN TODO 1: numbers (about 1 line)\nORDER = [{row}]\n# END TODO 1\n"
    (tmp_path / "solutions" / "lab3_matmul").mkdir(parents=True)
    (tmp_path / "solutions" / "lab3_matmul" / "matmul.py").write_text(task, "utf-8")
    with pytest.raises(ReleaseError, match="notes holds an answer"):
        build.check({"notes": File(f"| {row.replace(',', ' |')} |".encode())}, collect(tmp_path))


@pytest.mark.parametrize("form", [form for form in TABLES if form != "code on a line"])
def test_a_cell_that_shows_most_of_such_an_answer_loses_its_output(form, answers):
    lines = TABLES[form].splitlines(keepends=True)
    cells = [
        {"cell_type": "code", "source": ["x"], "outputs": [{"output_type": "stream", "text": shown}]}
        for shown in (lines, lines[:3], lines[:1])
    ]
    tree = {"notebooks/12_more.ipynb": File(json.dumps({"cells": cells}).encode())}
    kept = json.loads(build.plan(tree, answers)[0]["notebooks/12_more.ipynb"].data)["cells"]
    assert ["Not shown" in str(cell["outputs"]) for cell in kept] == [True, True, False]


def test_what_a_lab_is_given_may_be_an_answer_of_another_and_none_of_its_own(tmp_path):
    given = "# GIVEN: nothing to complete here.\n\n"
    order = given + re.sub(r"^ *#.*\n", "", PLACE, flags=re.MULTILINE)  # a copy has comments of its own
    loads = (ROOT / "solutions/lab4_production_slice/rows.py").read_text("utf-8")
    for path, text in {
        "lab3_matmul/matmul.py": LAB3,
        "lab4_slice/order.py": order,
        "lab4_slice/loads.py": loads,
        "lab4_slice/wrong/sums.py": f'"""Wrong."""\n{loads}',
    }.items():
        (tmp_path / "solutions" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "solutions" / path).write_text(text, "utf-8")
    found = collect(tmp_path)
    build.check({"labs/lab4_slice/loads.py": File(loads.encode())}, found)
    with pytest.raises(ReleaseError, match=r"order\.py holds an answer: solutions/lab3_matmul/matmul\.py"):
        build.check({"labs/lab4_slice/order.py": File(order.encode())}, found)


@pytest.fixture(scope="module")
def of_a_commit(answers, tmp_path_factory):
    """A release as the command makes it, from a commit of what lies here."""
    root = tmp_path_factory.mktemp("commit")
    for path, file in lying(ROOT).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(file.data)
    for step in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *step], cwd=root, check=True)
    commit, tree = committed(root)
    chosen, _, _ = build.plan(tree, answers)
    build.write(chosen, root / "out", commit, answers, build.students_files(chosen))
    return root / "out"


def test_neither_the_order_of_tiles_nor_the_configs_of_lab_3_is_in_a_release(course):
    shown = {}
    paths = [path for path in course.rglob("*") if path.is_file()]
    for path in paths:
        text = path.read_text("utf-8", errors="replace")
        # The place of a tile in its group, whatever the names.
        assert not re.search(r"\w+ % \w+ % \w+", text), path
        numbers = f" {' '.join(re.findall(r'[0-9]+', text))} "
        forms = ((f" {m} {n} {k} {s} {w} ", f" {m} {n} {k} 8 {w} 1 {s} ") for m, n, k, s, w in CONFIGS)
        shown[path] = sum(any(form in numbers for form in both) for both in forms)
    assert len(paths) > 150
    assert [path for path, rows in shown.items() if rows == len(CONFIGS)] == []
    assert shown[course / "notebooks" / "05_autotuning.ipynb"] <= len(CONFIGS) // 2


@pytest.mark.nightly
def test_lab_4_is_graded_in_a_release(of_a_commit, tmp_path):
    """The student's files are the course's own here; the given module is that of the release."""
    (tmp_path / "work" / "lab4_production_slice").mkdir(parents=True)
    for name in ("layer_norm.py", "layer_norm_linear.py"):
        file = f"lab4_production_slice/{name}"
        shutil.copyfile(ROOT / "solutions" / file, tmp_path / "work" / file)
    words = ("-k", "layer_norm_linear_forward and correctness and 129", "--tier", "cpu")
    done = python(
        "-m", "grader", "grade", "--lab", "4", "--from", tmp_path / "work", *words,
        "--results", tmp_path / "results", root=of_a_commit,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results" / "results.json").read_text("utf-8"))
    (graded,) = [
        [item["verdict"] for item in exercise["items"]]
        for exercise in results["labs"][0]["exercises"]
        if exercise["name"] == "layer_norm_linear_forward"
    ]
    assert graded.count("PASS") > 2
    assert set(graded) <= {"PASS", "NOT_GRADED"}


def test_an_answer_in_the_history_of_the_folder_is_found(released, answers, tmp_path):
    out = tmp_path / "course"
    out.mkdir()
    for step in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "x"],
        ["rm", "-q", "a.py"],
        ["commit", "-qm", "y"],
    ):
        (out / "a.py").write_text(ANSWER) if step[0] == "add" else None
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *step], cwd=out, check=True)
    with pytest.raises(ReleaseError, match=r"the history of .* holds an answer"):
        write(released[0], out, answers)
    assert [path.name for path in out.iterdir()] == [".git"]


@pytest.mark.nightly
def test_the_command_releases_labs_by_week_and_says_what_is_out(of_a_commit, tmp_path):
    source, out = of_a_commit.parent, tmp_path / "course"
    (source / ".git" / "info" / "exclude").write_text("out\n")
    for labs, later in (("1,2", "3, 4, capstone"), ("1,2,3", "4, capstone")):
        done = python("-m", "grader", "--variable", f"LAB={labs}", "release", out, root=source)
        assert done.returncode == 0, done.stderr
        assert f"labs in the release: {labs.replace(',', ', ')}; held back: {later}\n" in done.stdout
        assert "exempt from the search in grader/student/doctor.py: " in done.stdout
        assert "for start in range(0, n, BLOCK):" in done.stdout
        assert "and again for" in done.stdout
        assert "files: held back until lab 4 is out" in done.stdout
        assert "files: held back until the capstone is out" in done.stdout
    renamed = re.sub(r"\b(m|d|x|block|m_new)\b", r"\1_1", ANSWER)
    (source / "labs" / "notes.txt").write_text(renamed)
    for step in (["add", "-A"], ["commit", "-qm", "y"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *step], cwd=source, check=True)
    done = python("-m", "grader", "release", tmp_path / "other", "--lab", "1", root=source)
    assert "notes.txt holds an answer: " in done.stderr
    assert not (tmp_path / "other").exists()


def test_two_releases_of_one_tree_have_the_same_bytes(course, released, answers, tmp_path):
    write(dict(reversed(released[0].items())), tmp_path / "again", answers)
    first, second = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (course, tmp_path / "again")
    )
    assert first == second


def test_a_folder_with_something_else_in_it_is_left_alone(released, answers, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ReleaseError, match="neither empty nor an earlier release"):
        write(released[0], tmp_path, answers)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_was_changed_in_a_release_by_hand_is_not_written_over(answers, tmp_path):
    files = choose(lying(ROOT))[0]
    small = {path: file for path, file in files.items() if path.endswith("lab.py") or path == "README.md"}
    theirs = set()
    build.write(small, tmp_path / "out", "0" * 40, answers, theirs)
    (tmp_path / "out" / "README.md").write_text("our own words")
    with pytest.raises(ReleaseError, match=r"by hand, and would be lost: README\.md"):
        build.write({**small, "README.md": File(b"new")}, tmp_path / "out", "1" * 40, answers, theirs)
    assert (tmp_path / "out" / "README.md").read_text() == "our own words"


def test_pages_of_a_release_name_nothing_that_is_missing(course):
    targets = set(re.findall(r"^([a-z-]+):", (course / "Makefile").read_text("utf-8"), re.MULTILINE))
    pages = [*course.rglob("*.md"), course / "Makefile"]
    missing = [f"{page.name}: {name}" for page in pages for name in missing_in(page, targets)]
    assert len(pages) > 8
    assert len(targets) > 10
    assert missing == []


def test_commands_work_in_a_release(course, tmp_path):
    for command, words in {
        ("list",): "lab 1  elementwise add",
        ("todo",): "TODO 1",
        ("hint", "--lab", "1", "--results", str(tmp_path)): "hint",
        ("reset", "--lab", "1", "--results", str(tmp_path)): "skeleton",
        ("release", str(tmp_path / "out")): "no release: ",
    }.items():
        done = python("-m", "grader", *command, root=course)
        assert "Traceback" not in done.stderr, done.stderr
        assert words in done.stdout + done.stderr


def test_an_untouched_release_is_graded_not_started(course, tmp_path):
    done = python("-m", "grader", "grade", "--lab", "1", "--tier", "cpu", "--results", tmp_path, root=course)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT STARTED" in done.stdout
    assert python("-m", "grader", "report", "--results", tmp_path, root=course).returncode == 0
    assert "WRONG" not in done.stdout


def test_every_test_that_is_to_go_out_is_in_a_release(course):
    assert [name for name in TESTS if not (course / "grader" / "tests" / f"{name}.py").is_file()] == []


@pytest.mark.nightly
def test_every_test_of_a_release_finds_what_it_imports(course):
    done = python(
        "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "grader/tests", root=course
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.nightly
def test_the_tests_of_a_release_run_there(course):
    tests = [
        f"grader/tests/{name}.py"
        for name in ("course/test_spec", "results/test_scoring", "worker/test_protocol")
    ]
    done = python("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests, root=course)
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 30
