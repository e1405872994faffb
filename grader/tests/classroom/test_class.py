"""What a class is graded by: roster to receipt, with hidden cases, sites, seeds and a made-up class."""

import json
import os
import shutil
from pathlib import Path

import pytest

from grader.classroom import records
from grader.classroom.grading import (
    grade_unit,
    keyword_filter,
    machines,
    plan,
    run_secret,
    self_test,
    synthetic,
)
from grader.classroom.intake import entries, expected_files, intake, roster, select
from grader.classroom.records import Intake, Receipt, SelfTest, State
from grader.classroom.run_folder import RunFolder
from grader.course import hidden_cases, spec
from grader.course.spec import Verdict
from grader.judge.concealed import concealed
from grader.results.findings import FirstWrong, Frame, OpenTodo
from grader.results.outcome import Outcome
from grader.tests.helpers.commands import grade, python
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.result_fakes import a_timing

LAB = "lab1_elementwise_add"
SECRET = b"a secret of the course"


def test_every_container_of_the_made_up_class_is_taken_in_as_expected(tmp_path):
    synthetic.make(tmp_path / "class", 200)
    listed = roster.read(tmp_path / "class" / "roster.csv")
    submitted = entries.by_student(tmp_path / "class" / "submissions", listed)
    found = submitted.found
    assert (submitted.unknown, len(listed.students)) == ([], 200)
    expected = json.loads((tmp_path / "class" / "expected.json").read_text())
    run, units, kinds = RunFolder(tmp_path / "out"), expected_files.units(), set()
    for student, told in expected.items():
        handed_in = found.get(student, entries.HandedIn(student))
        one = intake.collect(handed_in, listed, units, run)
        kinds.add(one.kind)
        for unit in units[:4]:
            name = unit.unit.name
            state = told["units"].get(name, {"state": "MISSING"})["state"]
            taken = any(file.path.startswith(f"{name}/") for file in one.files)
            assert taken == (state == "GRADED"), (student, told)
            assert taken or plan.without_files(one, name)[0] == state, (student, told)
    assert kinds == {"nothing", "folder", "zip", "git", "files"}


def test_the_made_up_class_is_the_same_every_time(tmp_path):
    for name in ("one", "two"):
        synthetic.make(tmp_path / name, 12, seed=3)
    texts = [(tmp_path / name / "expected.json").read_text() for name in ("one", "two")]
    assert texts[0] == texts[1]


def test_files_of_the_self_test_are_in_this_checkout_and_say_what_they_must_get(tmp_path):
    assert self_test.missing() == []
    assert self_test.missing(tmp_path)[0] == self_test.GOOD
    expected = {"good": ("PASS",), "cheat": ("CRASHED",)}
    assert not self_test.judge([], expected).held  # nothing was graded: nothing is known
    assert SelfTest.model_fields["held"].is_required()


def test_the_self_test_times_a_good_file_on_each_gpu_and_names_the_one_that_fails(tmp_path):
    like = grade_unit.Task(
        run=str(tmp_path), token="", student="", unit=expected_files.units()[0].unit, blind=False, seed=0,
        attempt=1,
        fingerprint="", tier="gpu", keyword=None, hidden=None, limit_s=1.0, files="", folder="",
    )  # fmt: skip
    known = self_test.tasks(RunFolder(tmp_path), expected_files.units(), like, 3)
    names = [task.student for task, _ in known]
    assert names[:3] == ["elementwise_add", "elementwise_add-2", "elementwise_add-3"]
    assert len(set(names)) == len(names) == 3 + 1 + len(self_test.CHEATS)
    assert {task.keyword for task, _ in known[:3]} == {self_test.TIMED}
    assert all((Path(task.files) / self_test.UNIT / "elementwise_add.py").is_file() for task, _ in known)
    ended = []
    for number, (task, _) in enumerate(known):
        record = grade_unit.TaskRecord(
            student=task.student, unit=task.unit.name, state=State.FAULT, fingerprint="", attempt=1,
            accelerator=str(number % 3),
        )  # fmt: skip
        ended.append((task, record))
    found = self_test.judge(ended, {task.student: expected for task, expected in known})
    assert not found.held
    assert [(one.name, one.accelerator) for one in found.known if one.name.startswith("elem")] == [
        ("elementwise_add", "0"),
        ("elementwise_add-2", "1"),
        ("elementwise_add-3", "2"),
    ]


