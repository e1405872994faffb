"""Templates for CI: a job that runs a submission has no secret and no token that writes."""

import os
import re
import subprocess

import pytest
import yaml

from grader.tests.helpers.course import ROOT

WORKFLOWS = {path.name: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
GITLAB = yaml.safe_load((ROOT / "grader" / "classroom" / "ci" / "gitlab-ci.yml").read_text("utf-8"))
DOCKERFILE = (ROOT / "grader" / "classroom" / "ci" / "Dockerfile").read_text("utf-8")
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def workflow(name):
    read = yaml.safe_load(WORKFLOWS[name].read_text("utf-8"))
    return {"on": read.pop(True), **read}  # `on` is a truth value in YAML 1.1


def jobs():
    return [
        pytest.param(name, title, id=f"{name}:{title}")
        for name in WORKFLOWS
        for title in workflow(name)["jobs"]
    ]


def permissions(name, title):
    read = workflow(name)
    return read["jobs"][title].get("permissions", read["permissions"])


def runs_a_submission(job):
    return any("make grade" in step.get("run", "") for step in job["steps"])


GRADING = [name for name in WORKFLOWS if name.startswith("grade-")]


def test_there_is_one_workflow_for_each_tier_and_one_for_the_projects_own_tests():
    assert set(WORKFLOWS) == {"grade-cpu.yml", "grade-gpu.yml", "test.yml"}
    graders = [
        title for name in WORKFLOWS for title, job in workflow(name)["jobs"].items() if runs_a_submission(job)
    ]
    assert graders == ["grade", "grade"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_workflow_starts_with_the_rights_of_the_course_on_a_fork(name):
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(workflow(name)["on"])


def test_nobody_but_staff_starts_what_runs_on_our_own_machine():
    assert list(workflow("grade-gpu.yml")["on"]) == ["workflow_dispatch"]
    assert workflow("grade-gpu.yml")["jobs"]["grade"]["runs-on"] == ["self-hosted", "linux", "gpu"]
    others = [job["runs-on"] for name in WORKFLOWS for job in workflow(name)["jobs"].values()]
    assert sum("self-hosted" in runs_on for runs_on in others) == 1


@pytest.mark.parametrize(("name", "title"), jobs())
def test_a_token_can_at_most_read(name, title):
    assert set(permissions(name, title).items()) <= {("contents", "read")}


@pytest.mark.parametrize(("name", "title"), jobs())
def test_a_job_ends_by_itself(name, title):
    assert workflow(name)["jobs"][title]["timeout-minutes"] <= 30


@pytest.mark.parametrize("name", WORKFLOWS)
def test_an_action_is_named_by_its_hash_and_says_its_release(name):
    text = WORKFLOWS[name].read_text("utf-8")
    uses = re.findall(r"uses: (.+)", text)
    assert uses
    assert [
        one for one in uses if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", one)
    ] == []
    assert len(uses) == sum(
        "uses" in step for job in workflow(name)["jobs"].values() for step in job["steps"]
    )


@pytest.mark.parametrize(("name", "title"), jobs())
def test_a_secret_is_named_in_no_job_that_runs_a_submission(name, title):
    job = workflow(name)["jobs"][title]
    named = "secrets." in str(job) or "github.token" in str(job)
    assert not (named and runs_a_submission(job))
    assert named == ((name, title) == ("grade-gpu.yml", "collect"))


@pytest.mark.parametrize(("name", "title"), jobs())
def test_no_checkout_leaves_a_token_behind(name, title):
    checkouts = [
        step for step in workflow(name)["jobs"][title]["steps"] if "checkout" in step.get("uses", "")
    ]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize(("name", "title"), jobs())
def test_no_input_is_pasted_into_a_shell(name, title):
    scripts = [step["run"] for step in workflow(name)["jobs"][title]["steps"] if "run" in step]
    assert [one for one in scripts if "${{" in one] == []


@pytest.mark.parametrize(("labs", "code"), [
    ("", 0), ("2", 0), ("1,3", 0), ("capstone", 0),
    ('";touch found;"', 3), ("$(shell touch found)", 3), ("$(touch found)", 3), ("`touch found`", 3),
    ("1 --from=/", 3), ("1,", 3), (",1", 3), ("1,capstone", 3), ("1\n$(shell touch found)", 3), ("1\n", 3),
    ("\n1", 3),
])  # fmt: skip
def test_the_labs_to_grade_are_numbers_or_the_capstone_before_make_sees_them(labs, code, tmp_path):
    steps = workflow("grade-gpu.yml")["jobs"]["grade"]["steps"]
    (step,) = [one for one in steps if "inputs.labs" in str(one)]
    assert step["env"] == {"LABS": "${{ inputs.labs }}"}
    (tmp_path / "make").write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")
    (tmp_path / "make").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LABS": labs}
    command = [step.get("shell", "bash"), "-e", "-c", step["run"]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    called = ["grade", "TIER=gpu", "FROM=submission/labs", f"LAB={labs}"]
    assert done.stdout.split("|")[:-1] == ([] if code else called)
    assert [path.name for path in tmp_path.iterdir()] == ["make"]


def test_on_our_machine_the_course_is_checked_out_and_the_submission_is_files_beside_it():
    steps = workflow("grade-gpu.yml")["jobs"]["grade"]["steps"]
    checkout, download = (
        next(step["with"] for step in steps if word in step.get("uses", ""))
        for word in ("checkout", "download")
    )
    assert "repository" not in checkout
    assert checkout["clean"] is True
    assert download["path"] == "submission"
    assert any("FROM=submission/labs" in step.get("run", "") for step in steps)
    assert "mkdir" in steps[0]["run"]  # a second job on one machine stops there


def test_a_submission_is_collected_by_a_job_that_runs_nothing_of_it():
    job = workflow("grade-gpu.yml")["jobs"]["collect"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["find . -type l -delete"]
    assert job["runs-on"] != "self-hosted"


@pytest.mark.parametrize("name", GRADING)
def test_reports_are_published_by_another_job_that_has_no_rights_and_runs_nothing_of_theirs(name):
    job = workflow(name)["jobs"]["publish"]
    assert job["permissions"] == {}
    assert job["needs"] == "grade"
    assert not any(
        "checkout" in step.get("uses", "") or "make" in step.get("run", "") for step in job["steps"]
    )
    grading = str(workflow(name)["jobs"]["grade"])
    assert "GITHUB_STEP_SUMMARY" not in grading
    assert "GITHUB_STEP_SUMMARY" in str(job)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_one_run_at_a_time(name):
    read = workflow(name)
    limits = [read.get("concurrency"), *(job.get("concurrency") for job in read["jobs"].values())]
    assert [one for one in limits if one] != []


def test_every_push_runs_the_linters_and_the_tests_of_the_project():
    read = workflow("test.yml")
    assert "push" in read["on"]
    assert all(job["runs-on"] == "ubuntu-24.04" for job in read["jobs"].values())
    steps = [step for job in read["jobs"].values() for step in job["steps"]]
    assert {"make lint", "make test"} <= {step.get("run") for step in steps}
    assert not any("if" in step or step.get("continue-on-error") for step in steps)


def test_gitlab_gives_its_secret_to_the_job_that_runs_nothing():
    named = [
        name for name, job in GITLAB.items() if isinstance(job, dict) and "SUBMISSIONS_TOKEN" in str(job)
    ]
    assert named == ["collect"]
    assert "make" not in " ".join(GITLAB["collect"]["script"])
    assert any("find taken -type l -delete" in line for line in GITLAB["collect"]["script"])
    assert GITLAB["collect"]["environment"] == "collect"


def test_gitlab_grades_with_a_limit_one_at_a_time_and_publishes_elsewhere():
    assert GITLAB["gpu"]["resource_group"] == "gpu"
    assert GITLAB["gpu"]["tags"] == ["labs-gpu"]
    for name in ("collect", ".grade", "publish"):
        assert int(GITLAB[name]["timeout"].split()[0]) <= 30
    assert not any("cache" in job for job in GITLAB.values() if isinstance(job, dict))
    assert "make" not in " ".join(GITLAB["publish"]["script"])
    sources = [rule["if"] for rule in GITLAB["workflow"]["rules"]]
    assert sources
    assert not any("merge_request" in rule or "push" in rule for rule in sources)


def test_every_command_of_a_template_is_one_of_the_makefile():
    texts = [
        path.read_text("utf-8")
        for path in [*WORKFLOWS.values(), *sorted((ROOT / "grader/classroom/ci").iterdir())]
    ]
    lines = [line.partition("#")[0] for text in texts for line in text.splitlines()]
    called = {name for line in lines for name in re.findall(r"\bmake (?!python)([a-z-]+)\b", line)}
    assert {"grade", "report", "setup"} <= called
    assert called <= set(TARGETS)


def test_the_image_takes_its_base_by_argument_and_runs_as_nobody_special():
    steps = re.findall(r"^([A-Z]+) (.*)", DOCKERFILE, re.MULTILINE)
    assert steps[0] == ("ARG", "BASE=python:3.12-slim-bookworm")
    assert steps[1] == ("FROM", "${BASE}")
    assert [words for step, words in steps if step == "USER"] == ["1000:1000"]
    assert steps[-1] == ("ENTRYPOINT", '["make", "grade"]')
    assert not any("://" in words for _, words in steps), "nothing is fetched but packages"
    left_out = (ROOT / ".dockerignore").read_text("utf-8").split("\n")
    assert {".git", "solutions", "grader/tests/cheats"} <= set(left_out)


def test_a_batch_job_that_was_started_by_make_runs_a_make_of_its_own(tmp_path):
    """`sbatch` hands its environment on: without care, make's variables of the login node reach the job."""
    (tmp_path / "Makefile").write_text(
        'grade:\n\t@echo "$@ LAB=$(LAB) level $(MAKELEVEL)"\nreport:\n\t@echo $@\n'
    )
    (tmp_path / "outer.mk").write_text('start:\n\t@bash "$(SCRIPT)" LAB=2\n')
    script = ROOT / "grader" / "classroom" / "ci" / "grade.sbatch"
    environment = {"PATH": os.environ["PATH"], "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    command = ["make", "-f", "outer.mk", "start", f"SCRIPT={script}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["grade LAB=2 level 0", "report"], done.stderr
