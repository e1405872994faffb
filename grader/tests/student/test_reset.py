"""`make reset`: the skeleton comes back, the work is kept, and no copy is ever written over."""

import os
import pty
import shutil
import subprocess
import sys

import pytest

from grader.course import catalog
from grader.course.skeleton import COPIES
from grader.student import reset as keep
from grader.tests.helpers.commands import plain_environment, python
from grader.tests.helpers.course import ROOT, copy_course

SKELETONS = sorted(path.relative_to(ROOT / COPIES) for path in (ROOT / COPIES).rglob("*.*"))
ADD = "labs/lab1_elementwise_add/elementwise_add.py"
WORK = b"# my work\n"


@pytest.fixture
def course(tmp_path):
    """A course without git and without solutions, whose lab 1 has been worked on."""
    course = copy_course(tmp_path / "course")
    shutil.rmtree(course / "solutions")
    (course / ADD).write_bytes(WORK)
    return course


@pytest.fixture
def file(course):
    (found,) = keep.student_files([catalog.load(course / "labs/lab1_elementwise_add/lab.py")], course)
    return found


def reset(course, *arguments):
    return python("-m", "grader", "reset", *arguments, root=course)


def copies(course):
    return sorted((course / "results" / "kept").rglob("*.*"))


def test_every_file_that_a_student_fills_in_has_an_equal_copy_of_its_skeleton():
    assert len(SKELETONS) >= len(catalog.find())
    assert [
        path for path in SKELETONS if (ROOT / path).read_bytes() != (ROOT / COPIES / path).read_bytes()
    ] == []
    asked = {
        entry.submission(ROOT / "labs", exercise).relative_to(ROOT)
        for entry in [*catalog.find(), *catalog.capstone()]
        for exercise in entry.lab.exercises
        if exercise.file.endswith((".py", ".cu"))
    }
    assert set(SKELETONS) == asked


def test_the_skeleton_comes_back_and_the_work_is_kept(course):
    done = reset(course, "--lab", "1")
    assert done.returncode == 0, done.stderr
    assert (course / ADD).read_bytes() == (course / COPIES / ADD).read_bytes()
    (copy,) = copies(course)
    assert copy.read_bytes() == WORK
    assert copy.parent == course / "results/kept/lab1_elementwise_add"
    assert str(copy.relative_to(course)) in done.stdout
    assert "make reset LAB=1 RESTORE=1" in done.stdout


def test_git_is_not_asked_for_the_skeleton(course):
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "mine"],
    ):
        subprocess.run(["git", *command], cwd=course, check=True)
    assert reset(course, "--lab", "1").returncode == 0
    assert (course / ADD).read_bytes() == (course / COPIES / ADD).read_bytes()


def test_an_untouched_skeleton_is_left_alone_and_nothing_is_kept(course):
    reset(course, "--lab", "1")
    before = (course / ADD).stat()
    done = reset(course, "--lab", "1")
    assert "untouched skeleton" in done.stdout
    assert ((course / ADD).stat().st_ino, len(copies(course))) == (before.st_ino, 1)


def test_work_comes_back_and_later_work_is_not_lost(course):
    reset(course, "--lab", "1")
    (course / ADD).write_bytes(b"# later work\n")
    done = reset(course, "--lab", "1", "--restore")
    assert done.returncode == 0, done.stderr
    assert (course / ADD).read_bytes() == WORK
    assert sorted(path.read_bytes() for path in copies(course)) == [b"# later work\n", WORK]
    name = next(path.name for path in copies(course) if path.read_bytes() != WORK)
    assert reset(course, "--lab", "1", "--restore", name).returncode == 0
    assert (course / ADD).read_bytes() == b"# later work\n"
    assert len(copies(course)) == 2


def test_copies_of_one_second_have_names_of_their_own(file, course, monkeypatch):
    class Clock(keep.datetime.datetime):
        @classmethod
        def now(cls):
            return cls(2026, 1, 2, 3, 4, 5)

    monkeypatch.setattr(keep.datetime, "datetime", Clock)
    written = [keep.keep(file, text, course / "results") for text in (b"one", b"two", b"three")]
    assert [path.name for path in written] == [
        "elementwise_add-20260102-030405.py",
        "elementwise_add-20260102-030405-2.py",
        "elementwise_add-20260102-030405-3.py",
    ]
    assert keep.kept(file, course / "results") == written
    assert [path.read_bytes() for path in written] == [b"one", b"two", b"three"]


def test_a_copy_that_did_not_arrive_leaves_the_work_alone(file, course, monkeypatch):
    monkeypatch.setattr(keep.os, "fsync", lambda descriptor: os.truncate(descriptor, 3))
    with pytest.raises(keep.ResetError, match="differs from what was written"):
        keep.reset(file, course / "results")
    assert (course / ADD).read_bytes() == WORK


