"""Submissions are taken in safely: every attack by name, and what platforms make of honest files."""

import datetime
import os
import shutil
import stat
import struct
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from grader.classroom.intake import entries, expected_files, git_repositories, intake
from grader.classroom.intake.attempts import Policy
from grader.classroom.intake.contents import MOST_MEMBERS
from grader.classroom.intake.roster import Roster, RosterError
from grader.classroom.intake.roster import read as read_roster
from grader.classroom.intake.student_ids import Key, Kind
from grader.classroom.records import Intake
from grader.classroom.run_folder import RunFolder

UNIT, FILE = "lab1_elementwise_add", "elementwise_add.py"
PATH = f"{UNIT}/{FILE}"
UNITS = expected_files.units()


class Desk:
    """A folder of submissions, and what is taken in of it."""

    def __init__(self, folder: Path):
        self.folder, self.run = folder / "submissions", RunFolder(folder / "out")
        self.folder.mkdir()

    def write(self, name: str, text: str | bytes = "mine") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def zip(self, name: str, *members: tuple[str | zipfile.ZipInfo, str | bytes]) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in members:
                archive.writestr(member, data)
        return path

    def git(self, *arguments: str, name: str = "ada", date: str = "2026-01-01T00:00:00Z") -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(self.folder / name), *who, *arguments]
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.folder),
            "GIT_COMMITTER_DATE": date,
        }
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return done.stdout.strip()

    def commit(self, name: str = "ada", text: str = "mine") -> str:
        self.write(f"{name}/labs/{PATH}", text)
        self.git("init", "-q", name=name)
        self.git("add", "-A", name=name)
        self.git("commit", "-qm", "work", "--date=2026-01-01T00:00:00Z", name=name)
        return self.git("rev-parse", "HEAD", name=name)

    def take(self, roster: Roster | None = None, policy: Policy = Policy.LAST) -> dict[str, Intake]:
        roster = roster or Roster()
        handed_in = entries.by_student(self.folder, roster)
        found, self.unknown, self.strays = handed_in.found, handed_in.unknown, handed_in.strays
        everyone = {*found, *roster.students}
        return {
            one: intake.collect(found.get(one, entries.HandedIn(one)), roster, UNITS, self.run, policy)
            for one in sorted(everyone)
        }

    def text(self, student: str = "ada", path: str = PATH) -> str:
        return (self.run.student(student).files / path).read_text("utf-8")

    def roster(self, text: str) -> Roster:
        path = self.folder.parent / "roster.csv"
        path.write_text(text, "utf-8")
        return read_roster(path)


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def taken(one: Intake) -> list[str]:
    return [file.path for file in one.files]


def why(one: Intake) -> str:
    return "\n".join(f"{left.found}: {left.why}" for left in one.left_out)


@pytest.mark.parametrize("place", [FILE, PATH, f"labs/{PATH}", f"my work/labs/{PATH}"])
def test_a_file_is_found_flat_in_its_lab_or_below_one_more_folder(desk, place):
    desk.write(f"ada/{place}")
    desk.zip("bob.zip", (place, "mine"))
    found = desk.take()
    assert taken(found["ada"]) == taken(found["bob"]) == [PATH]
    assert desk.text("ada") == desk.text("bob") == "mine"


def test_only_collected_files_are_copied_out(desk):
    desk.write(f"ada/labs/{PATH}")
    for name in (
        "conftest.py",
        "labs/lab1_elementwise_add/lab.py",
        "grader/judge/correctness.py",
        "sitecustomize.py",
    ):
        desk.write(f"ada/{name}")
    one = desk.take()["ada"]
    assert taken(one) == [PATH]
    assert [p.name for p in desk.run.student("ada").files.rglob("*.py")] == [FILE]
    assert "lab.py: not a collected file" in why(one)


@pytest.mark.parametrize(
    "name", [f"../../{FILE}", f"/{FILE}", f"a\\..\\{FILE}", f"c:{FILE}", f"a/../../b/{FILE}"]
)
def test_zip_slip_is_left_out_and_nothing_lands_outside(desk, name):
    desk.zip("ada.zip", (zipfile.ZipInfo(name), "evil"), (f"x/{PATH}", "mine"))
    one = desk.take()["ada"]
    assert taken(one) == [PATH]
    assert desk.text() == "mine"
    assert "its name" in why(one)
    assert not [path for path in desk.folder.parent.rglob(FILE) if desk.run.root not in path.parents]


