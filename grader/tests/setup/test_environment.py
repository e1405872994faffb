"""What `make` promises on a fresh machine, checked without a network and without a real torch."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types
import venv
from pathlib import Path

import pytest

from grader.setup import environment as setup_env
from grader.setup import steps
from grader.tests.helpers.course import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
# Everything the setup would install counts as present in the active Python of these tests.
WANTED = steps.requirements(str(ROOT), ["dev", "browser", "nvcc"])
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def pretend_installed(folder, requirement):
    name, _, floor = requirement.partition(">=")
    info = folder / f"{name.replace('-', '_')}-{floor or '1'}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {floor or '1'}\n")


@pytest.fixture
def active(tmp_path):
    """An environment with an importable torch, triton and pip, all of them empty."""
    venv.create(tmp_path / "active", symlinks=True)
    folder = tmp_path / "active" / SITE
    for requirement in WANTED:
        pretend_installed(folder, requirement)
    for module in ("torch", "triton", "pip"):
        (folder / f"{module}.py").write_text("")
    return tmp_path / "active"


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the setup reads."""
    (tmp_path / "repo" / "grader" / "setup").mkdir(parents=True)
    for name in (*setup_env.INPUTS, "grader/__init__.py", "grader/setup/__init__.py", "Makefile"):
        shutil.copy(ROOT / name, tmp_path / "repo" / name)
    return tmp_path / "repo"


