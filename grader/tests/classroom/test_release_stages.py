"""A release week by week: what is not out yet is not there, and a student's work stays."""

import os
import re
import subprocess

import pytest

from grader.classroom.release import build, stages
from grader.classroom.release.answers import collect
from grader.classroom.release.contents import File, choose
from grader.classroom.release.source import ReleaseError
from grader.classroom.release.withheld import hold_back
from grader.tests.classroom.release_trees import lying, missing_in
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT

THEIRS = "labs/lab1_elementwise_add/elementwise_add.py"
LATER = re.compile(
    r"lab[34]_|(?:^|/)gpu-programming/|notebooks/(?:0[145679]|1\d)_|notebooks/figures/(?:tile_order|autotuner)\."
)
FILES = {
    "README.md": File(
        b"| lab |\n|---|\n| [one](labs/lab1_a/README.md) |\n| [two](labs/lab2_b/README.md) |\n"
        b"| in `lab2_b` |\n\n"
        b"Then [lab\ntwo](labs/lab2_b/README.md#hints) and [the web](https://example.org).\n"
    ),
    "labs/lab1_a/README.md": File(b"See [the next one](../lab2_b/README.md).\n"),
    "labs/lab2_b/README.md": File(b"Two\n"),
    "grader/course/skeletons/labs/lab2_b/b.py": File(b"TODO\n"),
    "gpu-programming/README.md": File(b"Capstone\n"),
}


@pytest.fixture(scope="module")
def tree():
    return choose(lying(ROOT))[0]


@pytest.fixture(scope="module")
def answers():
    return collect(ROOT)


@pytest.fixture(scope="module")
def weeks(tree, answers):
    """The files of three releases."""
    outs = (["1", "2"], ["1", "2", "3"], ["1", "2", "3", "4", "capstone"])
    return [hold_back(stages.of_labs(tree, labs)[0], answers)[0] for labs in outs]


def publish(files, course, answers):
    made = build.write(files, course, "0" * 40, answers, build.students_files(files))
    git(course, "add", "-A")
    git(course, "commit", "-qm", "a release")
    return made


def git(folder, *arguments):
    who = ("-c", "user.name=x", "-c", "user.email=x@y")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def course(weeks, answers, tmp_path_factory):
    """The release of week 1 in a repository."""
    course = tmp_path_factory.mktemp("weeks") / "course"
    course.mkdir()
    git(course, "init", "-q", "-b", "main")
    publish(weeks[0], course, answers)
    return course


def test_files_of_a_lab_that_is_not_out_are_held_back_and_links_to_them_are_said():
    out, held = stages.of_labs(FILES, ["1"])
    assert set(out) == {"README.md", "labs/lab1_a/README.md"}
    assert {lab: len(paths) for lab, paths in held.items()} == {"2": 2, "capstone": 1}
    assert out["README.md"].data.decode() == (
        "| lab |\n|---|\n| [one](labs/lab1_a/README.md) |\n\n"
        "Then lab\ntwo (not released yet) and [the web](https://example.org).\n"
    )
    assert out["labs/lab1_a/README.md"].data == b"See the next one (not released yet).\n"


def test_with_all_labs_every_file_is_out_as_it_is():
    assert stages.of_labs(FILES, stages.labs_of(FILES)) == (FILES, {})


def test_the_labs_of_a_course_and_a_choice_of_them():
    assert stages.labs_of(FILES) == ["1", "2", "capstone"]
    assert stages.chosen_labs("2 ,1", ["1", "2", "capstone"]) == ["1", "2"]
    for words in ("3", "1,x", ","):
        with pytest.raises(ReleaseError, match="the labs are 1, 2, capstone"):
            stages.chosen_labs(words, ["1", "2", "capstone"])


def test_a_notebook_without_a_line_in_the_table_is_refused():
    with pytest.raises(ReleaseError, match=r"notebooks/12_more\.ipynb: name the labs"):
        stages.needs("notebooks/12_more.ipynb")


def test_the_table_has_every_notebook_and_figure_with_the_labs_that_it_names(tree):
    pages = [path for path in tree if re.match(r"notebooks/(figures/)?[^/]+\.(ipynb|html)$", path)]
    assert len(pages) > 15
    for path in pages:
        source = ROOT / path.replace(".ipynb", ".py")
        named = set(re.findall(r"lab(\d)_\w+", source.read_text("utf-8")))
        assert named <= stages.needs(path), path
    assert [start for start in stages.NEEDS if not any(path.startswith(start) for path in tree)] == []


