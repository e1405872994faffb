"""A fix in mid-term reaches students who have begun, through git, and never touches their file."""

import os
import subprocess

import pytest

from grader.classroom.release import build
from grader.classroom.release.answers import Answers
from grader.classroom.release.contents import File
from grader.classroom.release.source import ReleaseError
from grader.tests.helpers.commands import plain_environment
from grader.tests.helpers.course import ROOT

THEIRS = "labs/lab1_elementwise_add/elementwise_add.py"
COPY = f"grader/course/skeletons/{THEIRS}"
FIRST = {
    "README.md": File(b"The course.\n\nA line with a mistake.\n\nThe end.\n"),
    "labs/CHANGELOG.md": File(b"# Changes to the labs\n"),
    "labs/lab1_elementwise_add/lab.py": File(b"CASES = 23\n"),
    "grader/judge/correctness.py": File(b"LIMIT_S = 1\n"),
    "grader/old.py": File(b"OLD = 1\n"),
    THEIRS: File(b"def add():\n    raise NotImplementedError('TODO 1')\n"),
    COPY: File(b"def add():\n    raise NotImplementedError('TODO 1')\n"),
}
SKELETON = b"def add(*, out=None):\n    raise NotImplementedError('TODO 1')\n"  # the argument was forgotten
SECOND = {
    **{path: file for path, file in FIRST.items() if path != "grader/old.py"},
    "README.md": File(b"The course.\n\nA line without it.\n\nThe end.\n"),
    "labs/CHANGELOG.md": File(b"# Changes to the labs\n\nLab 1: write `*, out=None`.\n"),
    "labs/lab1_elementwise_add/lab.py": File(b"CASES = 24\n"),
    "labs/lab5_row_sum/row_sum.py": File(b"# TODO\n"),
    "grader/judge/correctness.py": File(b"LIMIT_S = 10\n"),
    THEIRS: File(SKELETON),
    COPY: File(SKELETON),
}
WORK = "def add(x, y):\n    return x + y\n"
PULL = ("pull", "-q", "--no-rebase", "--no-edit")
WHO = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


def git(folder, *arguments, code=0):
    environment = plain_environment(**WHO, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_SYSTEM=os.devnull)
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def publish(files, course, theirs=THEIRS):
    """Make or update the release in the instructor's repository, and commit it."""
    made = build.write(files, course, "0" * 40, Answers({}, {}), {theirs})
    git(course, "add", "-A")
    git(course, "commit", "-qm", "a release")
    return made


@pytest.fixture
def course(tmp_path):
    course = tmp_path / "course"
    course.mkdir()
    git(course, "init", "-q", "-b", "main")
    publish(FIRST, course)
    return course


@pytest.fixture
def student(course, tmp_path):
    git(tmp_path, "clone", "-q", str(course), "student")
    (tmp_path / "student" / THEIRS).write_text(WORK)
    return tmp_path / "student"


def assert_fixed_and_untouched(student):
    assert (student / THEIRS).read_text() == WORK
    for path in set(SECOND) - {THEIRS}:
        assert (student / path).read_bytes() == SECOND[path].data, path
    assert not (student / "grader/old.py").exists()


def test_work_that_is_not_committed_stays(course, student):
    publish(SECOND, course)
    git(student, *PULL)
    assert_fixed_and_untouched(student)
    assert git(student, "status", "--porcelain").split() == ["M", THEIRS]


def test_committed_work_stays_and_nothing_conflicts(course, student):
    git(student, "commit", "-qam", "my kernel")
    publish(SECOND, course)
    git(student, *PULL)
    assert_fixed_and_untouched(student)
    assert git(student, "status", "--porcelain") == ""


def test_work_of_a_student_who_began_from_a_template_stays(course, student):
    for step in (("checkout", "-q", "--orphan", "own"), ("commit", "-qam", "begun from a template")):
        git(student, *step)
    first = git(student, "rev-list", "--max-parents=0", "origin/main").strip()
    git(student, "merge", "-q", "-s", "ours", "--allow-unrelated-histories", "--no-edit", first)
    publish(SECOND, course)
    git(student, *PULL, "origin", "main")
    assert_fixed_and_untouched(student)


def test_a_pull_that_would_lose_an_edit_of_a_course_file_is_refused_by_git(course, student):
    (student / "grader/judge/correctness.py").write_text("LIMIT_S = 99\n")
    publish(SECOND, course)
    git(student, *PULL, code=1)
    assert (student / "grader/judge/correctness.py").read_text() == "LIMIT_S = 99\n"
    assert (student / THEIRS).read_text() == WORK
    git(student, "checkout", "--", "grader/judge/correctness.py")  # what the page on changes says to do
    git(student, *PULL)
    assert_fixed_and_untouched(student)


def test_a_mended_skeleton_lies_where_reset_takes_it_from(course, student):
    made = publish(SECOND, course)
    assert made.kept == (THEIRS,)
    assert made.removed == ("grader/old.py",)
    assert (course / THEIRS).read_bytes() == FIRST[THEIRS].data
    assert (course / COPY).read_bytes() == SKELETON
    git(student, *PULL)
    assert (student / COPY).read_bytes() == SKELETON


def test_an_update_without_a_change_changes_no_byte(course):
    publish(SECOND, course)
    before = git(course, "rev-parse", "HEAD")
    build.write(SECOND, course, "0" * 40, Answers({}, {}), {THEIRS})
    assert git(course, "status", "--porcelain") == ""
    assert git(course, "rev-parse", "HEAD") == before


def test_an_edit_in_the_release_repository_is_not_lost(course):
    (course / "README.md").write_text("Rooms have changed.\n")
    with pytest.raises(ReleaseError, match="README"):
        build.write(SECOND, course, "0" * 40, Answers({}, {}), {THEIRS})
    assert (course / "grader/judge/correctness.py").read_bytes() == FIRST["grader/judge/correctness.py"].data


def test_the_page_on_changes_gives_these_commands():
    words = " ".join((ROOT / "labs" / "CHANGELOG.md").read_text("utf-8").split())
    assert "git pull --no-rebase --no-edit" in words
    assert "git merge -s ours --allow-unrelated-histories --no-edit" in words
    assert "git checkout -- " in words
    assert "make reset LAB=" in words