def test_link_in_an_archive_is_refused_by_name(desk):
    link = zipfile.ZipInfo(PATH)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    desk.zip("ada.zip", (link, "/etc/passwd"))
    one = desk.take()["ada"]
    assert not one.files
    assert [(left.unit, left.why) for left in one.left_out] == [(UNIT, "it is a link, not a file")]


def test_device_in_an_archive_is_refused_by_name(desk):
    device = zipfile.ZipInfo(PATH)
    device.external_attr = (stat.S_IFCHR | 0o666) << 16
    desk.zip("ada.zip", (device, ""))
    assert "neither a file nor a folder" in why(desk.take()["ada"])


def test_link_to_a_file_in_a_folder_is_not_followed(desk):
    (desk.folder.parent / "secret.py").write_text("secret")
    desk.write("ada/notes.txt")
    (desk.folder / "ada" / FILE).symlink_to(desk.folder.parent / "secret.py")
    one = desk.take()["ada"]
    assert not one.files
    assert "it is a link, not a file" in why(one)


def test_link_to_a_folder_is_not_entered(desk):
    elsewhere = desk.folder.parent / "elsewhere" / UNIT
    elsewhere.mkdir(parents=True)
    (elsewhere / FILE).write_text("secret")
    desk.write("ada/notes.txt")
    (desk.folder / "ada" / UNIT).symlink_to(elsewhere)
    one = desk.take()["ada"]
    assert not one.files
    assert UNIT in why(one)


def test_submission_that_is_itself_a_link_is_refused(desk):
    (desk.folder.parent / "elsewhere").mkdir()
    (desk.folder / "ada").symlink_to(desk.folder.parent / "elsewhere")
    assert "is a link" in desk.take()["ada"].problem


def test_hard_link_to_the_file_of_another_is_not_taken(desk):
    other = desk.write(f"bob/{FILE}", "of bob")
    (desk.folder / "ada").mkdir()
    os.link(other, desk.folder / "ada" / FILE)
    found = desk.take()
    assert not found["ada"].files
    assert "a hard link" in why(found["ada"])


def test_pipe_and_socket_do_not_stop_the_intake(desk):
    desk.write("ada/notes.txt")
    os.mkfifo(desk.folder / "ada" / FILE)
    one = desk.take()["ada"]
    assert not one.files
    assert "neither a file nor a folder" in why(one)


def test_bomb_of_one_file_is_not_unpacked(desk):
    desk.zip("ada.zip", (PATH, b"\0" * (900 << 10)))
    one = desk.take()["ada"]
    assert not one.files
    assert "to 1" in why(one)


def test_file_beyond_the_size_is_left_out_with_its_size(desk):
    desk.write(f"ada/{FILE}", os.urandom(3 << 20))
    desk.zip("bob.zip", (FILE, os.urandom(3 << 20)))
    found = desk.take()
    assert "3,145,728 bytes" in why(found["ada"])
    assert "3,145,728 bytes" in why(found["bob"])


def test_archive_that_lies_about_a_size_is_damaged(desk):
    path = desk.zip("ada.zip", (PATH, "#" * 5000))
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\1\2")
    data[at + 24 : at + 28] = struct.pack("<I", 10)  # claims ten bytes
    path.write_bytes(data)
    one = desk.take()["ada"]
    assert not one.files
    assert "damaged" in why(one)


def test_bomb_of_claimed_sizes_is_refused_whole(desk):
    path = desk.zip("ada.zip", *((f"{number}.txt", "x") for number in range(8)))
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\1\2")
    while at >= 0:
        data[at + 24 : at + 28] = struct.pack("<I", 1 << 30)
        at = data.find(b"PK\1\2", at + 4)
    path.write_bytes(data)
    assert "unpacks to more than" in desk.take()["ada"].problem


def test_bomb_of_many_members_is_refused_whole(desk):
    path = desk.folder / "ada.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(MOST_MEMBERS + 1):
            archive.writestr(zipfile.ZipInfo(str(number)), "")
    assert f"more than {MOST_MEMBERS:,} files" in desk.take()["ada"].problem


