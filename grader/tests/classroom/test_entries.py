"""Entries of a folder of submissions: archives, exports of platforms, partners, and what is nobody's."""

import gzip
import os
import tarfile

import pytest

from grader.classroom.intake import entries, tar_archives
from grader.classroom.intake.gradescope_export import ExportError
from grader.classroom.intake.roster import Roster
from grader.classroom.run_folder import RunFolder
from grader.tests.classroom.hand_in_files import FILE, UNIT, collected, roster_of, tarred, write

METADATA = """---
submission_1:
  :submitters:
  - :name: Ada Lovelace
    :sid: '0012'
    :email: ada@uni.edu
  :created_at: 2027-02-11 21:34:26.114541000 Z
  :history: []
submission_2:
  :submitters:
  - :name: Bob Ray
    :sid: ''
    :email: bob@uni.edu
  - :name: Cyd Charisse
    :sid: '12'
    :email: cyd@uni.edu
  :created_at: 2027-02-12 08:00:00 Z
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.mark.parametrize("name", ["ada.tar.gz", "ada.tgz", "ada/work.tar.gz"])
def test_a_tar_archive_is_read_with_its_dates(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    tarred(folder / name, (f"./labs/{UNIT}/{FILE}", b"mine"))
    one = collected(folder, "ada")
    assert [(file.path, file.changed) for file in one.files] == [
        (f"{UNIT}/{FILE}", "2027-01-15T08:00:00+00:00")
    ]


@pytest.mark.parametrize(
    ("member", "words"),
    [((f"../{FILE}", b"x"), "leads out of the submission"),
     ((FILE, b"", ("type", tarfile.SYMTYPE), ("linkname", "/etc/passwd")), "it is a link"),
     ((FILE, b"", ("type", tarfile.LNKTYPE), ("linkname", "/etc/passwd")), "it is a link"),
     ((FILE, b"", ("type", tarfile.CHRTYPE)), "neither a file nor a folder"),
     ((FILE, b"x" * (2 << 20)), "at most")],
)  # fmt: skip
def test_what_a_tar_archive_must_not_hold_is_left_out(folder, member, words):
    tarred(folder / "ada.tar.gz", member)
    one = collected(folder, "ada")
    assert not one.files
    assert [left for left in one.left_out if words in left.why]


def test_a_tar_archive_that_unpacks_to_too_much_is_refused(folder, monkeypatch):
    monkeypatch.setattr(tar_archives, "MOST_UNPACKED", 1 << 20)
    with gzip.open(folder / "ada.tar.gz", "wb") as archive:
        archive.write(bytes(3 << 20))
    assert "unpacks to more than" in collected(folder, "ada").problem


def test_a_tar_header_that_claims_a_huge_name_is_refused(folder):
    one = tarfile.TarInfo("x")
    one.type, one.size = tarfile.GNUTYPE_LONGNAME, 1 << 31
    with gzip.open(folder / "ada.tar.gz", "wb") as archive:
        archive.write(one.tobuf(tarfile.GNU_FORMAT))
    assert collected(folder, "ada").problem


@pytest.mark.parametrize(
    "data",
    [b"no archive", gzip.compress(b"no tar"), gzip.compress(b"x" * 4096)[:20]],
    ids=["no archive", "no tar", "cut off"],
)
def test_a_damaged_tar_archive_is_refused(folder, data):
    (folder / "ada.tar.gz").write_bytes(data)
    assert "damaged" in collected(folder, "ada").problem


@pytest.mark.parametrize("below", ["", "assignment_1_export"])
def test_a_gradescope_export_names_students_groups_and_times(folder, below):
    top = folder / below
    write(top / "submission_1" / FILE)
    write(top / "submission_2" / FILE, "ours")
    write(top / "submission_metadata.yml", METADATA)
    roster = roster_of(folder, "id,email\n0012,x@uni.edu\n12,cyd@uni.edu\nbob,bob@uni.edu\n")
    found = entries.by_student(folder, roster)
    assert (sorted(found.found), found.unknown) == (["0012", "12", "bob"], [])
    assert found.found["bob"].partners == ("12",)
    ada = collected(folder, "0012", roster)
    assert (ada.handed_in, ada.handed_in_by) == ("2027-02-11T21:34:26+00:00", "Gradescope")
    assert [file.changed for file in ada.files] == ["2027-02-11T21:34:26+00:00"]
    both = [collected(folder, name, roster) for name in ("12", "bob")]
    assert [(one.partners, one.graded_with) for one in both] == [(["bob"], ""), (["12"], "12")]


def test_metadata_that_cannot_be_read_is_an_error_and_not_a_class_of_strangers(folder):
    write(folder / "submission_1" / FILE)
    write(folder / "submission_metadata.yml", "submission_1: [")
    with pytest.raises(ExportError, match=r"submission_metadata\.yml: cannot be read"):
        entries.by_student(folder, Roster())


def test_a_gradescope_submitter_whose_id_is_another_ones_is_nobodys(folder):
    write(folder / "submission_1" / FILE)
    write(folder / "submission_metadata.yml", METADATA.split("submission_2")[0])
    roster = roster_of(folder, "id,email\n0012,else@uni.edu\nada,ada@uni.edu\n")
    found = entries.by_student(folder, roster)
    assert found.unknown == ["submission_1"]
    assert found.found["submission_1"].could_be == ("0012", "ada")
    for name in ("0012", "ada"):
        assert (found.found[name].entries, found.found[name].doubtful) == ([], ["submission_1"])
    assert "this could be the submission of 0012 or ada" in collected(folder, "submission_1", roster).problem


def test_a_group_of_the_roster_hands_in_together(folder):
    write(folder / "team 1" / FILE)
    roster = roster_of(folder, "id,group\nada,team 1\nbob,team 1\ncyd,team 2\n")
    found = entries.by_student(folder, roster).found
    assert sorted(found) == ["ada", "bob"]
    assert found["ada"].partners == ("bob",)


def test_partners_with_another_attempt_of_their_own_are_graded_apart(folder):
    write(folder / "team 1" / FILE)
    write(folder / "bob" / FILE, "alone")
    roster = roster_of(folder, "id,group\nada,team 1\nbob,team 1\n")
    found = entries.by_student(folder, roster).found
    assert (found["ada"].partners, found["bob"].partners) == ((), ())


def test_a_file_beside_the_submissions_is_no_student(folder):
    write(folder / "ada" / FILE)
    for name in ("roster.csv", "notes.txt", "grades.xlsx"):
        write(folder / name)
    found = entries.by_student(folder, Roster())
    assert (sorted(found.found), found.strays) == (["ada"], ["grades.xlsx", "notes.txt", "roster.csv"])


def test_a_file_named_like_a_student_is_told_not_dropped(folder):
    write(folder / "ada.py")
    found = entries.by_student(folder, roster_of(folder, "id\nada\n"))
    assert (sorted(found.found), found.strays) == (["ada"], [])
    assert "neither a folder, a zip" in collected(folder, "ada", roster_of(folder, "id\nada\n")).problem


def test_what_is_named_only_nearly_like_a_student_does_not_replace_an_exact_name(folder):
    write(folder / "an.li" / FILE, "hers")
    write(folder / "anli" / FILE, "a stranger's")
    os.utime(folder / "anli" / FILE, (4e9, 4e9))  # newer, so that it would count as the last attempt
    roster = roster_of(folder, "id\nan.li\n")
    found = entries.by_student(folder, roster)
    assert (found.unknown, found.found["an.li"].doubtful) == (["anli"], ["anli"])
    assert [file.found for file in collected(folder, "an.li", roster).files] == [FILE]
    assert (RunFolder(folder.parent / "out").student("an.li").files / UNIT / FILE).read_text() == "hers"


def test_a_made_up_id_is_never_the_id_of_a_student(folder):
    write(folder / "Ada_4711_assignsubmission_file_" / FILE)
    roster = roster_of(folder, "id,name\nAda_4711,Bob\n")
    found = entries.by_student(folder, roster)
    assert len(found.unknown) == 1
    assert "Ada_4711" not in found.found
