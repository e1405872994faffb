"""Templates for CI: a job that runs a submission has no secret and no token that writes."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from grader.tests.classroom import ci_chroot
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


IMAGE = ("image.yml", "build")
GRADING = [name for name in WORKFLOWS if name.startswith("grade-")]


def test_there_is_one_workflow_for_each_tier_and_one_for_the_projects_own_tests():
    assert set(WORKFLOWS) == {"grade-cpu.yml", "grade-gpu.yml", "image.yml", "test.yml"}
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
    more = {("packages", "write")} if (name, title) == IMAGE else set()
    assert set(permissions(name, title).items()) <= {("contents", "read"), *more}


@pytest.mark.parametrize(("name", "title"), jobs())
def test_a_job_ends_by_itself(name, title):
    most = 60 if title == "nightly" else 30  # minutes
    assert workflow(name)["jobs"][title]["timeout-minutes"] <= most


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
    assert named == ((name, title) in [("grade-gpu.yml", "collect"), IMAGE])


def test_the_image_is_published_by_staff_alone():
    assert set(workflow("image.yml")["on"]) == {"push", "workflow_dispatch"}
    assert list(workflow("image.yml")["on"]["push"]) == ["tags"]
    (login,) = [
        step for step in workflow("image.yml")["jobs"]["build"]["steps"] if "github.token" in str(step)
    ]
    assert "--password-stdin" in login["run"]
    assert "docker build" not in login["run"], "no step of the build has the token"


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
    (step,) = [one for one in steps_of("grade-gpu.yml") if "inputs.labs" in str(one)]
    assert step["env"]["LABS"] == "${{ inputs.labs }}"
    program(tmp_path, "make", "printf '%s|' \"$@\" > called")
    done = execute(step, tmp_path, LABS=labs, GRADER_IMAGE="")
    assert done.returncode == code
    called = tmp_path / "called"
    assert called.is_file() == (code == 0)
    if not code:
        words = ["grade", "TIER=gpu", "FROM=submission/labs", f"LAB={labs}"]
        assert called.read_text().split("|")[:-1] == words
    assert not (tmp_path / "found").exists()


def steps_of(name, title="grade"):
    return workflow(name)["jobs"][title]["steps"]


def program(folder, name, script):
    """A program of that name, which `execute` finds first."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def execute(step, folder, **environment):
    """Run a step as it stands, as GitHub's runner does: `bash -e` and a file, strictly for `shell: bash`."""
    script = folder / "step.sh"
    script.write_text(step["run"])
    strict = ["--noprofile", "--norc", "-eo", "pipefail"] if step.get("shell") == "bash" else ["-e"]
    return subprocess.run(
        ["bash", *strict, str(script)], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), **environment},
    )  # fmt: skip


def obeyed(log):
    """The commands in a log that GitHub's runner obeys (its ActionCommand.cs, 2026-07).

    They are `::name…::` after blanks, and `##[name]` anywhere in a line; none until a stop is taken back.
    """
    token, found = None, []
    for line in re.split(r"\r\n|\r|\n", log):
        match = re.match(r"\s*::([^\s:]+)[^:]*.*?::", line) or re.search(r"##\[([^\]]+)\]", line)
        if not match:
            continue
        if token is not None:
            token = None if match[1] == token else token
        elif match[1] == "stop-commands":
            token = line.strip().partition("::stop-commands::")[2]
        else:
            found.append(match[1])
    assert token is None, "the step ends without a word to go on"
    return found


PRINTED = """
    printed       ::add-mask::a
                  ::error file=x::forged
::set-output name=a::b
::stop-commands::mine
::mine::
##[error]forged
\t::debug::
"""