def test_seeds_follow_from_the_secret_and_differ_for_everybody(tmp_path):
    run = RunFolder(tmp_path)
    path, secret = run.secret, run_secret.load(run, None).seeds
    assert run_secret.load(run, None).seeds == secret
    assert path.stat().st_mode & 0o777 == 0o600
    asked = [
        (one, unit, attempt, blind) for one in "ab" for unit in "xy" for attempt in (1, 2) for blind in (0, 1)
    ]
    made = {run_secret.seed(secret, *words) for words in asked}
    assert len(made) == len(asked)
    assert run_secret.seed(b"another", *asked[0]) not in made
    assert len({seed % 2**128 for seed in made}) == len(made)
    assert max(made).bit_length() > 128
    # `verify` must still find the seeds in receipts of earlier versions.
    assert {run_secret.earlier_seed(secret, *words) for words in asked} == {seed >> 128 for seed in made}


def test_another_secret_than_the_one_a_run_was_begun_with_is_refused(tmp_path):
    given = tmp_path / "given"
    given.write_text("a secret that is long enough")
    run_secret.load(RunFolder(tmp_path), None)
    with pytest.raises(ValueError, match="started with another secret"):
        run_secret.load(RunFolder(tmp_path), given)
    given.write_text("short")
    with pytest.raises(ValueError, match="at least 16 bytes"):
        run_secret.load(RunFolder(tmp_path), given)


def write(path, text):
    path.write_text(text, "utf-8")
    return path


def test_site_says_which_field_is_wrong(tmp_path):
    with pytest.raises(machines.SiteError, match=r"site.toml: slurm.gpus: Extra inputs"):
        machines.read(write(tmp_path / "site.toml", "[slurm]\ngpus = 4\n"))
    with pytest.raises(machines.SiteError, match=r"site\.toml"):
        machines.read(write(tmp_path / "site.toml", "[slurm\n"))


def test_site_of_a_cluster_pins_two_workers_to_each_gpu(tmp_path):
    text = 'address = "10.0.0.1"\n[slurm]\npartition = "gpu"\ngpus_per_node = 4\njobs = 2\n'
    found = machines.read(write(tmp_path / "site.toml", text))
    gpus = ["0", "1", "2", "3"]
    assert found.tier == "gpu"
    assert machines.accelerators(found, "gpu", None) == gpus + gpus
    assert (machines.workers(found, "gpu", None), machines.workers(found, "gpu", 3)) == (8, 3)
    config = machines.config(found, "gpu", None, RunFolder(tmp_path), "token")
    (executor,) = config.executors
    assert executor.available_accelerators == gpus + gpus
    assert (executor.provider.partition, executor.provider.max_blocks) == ("gpu", 2)
    assert str(ROOT) in executor.provider.worker_init


def test_gpus_are_those_that_cuda_would_see():
    assert machines.gpus({"CUDA_VISIBLE_DEVICES": "2, GPU-ab"}) == ["2", "GPU-ab"]
    assert machines.gpus({"CUDA_VISIBLE_DEVICES": ""}) == []


def test_jobs_decide_how_many_cores_are_used_and_never_more_than_two_a_gpu(monkeypatch):
    here = machines.Site()
    monkeypatch.setattr(machines, "gpus", lambda: ["0", "1"])
    assert [machines.workers(here, "gpu", jobs) for jobs in (None, 8, 1)] == [4, 4, 1]
    assert machines.accelerators(here, "gpu", 2) == ["0", "1"]
    assert machines.workers(here, "cpu", 5) == 5


