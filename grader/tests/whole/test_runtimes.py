"""Files for editors and containers: what they name exists, and what they match is what the grader prints."""

import json
import re
import subprocess

import pytest

from grader.tests.helpers.commands import grade, python
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.make_words import MAKEFILE, handed_on

TASKS = json.loads((ROOT / ".vscode" / "tasks.json").read_text("utf-8"))
SETTINGS = json.loads((ROOT / ".vscode" / "settings.json").read_text("utf-8"))
EXTENSIONS = json.loads((ROOT / ".vscode" / "extensions.json").read_text("utf-8"))
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def test_every_task_is_a_command_of_the_makefile_with_variables_that_it_takes():
    assert {"grade", "watch", "hint"} <= {task["args"][0] for task in TASKS["tasks"]}
    for task in TASKS["tasks"]:
        target, *variables = task["args"]
        assert task["command"] == "make"
        assert target in TARGETS
        without = handed_on(ROOT, target, {})
        for one in variables:
            assert handed_on(ROOT, target, dict([one.split("=", 1)])) != without, one


def test_every_question_of_a_task_is_one_that_is_asked():
    asked = {item["id"] for item in TASKS["inputs"]}
    used = set(re.findall(r"\$\{input:(\w+)\}", json.dumps(TASKS["tasks"])))
    assert used == asked != set()


def test_no_file_of_the_editor_lists_the_labs():
    for path in (ROOT / ".vscode").iterdir():
        assert not re.search(r"lab\d_[a-z]", path.read_text("utf-8")), path


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return grade("--lab", "1", "--results", tmp_path_factory.mktemp("results")).stdout


def test_the_editor_finds_the_lines_that_a_report_names(report):
    matcher = next(task["problemMatcher"] for task in TASKS["tasks"] if task["args"][0] == "grade")
    pattern = re.compile(matcher["pattern"]["regexp"])
    found = [match for match in map(pattern.match, report.splitlines()) if match]
    listed, _, again = report.rpartition("Next: ")  # the last line names the first place once more
    assert again.count("elementwise_add.py:") == 1
    assert len(found) == listed.count("elementwise_add.py:") == 3
    folder = matcher["fileLocation"][1].replace("${workspaceFolder}", str(ROOT))
    for match in found:
        lines = (ROOT / folder / match[1]).read_text("utf-8").splitlines()
        assert match[3].partition("  ")[2] or match[3].startswith("TODO")
        assert match[3] in lines[int(match[2]) - 1]


def test_an_editor_discovers_the_cases_of_the_labs():
    settings = SETTINGS["python.testing.pytestArgs"]
    assert SETTINGS["python.testing.pytestEnabled"] is True
    items = python("-m", "pytest", "--collect-only", "-q", *settings).stdout.splitlines()
    for lab in ROOT.glob("labs/lab*"):
        assert any(item.startswith(f"labs/{lab.name}/lab.py::") for item in items)


def test_the_editor_runs_the_environment_that_make_sets_up():
    assert SETTINGS["python.defaultInterpreterPath"] == "${workspaceFolder}/.venv/bin/python"
    assert "target=${containerWorkspaceFolder}/.venv" in CONTAINER["mounts"][0]


def test_the_container_has_a_python_that_the_project_takes_and_takes_a_gpu_where_there_is_one():
    version = re.search(r"python:1-3\.(\d+)-", CONTAINER["image"])
    assert 10 <= int(version[1]) <= 13
    assert CONTAINER["hostRequirements"]["gpu"] == "optional"
    for target in re.findall(r"make ([a-z-]+)", CONTAINER["postCreateCommand"]):
        assert target in TARGETS


def test_the_container_gets_the_extensions_that_the_editor_recommends():
    inside = set(CONTAINER["customizations"]["vscode"]["extensions"])
    assert inside == set(EXTENSIONS["recommendations"]) - {"ms-vscode-remote.remote-containers"}


def test_git_keeps_these_files():
    names = [".vscode/tasks.json", ".vscode/settings.json", ".devcontainer/devcontainer.json"]
    assert subprocess.run(["git", "check-ignore", *names], cwd=ROOT, check=False).returncode == 1


def test_where_to_work_is_explained_where_the_setup_sends_people():
    page = (ROOT / "labs" / "README.md").read_text("utf-8")
    section = page.partition("\n## Where to work\n")[2].partition("\n## ")[0]
    for word in ("devcontainer", "Colab", "WSL2", "VS Code", "without a GPU"):
        assert word in section
