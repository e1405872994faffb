"""One hand-in never stops a class, and work on it has a limit; who is not certain is told."""

import tarfile
import time

import pytest

from grader.classroom.intake import entries, intake
from grader.classroom.intake import roster as rosters
from grader.classroom.intake.gradescope_export import ExportError
from grader.classroom.intake.roster import RosterError
from grader.classroom.run_folder import RunFolder
from grader.tests.classroom.hand_in_files import FILE, UNITS, collected, roster_of, tarred, write, zip_of


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_a_file_and_a_folder_of_one_name_are_left_out(folder):
    zip_of(folder / "ada.zip", "cuda-kernels/bench.json", "cuda-kernels/bench.json/x.cu", FILE)
    one = collected(folder, "ada")
    assert [file.path for file in one.files if file.path.endswith(FILE)] == [f"lab1_elementwise_add/{FILE}"]
    assert [left for left in one.left_out if "bench.json" in left.found]


def test_an_error_of_the_intake_costs_one_student_alone(folder, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("no")

    write(folder / "ada" / FILE)
    monkeypatch.setattr(intake.attempts, "together", fails)
    assert "the intake itself failed, ZeroDivisionError: no" in collected(folder, "ada").problem


def test_a_path_of_many_parts_takes_no_time(folder):
    zip_of(folder / "ada.zip", "/".join(["a"] * 20_000) + f"/{FILE}")
    began = time.monotonic()
    assert not collected(folder, "ada").files
    assert time.monotonic() - began < 2.0


def test_many_equal_candidates_are_not_all_read(folder):
    for number in range(40):
        write(folder / "ada" / f"d{number}" / FILE, f"{number}")
    one = collected(folder, "ada")
    assert not one.files
    assert "40 files could be" in one.left_out[0].why
    assert max(len(left.why) for left in one.left_out) < 500


def test_global_headers_of_a_tar_are_not_copied_for_every_file(folder):
    header = tarfile.TarInfo.create_pax_global_header({f"k{number}": "v" for number in range(20_000)})
    tarred(folder / "ada.tar.gz", (FILE, b"mine"), before=header)
    assert "too long" in collected(folder, "ada").problem


@pytest.mark.parametrize(
    ("text", "words"),
    [("id,name\r" + "x" * 200_000, "cannot be read as CSV|no column"),
     ("name,id\nLovelace, Ada,s1\n", "needs quotes"),
     ("id\nann lee\nann-lee-e4959174\n", "would have one folder")],
)  # fmt: skip
def test_a_roster_that_cannot_be_read_for_certain_is_an_error(folder, text, words):
    with pytest.raises(RosterError, match=words):
        roster_of(folder, text)


SUBMITTER = "submission_1:\n  :submitters:\n  - {0}\n  :created_at: {1}\n"


def metadata(folder, submitter, created="2027-01-02 10:00:00 Z"):
    write(folder / "submission_1" / FILE)
    write(folder / "submission_metadata.yml", SUBMITTER.format(submitter, created))


def test_a_time_before_all_times_is_no_time(folder):
    metadata(folder, "{':sid': ada}", "0001-01-01 00:00:00 +05:00")
    assert (
        entries.by_student(folder, roster_of(folder, "id\nada\n")).found["ada"].entries[0].submitted is None
    )


def test_metadata_that_is_nested_without_end_is_an_error(folder):
    write(folder / "submission_1" / FILE)
    write(folder / "submission_metadata.yml", "a: " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ExportError):
        entries.by_student(folder, rosters.Roster())


def test_somebody_with_the_same_name_is_not_the_student(folder):
    metadata(folder, "{':name': Wei Chen, ':sid': s2, ':email': wei2@x.edu}")
    found = entries.by_student(folder, roster_of(folder, "id,email,name\ns1,wei1@x.edu,Wei Chen\n"))
    assert found.found["submission_1"].could_be == ("s1",)
    assert found.found["s1"].doubtful == ["submission_1"]


def test_a_group_with_an_unknown_member_is_told(folder):
    metadata(folder, "{':sid': s1}\n  - {':sid': s9, ':name': Bob New}")
    found = entries.by_student(folder, roster_of(folder, "id\ns1\n"))
    assert (found.unknown, found.found["s1"].doubtful) == (["submission_1"], ["submission_1"])


def test_a_repository_of_an_account_that_nobody_has_is_not_a_shorter_accounts(folder):
    for name in ("softmax-li", "softmax-wei-li", "softmax-zoe"):
        write(folder / name / FILE)
    roster = roster_of(folder, "identifier,github_username,name\ns1,li,\ns2,,Wei Li\ns3,zoe,\n")
    found = entries.by_student(folder, roster).found
    assert [one.path.name for one in found["s1"].entries] == ["softmax-li"]
    assert found["s1"].doubtful == ["softmax-wei-li"]


def test_two_users_of_canvas_with_one_name_are_not_one_student(folder):
    write(folder / f"chenwei_11_101_{FILE}")
    write(folder / "chenwei_22_102_online_softmax.py")
    found = entries.by_student(folder, roster_of(folder, 'id,name\ns1,"Chen, Wei"\n')).found
    assert (found["s1"].entries, len(found["s1"].doubtful)) == ([], 2)


def test_a_group_named_like_somebodys_id_is_nobodys(folder):
    write(folder / "7" / FILE)
    found = entries.by_student(folder, roster_of(folder, "id,group\n7,1\na1,7\nb1,7\n")).found
    assert sorted(found) == sorted(["7", "a1", "b1", next(one for one in found if found[one].could_be)])
    assert all(not found[one].entries for one in ("7", "a1", "b1"))


def test_a_name_that_is_no_utf_8_is_graded_like_any_other(folder):
    (folder / "ada_11_101_x.py").write_text("x")
    (folder / "ada_11_102_b\udcff.py").write_text("x")
    (folder / f"ada_11_103_{FILE}").write_text("mine")
    (student,) = entries.by_student(folder, rosters.Roster()).found
    one = intake.collect(
        entries.by_student(folder, rosters.Roster()).found[student], rosters.Roster(), UNITS,
        RunFolder(folder.parent / "out"),
    )  # fmt: skip
    assert [file.path for file in one.files] == [f"lab1_elementwise_add/{FILE}"]


def test_metadata_inside_the_only_submission_is_a_file_like_any_other(folder):
    write(folder / "mallory" / "x" / FILE)
    write(
        folder / "mallory" / "submission_metadata.yml",
        SUBMITTER.format("{':sid': bob}", "").replace("submission_1", "x"),
    )
    found = entries.by_student(folder, roster_of(folder, "id\nbob\nmallory\n")).found
    assert sorted(found) == ["mallory"]
