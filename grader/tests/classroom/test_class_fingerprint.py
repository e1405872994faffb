"""Which changes make a class be graded again: of what judges and measures, and of no text."""

import re

import pytest

from grader.classroom.grading import code_hash, fingerprint
from grader.course import catalog
from grader.tests.helpers.course import ROOT

JUDGE = """
'''What it is for.'''

def allowed(error):  # in units of the last place
    '''How much is allowed.'''
    return error < 2.0
"""
LAB = """
from grader.course.spec import Codegen, Exercise, Lab, Speed

def timed(points, shapes, scale=(30, 60, 85)):
    zero_at, passing_at, full_at = scale
    return Speed(points, shapes, BASELINES, zero_at, passing_at, full_at, bytes_moved=moved)

LAB = Lab(
    title="a lab",
    exercises=(
        Exercise("add", "add.py", 70, inputs, reference, torch_op, Tolerance(unit, floor=2.0), CASES,
                 speed=timed(30, SHAPES), codegen=Codegen(CASE, {"no spills": 5.0})),
        Exercise(name="copy", points=20, cases=CASES, speed=Speed(points=5, zero_at=40, full_at=90)),
        Document("log", "LOG.md", checks={"numbers": (10.0, check)}),
    ),
    causes={Symptom.WRONG: (1, "look at the offsets")},
)
"""


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("'''What it is for.'''", "'''What it is for, in other words.'''"),
        ("'''How much is allowed.'''", ""),
        ("  # in units of the last place", ""),
        ("def allowed", "\n\n# a new comment\ndef allowed"),
    ],
)
def test_docstrings_comments_and_layout_are_no_code(was, now):
    assert was in JUDGE
    assert code_hash.code(JUDGE.replace(was, now)) == code_hash.code(JUDGE)


@pytest.mark.parametrize(("was", "now"), [("2.0", "3.0"), ("<", "<="), ("error", "wrong")])
def test_what_is_computed_is_code(was, now):
    assert code_hash.code(JUDGE.replace(was, now)) != code_hash.code(JUDGE)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('"add.py", 70', '"add.py", 60'),
        ("timed(30,", "timed(40,"),
        ("scale=(30, 60, 85)", "scale=(30, 60, 90)"),
        ("points=20", "points=25"),
        ("full_at=90", "full_at=95"),
        ('"no spills": 5.0', '"no spills": 6.0'),
        ("(10.0, check)", "(11.0, check)"),
    ],
)
def test_points_and_thresholds_of_a_lab_score_and_measure_nothing(was, now):
    assert was in LAB
    changed = LAB.replace(was, now)
    assert code_hash.measures(changed) == code_hash.measures(LAB)
    assert code_hash.scores(changed) != code_hash.scores(LAB)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("floor=2.0", "floor=3.0"),
        ("unit,", "other,"),
        ('"no spills"', '"wide loads"'),
        (", check)", ", another_check)"),
        ("CASES,\n", "MORE,\n"),
        ("SHAPES)", "OTHERS)"),
    ],
)
def test_cases_tolerances_and_checks_of_a_lab_measure(was, now):
    assert was in LAB
    assert code_hash.measures(LAB.replace(was, now)) != code_hash.measures(LAB)


@pytest.mark.parametrize(("was", "now"), [("a lab", "the lab"), ("look at the offsets", "look at the mask")])
def test_title_and_causes_of_a_lab_are_texts(was, now):
    assert code_hash.scores(LAB.replace(was, now)) == code_hash.scores(LAB)


def test_the_points_of_every_lab_of_the_course_can_change_without_a_new_grading():
    checked = 0
    for entry in (*catalog.find(), *catalog.capstone()):
        text = entry.lab_file.read_text("utf-8")
        named = sorted(set(re.findall(r"\b(?:points|full_at|passing_at)=\d+", text)))
        for words in named:
            changed = text.replace(words, words + "1")
            assert code_hash.measures(changed) == code_hash.measures(text), (entry.folder.name, words)
            assert code_hash.scores(changed) != code_hash.scores(text), (entry.folder.name, words)
            checked += 1
    assert checked > 20


def test_what_judges_and_measures_is_covered_and_what_tells_is_not():
    covered = fingerprint.covered()
    for name in (
        "judge.run", "judge.correctness", "judge.comparison", "judge.statistics", "judge.speed",
        "worker.worker", "worker.fork_server", "worker.interpreted.syntax", "sandbox.seccomp",
        "screen.screen", "codegen.kernel_facts", "results.scoring", "grading.collect", "grading.plugin",
        "course.hidden_cases", "course.spec",
    ):  # fmt: skip
        assert f"grader.{name}" in covered
    for name in ("student.doctor", "report.terminal", "course.hints", "classroom.records", "cli.main"):
        assert (ROOT / "grader" / f"{name.replace('.', '/')}.py").is_file()
        assert f"grader.{name}" not in covered


def test_every_module_of_the_rooms_that_judge_is_covered():
    rooms = [ROOT / "grader" / name for name in ("judge", "worker", "sandbox", "screen", "codegen")]
    files = [path for room in rooms for path in room.rglob("*.py")]
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files
    }
    assert len(names) > 30
    decides = {name for name in names if not name.startswith("grader.judge.error_causes")}  # only shown
    assert decides < names
    assert decides <= fingerprint.covered().keys()


def test_modules_that_only_the_capstone_imports_regrade_only_the_capstone():
    of_capstone = fingerprint.of_lab_file(catalog.ROOT / "gpu-programming" / "lab.py")
    assert "grader.measure.survey.check" in of_capstone
    assert "grader.measure.survey.check" not in fingerprint.covered()
    for entry in catalog.find():
        assert "grader.measure.survey.check" not in fingerprint.of_lab_file(entry.lab_file)


def test_a_mended_message_of_a_diagnosis_is_no_change():
    name, path = "grader.judge.diagnosis", ROOT / "grader/judge/diagnosis.py"
    text, words = path.read_text("utf-8"), "the result never reaches `out`"
    assert words in text
    hashed = fingerprint.modules({name: text})
    assert fingerprint.modules({name: text.replace(words, "mended")}) == hashed
    assert fingerprint.modules({name: text.replace("FEWEST", "MOST") + "\nx = 1\n"}) != hashed


def test_what_is_named_as_text_is_there():
    for name, texts in fingerprint.TEXTS.items():
        text = fingerprint.covered()[name].read_text("utf-8")
        assert texts
        assert all(re.search(rf"^{one}\b", text, re.M) for one in texts)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
def test_a_comment_in_a_judge_regrades_nobody_and_a_tolerance_everybody(monkeypatch):
    first = fingerprint.grader()
    path = ROOT / "grader/judge/comparison.py"
    real = type(path).read_text
    for change, same in (
        (lambda text: f"# a comment\n{text}", True),
        (lambda text: f"{text}\nX = 1\n", False),
    ):
        monkeypatch.setattr(
            type(path),
            "read_text",
            lambda self, *more, change=change: (
                change(real(self, *more)) if self == path else real(self, *more)
            ),
        )
        fingerprint.grader.cache_clear()
        assert (fingerprint.grader() == first) is same


@pytest.fixture
def fresh():
    fingerprint.grader.cache_clear()
    yield
    fingerprint.grader.cache_clear()