@pytest.mark.parametrize("name", GRADING)
@pytest.mark.parametrize("code", [0, 3])
def test_no_line_that_a_submission_printed_is_a_command_of_the_log(name, code, tmp_path):
    without = PRINTED.replace("::stop-commands::mine", "")
    assert {"error", "set-output", "debug"} <= set(obeyed(without))
    steps = [step for step in steps_of(name) if "make grade" in step.get("run", "")]
    assert len(steps) == 1
    program(tmp_path, "make", f"cat printed; cat printed >&2; exit {code}")
    (tmp_path / "printed").write_text(PRINTED)
    done = execute(steps[0], tmp_path, LABS="1", GRADER_IMAGE="")
    assert done.returncode == code
    assert "forged" in done.stdout
    # Both streams reach one log, in any order between the two lines of the step.
    first, *lines, last = done.stdout.splitlines()
    assert obeyed("\n".join([first, *lines, *done.stderr.splitlines(), last])) == []
    assert execute(steps[0], tmp_path, LABS="1", GRADER_IMAGE="").stdout.splitlines()[-1] != last, (
        "drawn anew"
    )


@pytest.mark.parametrize("name", GRADING)
def test_failures_are_annotations_after_the_results_are_there(name, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "submission").mkdir()
    (tmp_path / "submission" / "commit.txt").write_text("0" * 40 + "\n")
    line = "::error file=labs/a.py,line=3,title=WRONG::n=7"
    program(tmp_path, "make", f"""[ "$1" = export ] && printf '%s\\n' '{line}' > "${{3#OUT=}}" || true""")
    steps = [step for step in steps_of(name) if "annotations.txt" in step.get("run", "")]
    assert steps
    assert [execute(step, tmp_path).returncode for step in steps] == [0] * len(steps)
    (tmp_path / "make").unlink()
    assert execute(steps[-1] | {"run": steps[-1]["run"].splitlines()[-1]}, tmp_path).stdout == f"{line}\n"


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
    runs = ["find . -type l -delete", "git rev-parse HEAD | tee commit.txt"]
    assert [step["run"] for step in job["steps"] if "run" in step] == runs
    assert job["runs-on"] != "self-hosted"
    upload = job["steps"][-1]["with"]["path"].split()
    assert upload == ["labs/", "gpu-programming/", "commit.txt"]


@pytest.fixture(scope="module")
def checked_out(tmp_path_factory):
    """What the runner of strangers' code has: the sparse checkout of its workflow, made by git."""
    (settings,) = [step["with"] for step in steps_of("grade-gpu.yml") if "checkout" in step.get("uses", "")]
    assert settings["sparse-checkout-cone-mode"] is False
    folder = tmp_path_factory.mktemp("runner") / "course"
    git = ["git", "-C", str(folder)]
    subprocess.run(["git", "clone", "-q", "--no-checkout", ROOT, folder], check=True)
    patterns = settings["sparse-checkout"].split()
    subprocess.run([*git, "sparse-checkout", "set", "--no-cone", *patterns], check=True, capture_output=True)
    subprocess.run([*git, "checkout", "-q"], check=True, capture_output=True)
    return folder


WITHHELD = ("solutions", "notebooks", "grader/tests")


def test_the_runner_of_strangers_code_has_no_answer(checked_out, tmp_path):
    (step,) = [step for step in steps_of("grade-gpu.yml") if "rm -rf .git" in step.get("run", "")]
    names = [one.get("name", one.get("uses", "")) for one in steps_of("grade-gpu.yml")]
    assert names.index(step["name"]) < names.index("Grade")
    assert execute(step, checked_out).returncode == 0
    left = {path.relative_to(checked_out).as_posix() for path in checked_out.rglob("*.py")}
    assert len(left) > 200
    assert not [path for path in left if path.startswith(tuple(f"{name}/" for name in WITHHELD))]
    assert not (checked_out / ".git").exists()
    for name in WITHHELD:
        assert (ROOT / name).is_dir()
        (tmp_path / name).mkdir(parents=True)
        assert execute(step, tmp_path).returncode == 3, name
        shutil.rmtree(tmp_path / name)