HIDDEN = """
[[case]]
exercise = "elementwise_add"
params = { n = 5003 }
"""


@pytest.mark.slow
def test_hidden_case_is_judged_and_its_data_stays_hidden(tmp_path):
    cases = write(tmp_path / "hidden.toml", HIDDEN)
    place = tmp_path / "in" / LAB / "elementwise_add.py"
    place.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "solutions" / LAB / "wrong" / "store_without_mask.py", place)
    asked = [
        "--lab",
        1,
        "--from",
        tmp_path / "in",
        "--hidden",
        cases,
        "-k",
        "hidden",
        "--results",
        tmp_path / "r",
    ]
    done = grade(*asked)
    assert done.returncode == 0, done.stdout + done.stderr
    written = "".join(path.read_text() for path in (tmp_path / "r").iterdir())
    assert "5003" not in done.stdout + done.stderr + written.replace(str(tmp_path), "")
    (item,) = json.loads((tmp_path / "r" / "results.json").read_text())["labs"][0]["exercises"][0]["items"]
    assert (item["name"], item["verdict"], item["reason"]) == ("hidden 1", "OUT_OF_BOUNDS", "WRITE")
    assert item["hint"] == 2
    assert item["cause"]


@pytest.mark.parametrize("verdict", [one for one in Verdict if one is not Verdict.PASS])
def test_no_verdict_of_a_hidden_case_tells_its_data(verdict):
    data = "n=5003"
    outcome = Outcome(
        verdict, "" if verdict is Verdict.GRADER_FAULT else "REASON", where=f"Error: {data}", fault="Error",
        first_wrong=FirstWrong(output="out", index=(5003,), yours="1", expected="2"), pattern=data,
        cause="a cause", hint=2, frames=(Frame(line=5003, function=data, code=data),), printed=data,
        open_todos=(OpenTodo(number=1, text=data, line=5003),), used=0.5003,
        timing=a_timing(shape={"n": 5003}),
    )  # fmt: skip
    told = concealed(outcome)
    assert "5003" not in repr(told)
    assert verdict is not Verdict.GRADER_FAULT or told.where == "Error at a hidden case"
    assert (told.verdict, told.reason, told.cause, told.hint) == (verdict, outcome.reason, "a cause", 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "case: Field required"), ("[[case]]\nparams={}\n", "case.0.exercise: Field required"),
     ('[[case]]\nexercise="a"\nparams={}\nshape=3\n', "case.0.shape: Extra inputs")],
)  # fmt: skip
def test_file_with_hidden_cases_is_refused_with_its_field(tmp_path, text, words):
    with pytest.raises(hidden_cases.HiddenError, match=words):
        hidden_cases.read(write(tmp_path / "hidden.toml", text))


def test_hidden_case_of_an_exercise_that_is_not_there_is_wrong_usage(tmp_path):
    cases = write(tmp_path / "hidden.toml", HIDDEN.replace("elementwise_add", "no_such_thing"))
    done = grade("--lab", 1, "--hidden", cases, "--results", tmp_path / "r")
    assert done.returncode == 2
    assert "no lab has an exercise no_such_thing" in done.stderr


def test_case_without_a_label_is_called_by_its_sizes():
    assert spec.Case({"n": 7}).name == "n=7,fp32"
    assert spec.Case({"n": 7}, label="hidden 1").name == "hidden 1"