@pytest.mark.slow
def test_week_1_has_nothing_of_later_labs(weeks):
    first, second, whole = ({path for path in week if LATER.search(path)} for week in weeks)
    assert first == set()
    assert {path for path in second if re.search("lab4_|gpu-programming/", path)} == set()
    assert "labs/lab3_autotuned_matmul/autotuned_matmul.py" in second
    assert len(whole) > 50
    assert set(weeks[0]) < set(weeks[1]) < set(weeks[2])


@pytest.mark.slow
def test_no_page_of_week_1_links_to_what_is_missing(course):
    targets = set(re.findall(r"^([a-z-]+):", (course / "Makefile").read_text("utf-8"), re.MULTILINE))
    pages = list(course.rglob("*.md"))
    assert len(pages) > 5
    assert [f"{page.name}: {name}" for page in pages for name in missing_in(page, targets)] == []
    books = list(course.rglob("*.ipynb"))
    links = [
        (book, link) for book in books for link in re.findall(r"\]\(([^)\s#:]+)\)", book.read_text("utf-8"))
    ]
    assert len(links) > 2
    assert [(book.name, link) for book, link in links if not (book.parent / link).exists()] == []


@pytest.mark.nightly
def test_week_1_is_graded(course, tmp_path):
    listed = python("-m", "grader", "list", root=course)
    assert re.findall(r"^lab (\d)", listed.stdout, re.MULTILINE) == ["1", "2"], listed.stderr
    open_ = python("-m", "grader", "todo", root=course)
    assert "10 open" in open_.stdout, open_.stderr
    (tmp_path / "work" / "lab1_elementwise_add").mkdir(parents=True)
    solution = ROOT / "solutions/lab1_elementwise_add/elementwise_add.py"
    (tmp_path / "work/lab1_elementwise_add/elementwise_add.py").write_bytes(solution.read_bytes())
    done = python(
        "-m", "grader", "grade", "--lab", "1", "--from", tmp_path / "work", "-k", "129", "--tier", "cpu",
        "--results", tmp_path / "results", root=course,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in (tmp_path / "results" / "results.json").read_text("utf-8")
    later = python("-m", "grader", "grade", "--lab", "3", root=course)
    assert "the labs are 1, 2" in later.stderr
    capstone = python("-m", "grader", "grade", "--lab", "capstone", root=course)
    assert "it may not be released yet" in capstone.stderr
    assert "Traceback" not in capstone.stderr


@pytest.mark.slow
def test_week_2_adds_to_week_1_and_leaves_the_students_work(weeks, answers, tmp_path):
    course, work = tmp_path / "course", b"def elementwise_add(x, y, *, out=None):\n    return x + y\n"
    course.mkdir()
    git(course, "init", "-q", "-b", "main")
    publish(weeks[0], course, answers)
    git(tmp_path, "clone", "-q", str(course), "student")
    student = tmp_path / "student"
    (student / THEIRS).write_bytes(work)
    git(student, "commit", "-qam", "my kernel")
    made = publish(weeks[1], course, answers)
    assert (made.removed, made.kept) == ((), ())
    assert (course / THEIRS).read_bytes() == weeks[0][THEIRS].data
    git(student, "pull", "-q", "--no-rebase", "--no-edit")
    assert (student / THEIRS).read_bytes() == work
    for path in set(weeks[1]) - {THEIRS}:
        assert (student / path).read_bytes() == weeks[1][path].data, path
    assert git(student, "status", "--porcelain") == ""


@pytest.mark.slow
def test_a_released_lab_is_not_taken_back(weeks, answers, course):
    one = {path: file for path, file in weeks[0].items() if stages.needs(path) <= {"1"}}
    with pytest.raises(ReleaseError, match=r"already released in .*: 2; name all released labs again"):
        build.write(one, course, "0" * 40, answers, build.students_files(one))
    assert (course / "labs/lab2_online_softmax/online_softmax.py").is_file()


def test_make_release_refuses_the_other_name_of_the_variable(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "release", "LABS=1,2", f"OUT={tmp_path}/out"], cwd=ROOT, capture_output=True, text=True,
        check=False, env=environment,
    )  # fmt: skip
    assert done.returncode != 0
    assert "make release takes no LABS; it takes OUT LAB" in done.stderr
    assert not (tmp_path / "out").exists()
