"""Nobody gets another's grade: shapes of rosters and of submissions, and rosters of nearly equal people."""

import csv
import io
import json
import random
import shutil
import unicodedata
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader.classroom.grading import fingerprint
from grader.classroom.grading.plan import without_files
from grader.classroom.intake import entries, expected_files, intake
from grader.classroom.intake import roster as rosters
from grader.classroom.intake.roster import Roster, RosterError
from grader.classroom.intake.student_ids import caseless
from grader.classroom.records import State
from grader.classroom.run_folder import RunFolder

HAND_INS = Path(__file__).with_name("hand_ins")  # its README names the sources of the shapes
IDENTITIES = json.loads((HAND_INS / "identity.json").read_text("utf-8"))
CONTENTS = json.loads((HAND_INS / "contents.json").read_text("utf-8"))
ROSTER_ERROR = {"roster_error": True}
UNITS = expected_files.units()


def by_name(cases):
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def put(path, is_folder, text="x"):
    if is_folder:
        path.mkdir(parents=True)
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("elementwise_add.py", "x")
    else:
        path.write_text(text)


def owners(case, folder):
    """Who gets the entry: a set of all cells of each student's row; ROSTER_ERROR if the roster is refused."""
    file, submissions = folder / "roster.csv", folder / "submissions"
    file.write_bytes(case["roster_csv"].encode(case.get("roster_encoding", "utf-8")))
    submissions.mkdir()
    put(submissions / case["entry"], case["entry_is_folder"])
    for name, text in case.get("extra_files", {}).items():
        put(submissions / name, False, text)
    try:
        roster = rosters.read(file)
    except RosterError:
        return ROSTER_ERROR
    found = entries.by_student(submissions, roster).found
    return [
        {rosters.own_id(roster.students[one.student]), *roster.students[one.student].values()}
        for one in found.values()
        if one.student in roster.students and any(e.path.name == case["entry"] for e in one.entries)
    ]


def is_right(answer, found):
    if ROSTER_ERROR in (answer, found):
        return answer == found
    names = answer if isinstance(answer, list) else [answer] if answer is not None else []
    return len(found) == len(names) and all(any(name in cells for cells in found) for name in names)


@by_name(IDENTITIES)
def test_a_submission_goes_to_its_student_or_to_nobody(case, tmp_path):
    found = owners(case, tmp_path)
    assert any(is_right(answer, found) for answer in [case["student"], *case.get("accept", [])]), case["why"]