@pytest.mark.nightly
def test_class_verify_and_regrade_on_one_student(tmp_path):
    place = tmp_path / "in" / "ada" / "elementwise_add.py"
    place.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "solutions" / LAB / "elementwise_add.py", place)
    out = tmp_path / "out"
    asked = ["-m", "grader", "class", tmp_path / "in", "--out", out, "--lab", 1, "--tier", "cpu", "-k",
             "correctness and 129 and fp32", "--no-self-test", "--blind", 0]  # fmt: skip
    done = python(*asked)
    assert done.returncode == 0, done.stdout + done.stderr
    unit = RunFolder(out).student("ada").unit(LAB)
    receipt = records.read(unit.receipt, Receipt)
    assert receipt.points > 0
    done = python("-m", "grader", "verify", unit.receipt)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "agrees"), done.stdout + done.stderr
    records.write(unit.receipt, receipt.model_copy(update={"points": 100.0}))
    unit.results.write_text(unit.results.read_text().replace('"PASS"', '"WRONG"'))
    done = python("-m", "grader", "verify", unit.receipt)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "differs")
    for words in ("results.json has changed since", "the receipt was changed", "verdict WRONG, then PASS"):
        assert words in done.stdout


@pytest.mark.slow
def test_class_refuses_what_cannot_be_done_with_words(tmp_path):
    (tmp_path / "in").mkdir()
    for options, words in (
        ([], "no submission in this folder"),
        (["--lab", "9"], "--lab 9: what can be graded is 1, 2"),
        (["--tier", "gpu"], "--tier gpu"),
        (["--roster", write(tmp_path / "r.csv", "name\nAda\n")], "no column with ids"),
    ):
        done = python("-m", "grader", "class", tmp_path / "in", "--out", tmp_path / "out", *options)
        assert done.returncode == 2, done.stdout + done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_class_that_asks_for_nothing_that_there_is_is_refused_before_anybody_is_graded(tmp_path):
    place = tmp_path / "in" / "ada" / "elementwise_add.py"
    place.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "solutions" / LAB / "elementwise_add.py", place)
    strangers = write(tmp_path / "hidden.toml", HIDDEN.replace("elementwise_add", "no_such_thing"))
    for options, words in (
        (["-k", "no_such_thing"], "nothing matches -k 'no_such_thing'"),
        (["-k", "softmax", "--lab", "1"], "nothing matches -k 'softmax'"),
        (["-k", "softmax and"], "nothing matches -k 'softmax and'"),
        (["--hidden", strangers], "no lab has an exercise no_such_thing"),
    ):
        asked = [tmp_path / "in", "--out", tmp_path / "out", "--tier", "cpu", "--no-self-test", *options]
        done = python("-m", "grader", "class", *asked)
        assert done.returncode == 2, done.stdout + done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert not RunFolder(tmp_path / "out").students.exists()


@pytest.mark.slow
def test_unit_of_which_nothing_is_asked_is_left_out_and_the_others_are_graded(tmp_path):
    units = [one.unit for one in expected_files.chosen("1,2,capstone", expected_files.units())]
    assert keyword_filter.units("online_softmax", units) == units[1:2]
    assert keyword_filter.units("vector_add", units) == units[2:]
    assert keyword_filter.units("elementwise_add", units) == units[:1]
    assert keyword_filter.units("hidden", units) == []
    cases = write(tmp_path / "hidden.toml", HIDDEN)
    assert keyword_filter.units("hidden", units, cases) == units[:1]


def test_asking_what_matches_leaves_the_environment_as_it_was():
    before = dict(os.environ)
    assert keyword_filter.units(
        "elementwise_add", [one.unit for one in expected_files.chosen("1", expected_files.units())]
    )
    own = "PYTEST_CURRENT_TEST"
    assert {**os.environ, own: ""} == {**before, own: ""}


def test_left_out_files_that_mattered_are_listed_first():
    choice = select.Choice(left_out=[records.LeftOut(found=str(n), why="not collected") for n in range(200)])
    choice.left_out.append(records.LeftOut(found="softmax.py", why="it is a link", unit="lab4"))
    assert choice.shown[0].found == "softmax.py"
    assert len(choice.shown) == select.SHOWN


def test_file_of_a_run_folder_with_an_unknown_field_is_refused(tmp_path):
    path = write(tmp_path / "intake.json", '{"id": "a", "on_roster": true, "points": 3}')
    with pytest.raises(ValueError, match="points"):
        records.read(path, Intake)