def test_list_that_claims_to_be_huge_is_not_read(desk):
    path = desk.zip("ada.zip", (PATH, "mine"))
    data = bytearray(path.read_bytes())
    at = data.rfind(b"PK\5\6")
    data[at + 12 : at + 16] = struct.pack("<I", 1 << 30)
    path.write_bytes(data)
    assert "lists more than" in desk.take()["ada"].problem


@pytest.mark.parametrize("name", ["nothing at all", "cut off", "no zip", "middle overwritten"])
def test_damaged_archive_is_refused_with_words(desk, name):
    path = desk.zip("ada.zip", (PATH, os.urandom(5000)))
    data = path.read_bytes()
    path.write_bytes(
        {
            "nothing at all": b"",
            "cut off": data[:-40],
            "no zip": b"<html>log in first</html>" * 40,
            "middle overwritten": data[:200] + b"\xff" * 500 + data[700:],
        }[name]
    )
    one = desk.take()["ada"]
    assert not one.files
    assert "damaged" in one.problem + why(one)


def test_encrypted_archive_is_refused_with_words(desk):
    path = desk.zip("ada.zip", (PATH, "mine"))
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.find(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert "encrypted" in desk.take()["ada"].problem


@pytest.mark.parametrize(
    "name",
    ["elementwise_add\u202e.py", "elementwise\u200b_add.py", f"{FILE}\x07", f"\ufeff{FILE}"],
)
def test_name_with_characters_that_cannot_be_seen_is_left_out(desk, name):
    desk.zip("ada.zip", (name, "evil"), ("other.txt", ""))
    one = desk.take()["ada"]
    assert not one.files
    assert "cannot be seen" in why(one)
    assert not any(char in why(one) for char in "\u202e\u200b\x07\ufeff")


def test_name_cut_by_a_zero_byte_is_not_taken(desk):
    path = desk.zip("ada.zip", (f"{UNIT}/elementwise_add.pyX.txt", "evil"))
    path.write_bytes(path.read_bytes().replace(b"elementwise_add.pyX", b"elementwise_add.py\0"))
    assert not desk.take()["ada"].files


@pytest.mark.parametrize("name", ["Elementwise_Add.py", "ELEMENTWISE_ADD.PY", "\uff45lementwise_add.py"])
def test_name_that_only_looks_right_is_named_and_not_taken(desk, name):
    desk.write(f"ada/{name}")
    one = desk.take()["ada"]
    assert not one.files
    assert f"its name is similar to {PATH}" in why(one)
    assert one.left_out[0].unit == UNIT


def test_of_two_names_that_differ_in_case_the_right_one_is_taken(desk):
    desk.zip("ada.zip", ("Elementwise_add.py", "evil"), ("elementwise_add.py", "mine"))
    one = desk.take()["ada"]
    assert desk.text() == "mine"
    assert "Elementwise_add.py" in why(one)


def test_same_name_twice_in_an_archive_is_refused_where_the_two_differ(desk):
    with pytest.warns(UserWarning, match="Duplicate name"):
        desk.zip("ada.zip", (PATH, "one"), (PATH, "two"))
    with pytest.warns(UserWarning, match="Duplicate name"):
        desk.zip("bob.zip", (PATH, "one"), (PATH, "one"))
    found = desk.take()
    assert not found["ada"].files
    assert "two files of one name" in why(found["ada"])
    assert taken(found["bob"]) == [PATH]


def test_two_files_of_one_name_side_by_side_are_refused_and_both_named(desk):
    desk.write(f"ada/a/{FILE}", "one")
    desk.write(f"ada/b/{FILE}", "two")
    one = desk.take()["ada"]
    assert not one.files
    assert f"a/{FILE} and b/{FILE}" in why(one)


def test_of_two_files_at_two_depths_the_upper_one_is_taken(desk):
    desk.write(f"ada/labs/{PATH}", "mine")
    desk.write(f"ada/old/copy/labs/{PATH}", "old")
    one = desk.take()["ada"]
    assert desk.text() == "mine"
    assert f"labs/{PATH} was taken" in why(one)


def test_file_in_its_labs_folder_goes_before_one_of_its_name_anywhere(desk):
    desk.write(f"ada/{FILE}", "a stray one")
    desk.write(f"ada/deep/down/{PATH}", "mine")
    desk.take()
    assert desk.text() == "mine"


def test_what_tools_leave_is_passed_over_in_silence(desk):
    desk.write(f"ada/{PATH}")
    for name in (
        "__MACOSX/._elementwise_add.py",
        ".DS_Store",
        ".ipynb_checkpoints/elementwise_add.py",
    ):
        desk.write(f"ada/{name}")
    one = desk.take()["ada"]
    assert taken(one) == [PATH]
    assert not one.left_out


def test_deep_and_long_paths_are_left_out(desk):
    desk.zip("ada.zip", ("/".join("d" * 40) + f"/{FILE}", "deep"), ("x" * 250 + f"/{FILE}", "long"))
    one = desk.take()["ada"]
    assert not one.files
    assert "too long" in why(one)


def test_upload_that_is_neither_folder_zip_nor_repository_is_named(desk):
    desk.write("ada.rar")
    one = next(iter(desk.take().values()))
    assert "neither a folder, a zip, a .tar.gz, nor a git repository" in one.problem


def test_two_attempts_without_a_certain_order_are_refused_and_both_named(desk):
    stamp = zipfile.ZipInfo(FILE, time.localtime()[:6])
    desk.write(f"ada/{FILE}")
    desk.zip("ada.zip", (stamp, "other"))
    one = desk.take()["ada"]
    assert not one.files
    assert "as ada and ada.zip, and no time says which is the last" in why(one)


def attempt_of(desk, name: str, hour: int, text: str, *more: str) -> None:
    for file in (FILE, *more):
        path = desk.write(f"{name}/{file}", text)
        moment = datetime.datetime(2027, 1, 1, hour, tzinfo=datetime.timezone.utc).timestamp()
        os.utime(path, (moment, moment))


@pytest.mark.parametrize(("policy", "text"), [(Policy.LAST, "second"), (Policy.REFUSE, None)])
def test_of_two_attempts_the_last_counts_or_none_and_the_other_is_named(desk, policy, text):
    attempt_of(desk, "ada", 9, "first")
    attempt_of(desk, "ada.git", 10, "second")
    one = desk.take(policy=policy)["ada"]
    assert (desk.text() if text else taken(one)) == (text or [])
    assert [left.found for left in one.left_out if left.look] == (["ada"] if text else ["ada", "ada.git"])


def test_attempts_with_different_labs_complement_each_other(desk):
    attempt_of(desk, "ada", 9, "first")
    attempt_of(desk, "ada.git", 9, "first", "online_softmax.py")
    one = desk.take(policy=Policy.REFUSE)["ada"]
    assert (taken(one), one.left_out) == ([PATH, "lab2_online_softmax/online_softmax.py"], [])


def test_an_attempt_that_cannot_be_read_is_named_beside_the_one_that_counts(desk):
    desk.write(f"ada/{FILE}")
    desk.write("ada.zip", b"no zip")
    one = desk.take()["ada"]
    assert (taken(one), one.problem) == ([PATH], "")
    assert "ada.zip: the archive is damaged" in why(one)


def test_repository_is_read_as_committed_with_its_date(desk):
    name = desk.commit()
    desk.write(f"ada/labs/{PATH}", "not committed")
    one = desk.take()["ada"]
    assert (one.kind, one.commit, desk.text()) == ("git", name, "mine")
    assert one.handed_in
    assert one.handed_in_by == "date of the commit"


def test_each_file_of_a_repository_has_the_date_of_the_last_commit_that_changed_it(desk):
    desk.commit()
    other = "lab2_online_softmax/online_softmax.py"
    desk.write(f"ada/labs/{other}", "later")
    desk.git("add", "-A")
    desk.git("commit", "-qm", "lab 2", date="2026-02-02T00:00:00Z")
    one = desk.take()["ada"]
    assert {file.path: file.changed[:10] for file in one.files} == {PATH: "2026-01-01", other: "2026-02-02"}
    assert one.handed_in[:10] == "2026-02-02"


def test_a_repository_without_its_history_has_the_date_of_its_last_commit_alone(desk):
    first = desk.commit()
    desk.write("ada/labs/notes.txt", "later")
    desk.git("add", "-A")
    desk.git("commit", "-qm", "notes", date="2026-02-02T00:00:00Z")
    (desk.folder / "ada" / ".git" / "objects" / first[:2] / first[2:]).unlink()
    one = desk.take()["ada"]
    assert taken(one) == [PATH]
    assert (one.files[0].changed, one.handed_in[:10]) == (None, "2026-02-02")


def test_bare_and_packed_repositories_are_read(desk):
    desk.commit()
    desk.git("gc", "-q")
    subprocess.run(
        ["git", "clone", "-q", "--bare", desk.folder / "ada", desk.folder / "bob.git"],
        check=True,
        capture_output=True,
    )
    found = desk.take()
    assert taken(found["ada"]) == taken(found["bob"]) == [PATH]


def test_hooks_filters_and_settings_of_a_repository_do_nothing(desk):
    desk.commit()
    trap = desk.folder.parent / "sprung"
    inner = desk.folder / "ada" / ".git"
    (inner / "config").write_text(
        f"[core]\n fsmonitor = touch {trap}\n sshCommand = touch {trap}\n pager = touch {trap}\n"
        f'[filter "x"]\n smudge = touch {trap}\n clean = touch {trap}\n[include]\n path = /dev/zero\n'
        f'[extensions]\n partialClone = origin\n[remote "origin"]\n url = ext::touch {trap}\n'
    )
    (inner / "info" / "attributes").write_text("*.py filter=x\n")
    for hook in ("post-checkout", "pre-commit", "reference-transaction"):
        (inner / "hooks").mkdir(exist_ok=True)
        (inner / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {trap}\n")
        (inner / "hooks" / hook).chmod(0o755)
    assert taken(desk.take()["ada"]) == [PATH]
    assert not trap.exists()


def test_a_git_that_does_not_end_refuses_its_repository_alone(desk, tmp_path, monkeypatch):
    desk.commit()
    desk.write(f"bob/{FILE}")
    hanging = tmp_path / "bin" / "git"
    hanging.parent.mkdir()
    listing = 'case "$*" in *ls-tree*) exec >&-; exec sleep 60;; esac'
    hanging.write_text(f'#!/bin/sh\n{listing}\nexec {shutil.which("git")} "$@"\n')
    hanging.chmod(0o755)
    monkeypatch.setenv("PATH", f"{hanging.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(git_repositories, "LIMIT_S", 1.0)
    found = desk.take()
    assert "its files cannot be listed" in found["ada"].problem
    assert taken(found["bob"]) == [PATH]


def test_missing_object_of_a_repository_is_not_fetched(desk):
    desk.commit()
    blob = desk.git("rev-parse", f"HEAD:labs/{PATH}")
    (desk.folder / "ada" / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    one = desk.take()["ada"]
    assert not one.files
    assert "damaged" in one.problem + why(one)


@pytest.mark.parametrize(
    "borrowed", ["alternates", "linked objects", "file for .git", "linked HEAD", "commondir"]
)
def test_repository_that_borrows_from_another_is_refused(desk, borrowed):
    name = desk.commit("secret", "the solution")
    desk.commit()
    ours, theirs = desk.folder / "ada" / ".git", desk.folder / "secret" / ".git"
    (ours / "HEAD").write_text(f"{name}\n")
    if borrowed == "alternates":
        (ours / "objects" / "info").mkdir(exist_ok=True)
        (ours / "objects" / "info" / "alternates").write_text(f"{theirs / 'objects'}\n")
    elif borrowed == "linked objects":
        (ours / "objects").rename(ours / "own")
        (ours / "objects").symlink_to(theirs / "objects")
    elif borrowed == "file for .git":
        ours.rename(desk.folder.parent / "moved")
        ours.write_text(f"gitdir: {theirs}\n")
    elif borrowed == "linked HEAD":
        (ours / "HEAD").unlink()
        (ours / "HEAD").symlink_to(theirs / "HEAD")
    else:
        (ours / "commondir").write_text(f"{theirs}\n")
    one = desk.take()["ada"]
    assert one.problem
    assert not one.files


@pytest.mark.parametrize("head", ["ref: refs/heads/../../../secret", "ref: /etc/passwd", "nonsense", ""])
def test_head_that_leads_elsewhere_names_no_commit(desk, head):
    desk.commit()
    (desk.folder / "ada" / ".git" / "HEAD").write_text(head)
    assert "HEAD" in desk.take()["ada"].problem


def test_link_in_a_repository_is_not_followed(desk):
    desk.write("ada/notes.txt")
    (desk.folder / "ada" / FILE).symlink_to("/etc/passwd")
    desk.commit("ada")
    desk.git("rm", "-q", "--cached", f"labs/{PATH}")
    desk.git("commit", "-qm", "only the link")
    one = desk.take()["ada"]
    assert not one.files
    assert "it is a link" in why(one)


def test_repository_without_a_commit_is_refused_with_words(desk):
    (desk.folder / "ada").mkdir()
    desk.git("init", "-q")
    assert "nothing was committed" in desk.take()["ada"].problem


def test_canvas_files_of_one_student_come_together_and_late_marks_are_kept(desk):
    desk.write("lovelaceada_LATE_123456_98765_elementwise_add-1.py", "second")
    desk.write("lovelaceada_LATE_123456_98766_online_softmax.py")
    roster = desk.roster(
        'Student,ID,SIS Login ID,Section\n    Points Possible,,,\n"Lovelace, Ada",123456,al1,1\n'
    )
    one = desk.take(roster)["al1"]
    assert taken(one) == [PATH, "lab2_online_softmax/online_softmax.py"]
    assert one.marked_late
    assert desk.text("al1") == "second"
    assert not desk.unknown


def test_canvas_files_of_one_name_are_refused_and_both_named(desk):
    desk.write("lovelaceada_123456_98765_elementwise_add.py", "one")
    desk.write("lovelaceada_123456_98766_elementwise_add-1.py", "two")
    one = next(iter(desk.take().values()))
    assert not one.files
    assert "98765_elementwise_add.py and lovelaceada_123456_98766" in why(one)


@pytest.mark.parametrize("inside", ["zip", "file"])
def test_moodle_folder_finds_its_student_by_name(desk, inside):
    folder = "Zoë Müller_4711_assignsubmission_file_"
    if inside == "zip":
        desk.zip(f"{folder}/my work.zip", (f"labs/{PATH}", "mine"))
    else:
        desk.write(f"{folder}/{FILE}")
    desk.write("Zoë Müller_4711_assignsubmission_onlinetext_/onlinetext.html")
    roster = desk.roster(
        "First name;Surname;Email address\nZoë;Müller;zm@example.org\nNo;Body;nb@example.org\n"
    )
    found = desk.take(roster)
    assert taken(found["zm@example.org"]) == [PATH]
    assert (found["nb@example.org"].kind, found["nb@example.org"].problem) == ("nothing", "")


def test_missing_students_get_a_record_and_unknown_ones_are_named(desk):
    desk.write(f"ada/{FILE}")
    desk.write(f"stranger/{FILE}")
    found = desk.take(desk.roster("id,name\nada,Ada\nbob,Bob\n"))
    assert sorted(found) == ["ada", "bob", "stranger"]
    assert desk.unknown == ["stranger"]
    assert [found[name].on_roster for name in sorted(found)] == [True, True, False]
    assert found["bob"].kind == "nothing"


def test_name_that_two_students_share_names_neither(desk):
    desk.write(f"Ada Byron_4711_assignsubmission_file_/{FILE}")
    desk.take(desk.roster("id,name\na1,Ada Byron\na2,Ada Byron\n"))
    assert [name.startswith("Ada-Byron-4711-") for name in desk.unknown] == [True]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("pair", [("an.li", "anli"), ("j.doe@uni.edu", "jd.oe@uni.edu"), ("1-23", "12-3")])
def test_ids_that_differ_in_punctuation_alone_are_two_students(desk, pair, turned):
    first, second = reversed(pair) if turned else pair
    for name in pair:
        desk.write(f"{name}/{FILE}", name)
    found = desk.take(desk.roster(f"id\n{first}\n{second}\n"))
    assert (sorted(found), desk.unknown) == (sorted(pair), [])
    assert [desk.text(name) for name in pair] == list(pair)


@pytest.mark.parametrize(
    ("lines", "handed_in", "student"),
    [("an.li,,\nanli,,", "an-li", None),  # the same but for punctuation: nobody, not whoever stands last
     ("anli,,\nan.li,,", "an-li", None), ("anli,,\nan.li,,", "An.Li", "an.li"),
     ("an.li,,\nbob,,", "an-li", "an.li"), ("anli,Bob,\nan.li,,", "anli", "anli"),
     ("zoe,An Li,\nanli,,", "anli", "anli"), ("zoe,An Li,\nan.li,,", "anli", None),
     ("zoe,anli,\nanli,,", "anli", "anli"), ("zoe,anli,\nanli,,", "ANLI", None),
     ("a1,,j.doe@uni.edu\na2,,jd.oe@uni.edu", "J.Doe@uni.edu", "a1"),
     ("a1,,j.doe@uni.edu\na2,,jd.oe@uni.edu", "jdoe@uni.edu", None)],
)  # fmt: skip
def test_a_looser_word_means_one_student_or_nobody(desk, lines, handed_in, student):
    for text in (lines, "\n".join(reversed(lines.split("\n")))):
        found = desk.roster(f"id,name,email\n{text}\n").match((Key(handed_in),))
        assert found.students == ((student,) if student else ())


def test_a_number_of_the_platform_comes_before_a_name_that_is_somebodys_id(desk):
    roster = desk.roster("id,identifier,name\nada,Participant 4711,Ada\nbob,Participant 47-12,Bob\n")
    number, name = (Key("4711", (Kind.NUMBER,)), Key("bob", (Kind.NAME,)))
    assert roster.match((number, Key("ada", (Kind.NAME,)))).students == ("ada",)
    unknown = roster.match((Key("4712", (Kind.NUMBER,)), name))  # a number is never nearly equal
    assert (unknown.students, unknown.could_be) == ((), ("bob",))
    contradiction = roster.match((number, name))
    assert (contradiction.students, contradiction.could_be) == ((), ("ada", "bob"))


def test_odd_names_of_submissions_become_safe_and_different_ids(desk):
    for name in ("..hidden", "a b", "a  b", "é", "-rf", "con.", "x" * 120):
        desk.write(f"{name}/{FILE}")
    found = desk.take()
    assert len(found) == 6  # what begins with a dot is no submission
    assert all(one.isascii() and one[0].isalnum() and "/" not in one and len(one) <= 64 for one in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [("id,name\na,A\nb,B\na,C\n", "roster.csv:4: a is in line 2"), ("name\nA\n", "no column with"),
     ("id,name\n,A\n", "roster.csv:2: no id"), ("id,name\n", "no student"), ("", "no column with ids")],
)  # fmt: skip
def test_roster_that_cannot_be_used_is_refused_with_its_line(desk, text, words):
    with pytest.raises(RosterError, match=words):
        desk.roster(text)


def test_what_was_taken_is_replaced_whole_when_the_submission_changes(desk):
    desk.write(f"ada/{FILE}", "first")
    desk.write("ada/online_softmax.py")
    desk.take()
    inode = (desk.run.student("ada").files / PATH).stat().st_ino
    desk.take()
    assert (desk.run.student("ada").files / PATH).stat().st_ino == inode  # the same files are left alone
    desk.write(f"ada/{FILE}", "second")
    (desk.folder / "ada" / "online_softmax.py").unlink()
    desk.take()
    assert desk.text() == "second"
    assert not (desk.run.student("ada").files / "lab2_online_softmax").exists()


def test_capstone_is_taken_with_the_records_that_its_documents_name(desk):
    for name in ("KERNEL_LOG.md", "kernel-log/0001/record.json", "kernel-log/0001/01_naive.cu",
                 "hardware-survey/survey.json", "hardware-survey/README.md", "cuda-kernels/plots/a.svg",
                 "cuda-kernels/matmul/01_naive.cu", "triton-kernels/swiglu.py", "triton-kernels/lab.py",
                 "kernel-log/0001/deep/er.cu", "cuda-kernels/matmul/a.out"):  # fmt: skip
        desk.write(f"ada/gpu-programming/{name}")
    one = desk.take()["ada"]
    assert len(taken(one)) == 8
    assert not {
        "gpu-programming/triton-kernels/lab.py",
        "gpu-programming/cuda-kernels/matmul/a.out",
    } & set(taken(one))


NAMES = [
    f"../../anna/{PATH}", "/tmp/absolute.py", f"C:\\lab\\{PATH}", f"..\\..\\{PATH}",
    f"labs/./../labs/{PATH}",
    f"labs/{PATH}/", f"labs/{PATH.upper()}", f"labs/{PATH} ", f"labs/{PATH}.", f"labs/{UNIT}/{FILE.upper()}",
    f"labs/{UNIT}/elementwise_\u0430dd.py", f"labs/{UNIT}/elementwise_add\u202eyp.exe", f"labs/{UNIT}/lab.py",
    "labs/conftest.py", "sitecustomize.py", "pyproject.toml", "grader/__init__.py", "torch/__init__.py",
    f"labs/{UNIT}/torch.py", f"labs/{'d/' * 3000}{FILE}", f"labs/{'n' * 5000}.py", "-rf", "--help",
    "labs/$(touch sprung).py", "labs/\n| 1 | 100 |.py", f"=cmd|' /C calc'!A0/{PATH}", "NUL", "con.py",
    "..", ".",
    f"<img src=x onerror=alert(1)>/{PATH}", f"\x1b[2J/{PATH}", f"labs//{PATH}",
]  # fmt: skip


def test_an_archive_full_of_odd_names_links_and_devices_changes_nothing_of_others(desk):
    desk.write(f"anna/{PATH}", "of anna")
    link = zipfile.ZipInfo("labs/lab2_online_softmax")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    devices = [zipfile.ZipInfo(f"labs/odd{at}") for at in range(4)]
    for one, mode in zip(devices, (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK), strict=True):
        one.external_attr = (mode | 0o777) << 16
    path = desk.zip(
        "=1+1<script>.zip",
        *((zipfile.ZipInfo(name), "evil") for name in NAMES),
        (link, "../../../../etc"),
        ("labs/lab2_online_softmax/online_softmax.py", "below the link"),
        *((one, "") for one in devices),
        (f"labs/{PATH}", "mine"),
    )
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"PK\x05\x06" + bytes(18)  # a second end of the list of members
    before = {one: one.read_bytes() for one in desk.folder.rglob("*") if one.is_file()}
    found = desk.take()
    assert desk.text("anna") == "of anna"
    assert {one: one.read_bytes() for one in desk.folder.rglob("*") if one.is_file()} == before
    assert all(one.isascii() and one[0].isalnum() and "/" not in one for one in found)
    kept = [one for one in desk.run.root.rglob("*") if one.suffix == ".py"]
    assert {one.relative_to(desk.run.root).parts[-2:] for one in kept} <= {
        (UNIT, FILE), ("lab2_online_softmax", "online_softmax.py"),
    }  # fmt: skip
    assert not any(one.is_symlink() for one in desk.run.root.rglob("*"))
    assert not Path("/tmp/absolute.py").exists()


def test_a_repository_full_of_traps_is_read_as_its_head_says(desk, tmp_path):
    trap = tmp_path / "sprung"
    first = desk.commit(text="mine")
    desk.write(f"ada/labs/{PATH}", "later")
    desk.git("commit", "-qam", "\x1b[2J100 of 100\n\n]]></x> | PASS | 100 |", date="1999-01-02T00:00:00Z")
    head = desk.git("rev-parse", "HEAD")
    desk.git("replace", head, first)
    for name in ("refs/heads/$(touch${IFS}sprung)", "refs/heads/<img/src=x>", "refs/heads/origin/HEAD"):
        desk.git("update-ref", name, first)
    desk.git("tag", "HEAD", first)
    inner = desk.folder / "ada" / ".git"
    (inner / "info" / "grafts").write_text(f"{head}\n")
    (inner / "config").write_text(
        f"[core]\n worktree = /\n hooksPath = .githooks\n fsmonitor = touch {trap}\n"
        f'[alias]\n log = !touch {trap}\n show = !touch {trap}\n[gpg]\n program = {trap}\n[diff "x"]\n'
        f" textconv = touch {trap}\n[credential]\n helper = {trap}\n[include]\n path = /proc/self/environ\n"
        "[log]\n showSignature = true\n"
    )
    desk.write("ada/.gitattributes", "*.py filter=x diff=x export-subst ident encoding=UTF-16\n")
    desk.write("ada/.gitmodules", f'[submodule "a"]\n path = labs\n url = -u./x\n update = !touch {trap}\n')
    desk.write("ada/bare.git/HEAD", "ref: refs/heads/x\n")
    desk.write("ada/bare.git/config", f"[core]\n fsmonitor = touch {trap}\n")
    desk.write("ada/Makefile", f"all:\n\ttouch {trap}\n")
    one = desk.take()["ada"]
    assert not trap.exists()
    assert not list(tmp_path.rglob("sprung"))
    assert (one.problem, one.commit, desk.text()) == ("", head, "later")