@by_name(CONTENTS)
def test_what_is_handed_in_is_collected_or_told_to_a_person(case, tmp_path):
    folder = tmp_path / "in" / "ada"
    folder.mkdir(parents=True)
    for name, text in case["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    handed_in = entries.by_student(tmp_path / "in", Roster()).found["ada"]
    one = intake.collect(handed_in, Roster(), UNITS, RunFolder(tmp_path / "out"))
    sources = [file.found for file in one.files if file.path.startswith(f"{case['lab']}/")]
    if fingerprint.files_of(one, case["lab"]):
        got = "taken"
    else:
        got = "nothing" if without_files(one, case["lab"])[0] is State.MISSING else "alarm"
    assert got in [case["expect"], *case.get("accept", [])], case["why"]
    if case.get("must_tell"):
        assert one.left_out
    if got == "taken":
        assert set(sources) <= set(case.get("taken_from_any", [case.get("taken_from", sources[0])]))


# --- rosters of people who are nearly the same ---

ROSTERS, QUICK = 10_000, 200
BASES = (
    "an.li",
    "j.doe",
    "1-23",
    "0012",
    "zoë-müller",
    "o'neill",
    "Straße",
    "x y",
    "ada_b",
    "İpek",
    "ﬁn",
    "12",
)


def variants(base, chance):
    """A text that differs from another in case, punctuation, accents or leading zeros alone."""
    change = chance.choice(
        (str.upper, str.lower, str.title, lambda t: t.replace(".", ""), lambda t: t.replace("-", ""),
         lambda t: t[:1] + "." + t[1:], lambda t: t[:2] + "-" + t[2:], lambda t: t.replace(" ", ""),
         lambda t: "0" + t, lambda t: t.lstrip("0"), lambda t: unicodedata.normalize("NFD", t),
         lambda t: unicodedata.normalize("NFKC", t), lambda t: t.casefold(),
         lambda t: unicodedata.normalize("NFKD", t).encode("ascii", "ignore").decode(), lambda t: t)
    )  # fmt: skip
    return change(base).strip() or base


@dataclass(frozen=True)
class Person:
    own: str
    name: str
    email: str
    user: str
    account: str

    def entry(self, platform, chance):
        """What a platform calls this person's submission."""
        squeezed = "".join(filter(str.isalnum, self.name.lower())) or "x"
        return {
            "canvas": f"{squeezed}_{self.user}_98765_elementwise_add.py",
            "moodle": f"{self.name}_{self.user}_assignsubmission_file_",
            "github": f"lab1-{self.account}",
            "by hand": chance.choice((self.own, self.email, variants(self.own, chance), self.name)),
        }[platform]


HEADERS = {
    "canvas": ("Student", "ID", "SIS User ID", "SIS Login ID", "Section"),
    "moodle": ("Identifier", "Full name", "Email address"),
    "github": ("identifier", "github_username", "github_id", "name"),
    "by hand": ("id", "name", "email"),
}


def row(person, platform):
    return {
        "canvas": (person.name, person.user, person.own, person.email, "1"),
        "moodle": (f"Participant {person.user}", person.name, person.email),
        "github": (person.own, person.account, "1" + person.user, person.name),
        "by hand": (person.own, person.name, person.email),
    }[platform]


def people(chance):
    """Nearly equal people; no two have the same id, e-mail address, number or account."""
    base, found = chance.choice(BASES), []
    for k in range(chance.randint(2, 7)):
        own = variants(variants(base, chance), chance)
        name = chance.choice((variants(base, chance), "Ada Byron", own))
        email = f"{variants(base, chance)}{chance.choice(('', k))}@uni.edu"
        one = Person(own, name, email, str(chance.choice((12, 123, 1200)) + k), f"{base[:2]}-{k}".lower())
        taken = {text for other in found for text in (other.own, other.email)}
        if not {one.own, one.email} & taken and "/" not in one.own:
            found.append(one)
    return found


def fuzz(folder, chance):
    """Hand in for a class and a stranger. Returns how many got their own, and what went astray."""
    everybody = people(chance)
    platform = chance.choice(list(HEADERS))
    enrolled = everybody[:-1] or everybody
    text = io.StringIO()
    csv.writer(text).writerows([HEADERS[platform], *(row(one, platform) for one in enrolled)])
    (folder / "roster.csv").write_text(text.getvalue(), "utf-8")
    submissions, whose = folder / "in", {}
    submissions.mkdir()
    for one in chance.sample(everybody, chance.randint(1, len(everybody))):
        name = one.entry(platform, chance)
        rows = [row(other, platform) for other in everybody if other != one]
        others = {caseless(text) for cells in rows for text in cells}
        if name in whose or caseless(name) in others or not name or name.startswith(".") or "/" in name:
            continue  # two people cannot have one entry, and nobody can take another's name for it
        whose[name] = one
        put(submissions / name, not name.endswith(".py"))
    try:
        roster = rosters.read(folder / "roster.csv")
    except RosterError:
        return 0, []
    own, astray = 0, []
    for handed_in in entries.by_student(submissions, roster).found.values():
        for entry in handed_in.entries if handed_in.student in roster.students else ():
            person = whose[entry.path.name]
            line = tuple(roster.students[handed_in.student].values())
            if line == row(person, platform):
                own += 1
            elif person in enrolled or not handed_in.close:
                astray.append((platform, entry.path.name, person, line))
    return own, astray


@pytest.mark.parametrize(
    ("count", "seed"), [(QUICK, 1), pytest.param(ROSTERS, 2, marks=pytest.mark.nightly)], ids=["some", "all"]
)
def test_no_submission_goes_to_another_student(tmp_path, count, seed):
    """A stranger whose name is nearly a student's is told to a person: nothing else can be known."""
    chance, own, astray = random.Random(seed), 0, []
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        found, wrong = fuzz(folder, chance)
        own += found
        astray += wrong
        shutil.rmtree(folder)
    assert astray == []
    assert own > count  # more than one submission of each class finds its student