def test_a_folder_that_takes_no_copy_leaves_the_work_alone(course):
    (course / "results").write_text("a file in the place of the folder")
    done = reset(course, "--lab", "1")
    assert done.returncode == 3
    assert "no copy can be saved" in done.stderr
    assert (course / ADD).read_bytes() == WORK


def test_a_file_saved_meanwhile_is_not_replaced(file, course, monkeypatch):
    real = keep.keep

    def save_meanwhile(*arguments):
        copy = real(*arguments)
        (course / ADD).write_bytes(b"# newest\n")
        return copy

    monkeypatch.setattr(keep, "keep", save_meanwhile)
    with pytest.raises(keep.ResetError, match="saved again meanwhile"):
        keep.reset(file, course / "results")
    assert (course / ADD).read_bytes() == b"# newest\n"


@pytest.mark.parametrize(("answer", "is_reset"), [(b"n\n", False), (b"\n", False), (b"y\n", True)])
def test_a_terminal_is_asked_first_and_no_is_the_answer_to_a_bare_return(course, answer, is_reset):
    terminal, end = pty.openpty()
    command = [sys.executable, "-B", "-m", "grader", "reset", "--lab", "1"]
    with subprocess.Popen(
        command, cwd=course, env=plain_environment(), stdin=end, stdout=subprocess.PIPE
    ) as asked:
        os.write(terminal, answer)
        out = asked.communicate(timeout=60)[0].decode()
    os.close(terminal)
    os.close(end)
    assert asked.returncode == 0
    assert ("nothing was changed" in out) != is_reset
    assert ((course / ADD).read_bytes() == WORK) != is_reset


def test_a_missing_file_is_written_again(course):
    (course / ADD).unlink()
    assert reset(course, "--lab", "1").returncode == 0
    assert (course / ADD).read_bytes() == (course / COPIES / ADD).read_bytes()


def test_a_link_in_the_place_of_the_file_is_refused(course, tmp_path):
    (tmp_path / "elsewhere.py").write_bytes(WORK)
    (course / ADD).unlink()
    (course / ADD).symlink_to(tmp_path / "elsewhere.py")
    done = reset(course, "--lab", "1")
    assert done.returncode == 3
    assert "is a link" in done.stderr
    assert (course / ADD).is_symlink()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lab", "4"], "softmax.py, layer_norm.py"),
        (["--lab", "4", "-k", "rows"], "matches no file of the lab"),
        (["--lab", "1", "-k", "lab.py"], "matches no file of the lab"),
        (["--lab", "capstone", "-k", "KERNEL_LOG.md"], "matches no file of the lab"),
        (["--lab", "7"], "the labs are 1, 2, 3, 4"),
        # A file of this name, and a function of this name in another file.
        (["--lab", "4", "-k", "rms_norm"], "matches several files: rms_norm.py, rms_norm_backward.py"),
    ],
)
def test_what_no_student_fills_in_is_refused_with_the_files_there_are(course, arguments, words):
    done = reset(course, *arguments)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("word", ["rms_norm.py", "rms_norm_forward"])
def test_a_file_is_named_by_itself_or_by_a_function_in_it(course, word):
    (course / "labs/lab4_production_slice/rms_norm.py").write_bytes(WORK)
    assert reset(course, "--lab", "4", "-k", word).returncode == 0
    assert [path.read_bytes() for path in copies(course)] == [WORK]


def test_a_file_of_the_capstone_keeps_the_folder_it_lies_in(course):
    (course / "gpu-programming/cuda-kernels/matmul/01_naive.cu").write_bytes(WORK)
    done = reset(course, "--lab", "capstone", "-k", "matmul_naive")
    assert done.returncode == 0, done.stderr
    (copy,) = copies(course)
    assert copy.parent == course / "results/kept/cuda-kernels/matmul"


def test_a_copy_that_is_not_there_is_said_with_those_that_are(course):
    done = reset(course, "--lab", "1", "--restore")
    assert done.returncode == 3
    assert "no copy of elementwise_add.py" in done.stderr
    reset(course, "--lab", "1")
    done = reset(course, "--lab", "1", "--restore", "nonsense.py")
    assert "there are elementwise_add-" in done.stderr


def test_make_clean_leaves_the_kept_work(course):
    shutil.copyfile(ROOT / "Makefile", course / "Makefile")
    reset(course, "--lab", "1")
    (course / "results" / "results.json").write_text("{}")
    subprocess.run(["make", "clean"], cwd=course, check=True)
    assert [path.read_bytes() for path in copies(course)] == [WORK]
    assert not (course / "results" / "results.json").exists()