def set_up(python, checkout, *arguments, **variables):
    # nothing can be installed: no index, no uv
    environment = {"HOME": str(checkout), "PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", **variables}
    command = [python / "bin" / "python", checkout / "grader" / "setup" / "environment.py", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def where(checkout, module):
    code = f"import {module}; print({module}.__file__)"
    command = [checkout / ".venv/bin/python", "-c", code]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout.strip()


def test_an_active_python_with_torch_is_reused_and_nothing_is_installed(active, checkout):
    done = set_up(active, checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "installing" not in done.stdout
    assert where(checkout, "torch") == str(active / SITE / "torch.py")
    assert where(checkout, "grader") == str(checkout / "grader" / "__init__.py")


def test_bytecode_of_a_borrowed_torch_is_kept_although_the_image_says_not_to(active, checkout):
    set_up(active, checkout, PYTHONDONTWRITEBYTECODE="1")
    kept = [path.name.partition(".")[0] for path in (active / SITE / "__pycache__").iterdir()]
    assert "torch" in kept


def test_a_second_run_says_nothing_and_changes_nothing(active, checkout):
    set_up(active, checkout)
    stamp = checkout / ".venv" / "grader-setup.json"
    before = stamp.stat().st_mtime_ns
    done = set_up(active, checkout)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stamp.stat().st_mtime_ns == before


def test_a_ready_environment_is_recognised_within_60_ms(active, checkout, monkeypatch):
    set_up(active, checkout)
    monkeypatch.setattr(setup_env, "ROOT", str(checkout))
    monkeypatch.setattr(setup_env, "VENV", str(checkout / ".venv"))
    monkeypatch.setattr(setup_env, "STAMP", str(checkout / ".venv" / "grader-setup.json"))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert setup_env.main([]) == 0
        times.append(time.perf_counter() - start)
    assert min(times) < 0.060


def test_what_is_not_there_is_asked_for_by_name_and_a_failure_leaves_no_stamp(active, checkout):
    shutil.rmtree(next((active / SITE).glob("click-*")))
    (active / SITE / "pip.py").write_text("raise SystemExit('No matching distribution found for click')")
    done = set_up(active, checkout)
    assert done.returncode == 3
    assert "setup: package not found" in done.stderr
    assert "setup: installing click ...\n" in done.stdout
    assert not (checkout / ".venv" / "grader-setup.json").exists()


def test_an_extra_is_added_once_and_stays(active, checkout):
    set_up(active, checkout)
    assert "ready" in set_up(active, checkout, "--extra", "dev").stdout
    assert set_up(active, checkout).stdout == ""
    assert set_up(active, checkout, "--extra", "dev").stdout == ""


def test_a_changed_constraint_updates_the_environment_in_place(active, checkout):
    set_up(active, checkout)
    mine = checkout / ".venv" / "mine"
    mine.touch()
    with (checkout / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    assert "ready" in set_up(active, checkout).stdout
    assert mine.exists()


def test_an_environment_whose_borrowed_folder_is_gone_is_not_ready(active, checkout, monkeypatch):
    monkeypatch.setattr(setup_env, "VENV", str(active))
    now = {"python": "3.11.7", "root": str(checkout), "files": "abc"}
    stamp = {**now, "extras": [], "borrowed": [str(active / SITE)]}
    assert setup_env.is_ready(stamp, now, set())
    assert not setup_env.is_ready({**stamp, "borrowed": [str(active / "gone")]}, now, set())
    assert not setup_env.is_ready(stamp, {**now, "files": "def"}, set())
    assert not setup_env.is_ready(stamp, now, {"dev"})
    assert not setup_env.is_ready({}, now, set())


def test_an_interrupted_setup_leaves_no_stamp_and_the_next_one_starts_afresh(active, checkout):
    shutil.rmtree(next((active / SITE).glob("click-*")))
    (active / SITE / "pip.py").write_text("import time; print('pip runs', flush=True); time.sleep(60)")
    command = [active / "bin/python", checkout / "grader/setup/environment.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
        for line in running.stdout:
            if "installing" in line:
                break
        os.killpg(running.pid, signal.SIGKILL)
    assert not (checkout / ".venv" / "grader-setup.json").exists()
    (checkout / ".venv" / "rubbish").touch()
    pretend_installed(active / SITE, "click>=8.1")
    done = set_up(active, checkout)
    assert done.returncode == 0
    assert "making .venv" in done.stdout
    assert not (checkout / ".venv" / "rubbish").exists()


def test_two_setups_at_once_make_one_environment(active, checkout):
    command = [active / "bin/python", checkout / "grader/setup/environment.py"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    output = "".join(one.communicate()[0] for one in both)
    assert [one.returncode for one in both] == [0, 0]
    assert output.count("making .venv") == 1


@pytest.mark.parametrize(
    ("platform", "version", "words"),
    [
        ("linux", (3, 9, 18), "Python 3.9 is too old"),
        (
            "darwin",
            (3, 12, 1),
            "Triton has no macOS wheel: use the devcontainer or Colab, see 'Where to work' in labs/README.md",
        ),
        ("win32", (3, 12, 1), "use the devcontainer, or WSL2 after `wsl --install`, see 'Where to work'"),
    ],
    ids=["old Python", "macOS", "Windows"],
)
def test_a_machine_that_cannot_run_triton_gets_one_line_and_exit_code_3(
    platform, version, words, monkeypatch, capsys
):
    machine = types.SimpleNamespace(platform=platform, version_info=version, stderr=None)
    monkeypatch.setattr(setup_env, "sys", machine)
    assert setup_env.main([]) == 3
    printed = capsys.readouterr()
    line = printed.out + printed.err
    assert words in line
    assert line.count("\n") == 1


def test_linux_with_a_new_python_is_supported():
    assert setup_env.unsupported("linux", (3, 10, 0)) is None


def test_setup_env_parses_on_python_3_8():
    ast.parse(Path(setup_env.__file__).read_text(), feature_version=(3, 8))


def test_a_missing_venv_module_names_the_package_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(steps, "find_spec", lambda _: None)
    with pytest.raises(steps.SetupError, match="python3-venv"):
        steps.create(str(tmp_path / ".venv"), [])


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("ERROR: [Errno 28] No space left on device", "the disk is full"),
        ("NewConnectionError: Temporary failure in name resolution\nNo matching distribution", "no network"),
        ("error sending request for url", "no network"),
        ("No matching distribution found for torch", "package not found"),
        ("error: subprocess-exited-with-error", "see above"),
    ],
)
def test_a_failed_installation_says_what_to_do(output, words):
    assert steps.advice(output).startswith(words)


def test_a_long_installation_says_that_it_still_runs_and_gives_all_its_output(monkeypatch, capsys):
    monkeypatch.setattr(steps, "STILL_S", 0.1)
    out, err = "print('out', flush=True)", "print('err', file=sys.stderr)"
    code = f"import sys, time; {out}; time.sleep(0.5); {err}; sys.exit(4)"
    assert steps.patiently([sys.executable, "-c", code], dict(os.environ)) == (4, "out\nerr\n")
    assert "setup: still running after" in capsys.readouterr().out


def test_the_requirements_are_those_a_toml_reader_finds():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert project["dependencies"] + extras["dev"] + extras["browser"] + extras["nvcc"] == WANTED


def test_every_requirement_has_the_form_that_the_setup_compares():
    assert WANTED
    assert all(re.fullmatch(r"[a-z0-9-]+>=\d+(\.\d+)*", one) for one in WANTED)


def test_every_requirement_is_pinned_in_the_constraints():
    pinned = re.findall(r"^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    # The CUDA build of torch pins its own nvidia-cuda-runtime: a second pin could not be met.
    assert {*pinned, "nvidia-cuda-runtime"} == {one.partition(">=")[0] for one in WANTED}


@pytest.mark.parametrize(
    ("version", "is_missing"),
    [("2.10.1", True), ("2.11.0", False), ("2.13.0+cpu", False), ("2.11.0a0+git1234", False), ("2.9", True)],
)
def test_a_version_is_compared_by_number_and_not_by_text(version, is_missing, tmp_path):
    pretend_installed(tmp_path, f"torch>={version}")
    assert steps.missing(["torch>=2.11"], [str(tmp_path)]) == (["torch>=2.11"] if is_missing else [])


def test_an_unknown_extra_is_refused():
    with pytest.raises(steps.SetupError, match="no list named nonsense"):
        steps.requirements(str(ROOT), ["nonsense"])


def test_every_target_of_the_makefile_has_help_text_and_help_lists_it():
    phony = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE).group(1).split())
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    assert targets == phony
    assert targets == set(re.findall(r"^([a-z-]+):.*?## \S", MAKEFILE, re.MULTILINE))
    printed = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z-]+) +\S", printed, re.MULTILINE)) == targets