@pytest.mark.slow
def test_grading_needs_nothing_of_what_is_withheld(checked_out):
    lab = checked_out / "submission" / "labs" / "lab1_elementwise_add"
    lab.mkdir(parents=True)
    shutil.copy(ROOT / "solutions" / "lab1_elementwise_add" / "elementwise_add.py", lab)
    for words in (
        ["grade", "--tier", "cpu", "--from", "submission/labs", "--lab", "1"],
        ["report"],
        ["export", "--to", "annotations", "results", "--out", "results/annotations.txt"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "grader", *words], cwd=checked_out, capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": str(checked_out)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((checked_out / "results" / "results.json").read_text("utf-8"))
    assert results["points"] > 40


@pytest.mark.parametrize("code", [0, 1])
def test_in_the_image_a_submission_is_graded_without_network(code, tmp_path):
    (step,) = [one for one in steps_of("grade-gpu.yml") if "inputs.labs" in str(one)]
    where = tmp_path / "grader" / "classroom" / "ci"
    where.mkdir(parents=True)
    shutil.copy(ROOT / "grader" / "classroom" / "ci" / "in_image.sh", where)
    (tmp_path / "submission").mkdir()
    program(
        tmp_path, "docker",
        f"""printf '%s\\n' "$*" >> asked
case "$*" in *" grade "*) touch results/results.json; exit {code};; esac""",
    )  # fmt: skip
    done = execute(step, tmp_path, LABS="2", GRADER_IMAGE="ghcr.io/c/grader-cuda@sha256:0")
    assert done.returncode == code, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()
    assert all(one.startswith("run --rm --network none --cap-drop ALL") for one in asked)
    ends = [one.partition("@sha256:0 ")[2] for one in asked]
    assert ends == [
        "grade FROM=/submission/labs TIER=gpu LAB=2",
        "report",
        "export TO=annotations OUT=results/annotations.txt",
    ]
    assert [f"{tmp_path}/submission:/submission:ro" in one for one in asked] == [True] * 3, (
        "lines are looked up there"
    )
    assert "--gpus all" in asked[0]


def test_a_bot_moves_what_is_pinned_and_the_linter_knows_our_runners():
    bot = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text("utf-8"))["updates"]
    assert [one["package-ecosystem"] for one in bot] == ["github-actions", "pip", "docker"]
    assert (ROOT / bot[2]["directory"].lstrip("/") / "Dockerfile").is_file()
    known = yaml.safe_load((ROOT / ".github" / "actionlint.yaml").read_text("utf-8"))
    labels = {
        label
        for name in WORKFLOWS
        for job in workflow(name)["jobs"].values()
        if isinstance(job["runs-on"], list)
        for label in job["runs-on"]
    }
    assert labels - {"self-hosted", "linux"} == set(known["self-hosted-runner"]["labels"]) != set()


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
    assert "make " not in " ".join(GITLAB["collect"]["script"]).replace("what make", "")
    assert any("find taken -type l -delete" in line for line in GITLAB["collect"]["script"])
    assert GITLAB["collect"]["environment"] == "collect"


@pytest.mark.parametrize(("given", "code"), [
    ({}, 0), ({"LABS": "1,3", "REF": "v1.2/a_b"}, 0), ({"LABS": "capstone"}, 0),
    ({"LABS": "$(touch found)"}, 3), ({"LABS": "`touch found`"}, 3), ({"LABS": "1;touch found"}, 3),
    ({"LABS": "1\n"}, 3), ({"LABS": "1\n$(shell touch found)"}, 3), ({"REF": "--upload-pack=touch found"}, 3),
    ({"SUBMISSION": "a@other.example/b"}, 3), ({"SUBMISSION": "ada"}, 3), ({"REF": "$(touch found)"}, 3),
])  # fmt: skip
def test_gitlab_collects_only_what_looks_like_a_project_and_labs(given, code, tmp_path):
    program(
        tmp_path, "git",
        """case "$*" in *fetch*) mkdir -p taken/labs taken/gpu-programming; echo "$*" > asked;;
*rev-parse*) echo 0123456789012345678901234567890123456789;; esac""",
    )  # fmt: skip
    step = {"run": "\n".join(GITLAB["collect"]["script"])}
    defaults = {name: one["value"] for name, one in GITLAB["variables"].items() if "value" in one}
    assert {"REF", "LABS", "TIER"} == set(defaults)
    server = {"CI_SERVER_HOST": "gitlab.example", "SUBMISSIONS_TOKEN": "t", "SUBMISSION": "c/ada"}
    done = execute(step, tmp_path, **{**defaults, **server, **given})
    assert done.returncode == code, done.stderr
    assert not (tmp_path / "found").exists()
    assert (tmp_path / "asked").exists() == (code == 0), "refused before git is called"
    if not code:
        assert (tmp_path / "submission" / "commit.txt").read_text() == "0123456789" * 4 + "\n"