def test_ci_runs_the_tests_and_grades_the_solutions():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = script.read_text().splitlines()
    assert {"make lint", "make test", "make test-all REST=1"} <= set(commands)
    assert "make grade FROM=solutions TIER=cpu" in commands


def test_the_cuda_build_can_be_asked_for_where_no_driver_is(monkeypatch):
    said = []
    monkeypatch.setattr(steps, "install", lambda _venv, _wanted, what, *_more: said.append(what))
    monkeypatch.setattr(steps, "has_nvidia_driver", lambda: False)
    monkeypatch.setattr(steps, "cpu_index_answers", lambda: True)
    steps.install_torch(".venv", ["torch>=2.11"])
    monkeypatch.setenv("GRADER_TORCH", "cuda")
    steps.install_torch(".venv", ["torch>=2.11"])
    assert ["CPU" in what for what in said] == [True, False]
    assert "CUDA" in said[1]


def test_uv_looks_for_packages_where_pip_would(monkeypatch, tmp_path):
    told = tmp_path / "told"
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {told}\n')
    uv.chmod(0o755)
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")

    def install() -> list[str]:
        steps.install(str(tmp_path / ".venv"), ["rich"], "rich")
        words = told.read_text().splitlines()
        return words[words.index("--python") + 2 : words.index("-c")]

    assert install() == []
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} /nowhere file:///more")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    links = ["--find-links", str(tmp_path), "--find-links", "file:///more"]
    places = ["--default-index", "https://mirror/simple", *links]
    assert install() == ["--no-index", *places]
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    assert install() == places
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own/simple")
    assert install() == []  # uv has been told by itself