@pytest.mark.parametrize("ref", ["main", "v1", "hash"])
def test_gitlab_collects_a_branch_a_tag_or_a_commit(ref, tmp_path):
    work = tmp_path / "server" / "c" / "ada.git"
    (work / "labs").mkdir(parents=True)
    (work / "labs" / "x.py").write_text("first")
    who = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"], ["tag", "v1"],
                  ["config", "uploadpack.allowAnySHA1InWant", "true"]):  # fmt: skip
        subprocess.run([*who, *words], check=True)
    first = subprocess.run(
        [*who, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run([*who, "commit", "-q", "--allow-empty", "-m", "two"], check=True)
    server = {
        "CI_SERVER_HOST": "gitlab.example", "SUBMISSIONS_TOKEN": "t", "SUBMISSION": "c/ada", "LABS": "",
        "REF": first if ref == "hash" else ref, "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/server/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://labs:t@gitlab.example/",
    }  # fmt: skip
    done = execute({"run": "\n".join(GITLAB["collect"]["script"])}, tmp_path, **server)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "submission" / "labs" / "x.py").read_text() == "first"
    assert ((tmp_path / "submission" / "commit.txt").read_text().strip() == first) == (ref != "main")


def test_gitlab_grades_without_answers_and_with_the_labs_asked_for():
    script = GITLAB[".grade"]["script"]
    assert script[0] == "rm -rf solutions notebooks grader/tests .git"
    assert 'LAB="$LABS"' in script[-1]
    assert [GITLAB[job]["image"]["name"] for job in ("cpu", "gpu")] == ["$CPU_IMAGE", "$GPU_IMAGE"]


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
    assert {".git", "solutions", "grader/tests", "notebooks"} <= set(left_out)


@pytest.mark.skipif(
    not shutil.which("hadolint"), reason="hadolint, a linter of Dockerfiles, is not installed"
)
def test_the_linter_of_dockerfiles_finds_nothing():
    done = subprocess.run(
        ["hadolint", ROOT / "grader" / "classroom" / "ci" / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(
    not shutil.which("shellcheck"), reason="shellcheck, a linter of shell scripts, is not installed"
)
def test_the_linter_of_shell_scripts_finds_nothing(tmp_path):
    scripts = [*(ROOT / "grader" / "classroom" / "ci").glob("*.s*")]
    assert len(scripts) == 2
    for name in WORKFLOWS:
        for title, job in workflow(name)["jobs"].items():
            for number, step in enumerate(job["steps"]):
                if "run" in step:
                    scripts.append(tmp_path / f"{name}-{title}-{number}.sh")
                    scripts[-1].write_text(f"#!/bin/bash\n{step['run']}\n")
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


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


def test_the_chroot_runs_every_step_or_says_why_not():
    jobs_with_steps = {
        (name, title)
        for name in WORKFLOWS
        for title, job in workflow(name)["jobs"].items()
        if any("run" in step for step in job["steps"])
    }
    assert {*ci_chroot.PLAN, *ci_chroot.NOT_RUN} == jobs_with_steps
    assert not {*ci_chroot.PLAN} & {*ci_chroot.NOT_RUN}


def test_without_mmdebstrap_the_chroot_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ci_chroot.main(tmp_path) == ci_chroot.MISSING
    assert "apt-get install mmdebstrap" in capsys.readouterr().err
