"""Runs the `run:` steps of the workflows as they stand, in a chroot made of Debian's packages; takes minutes.

`sudo python grader/tests/classroom/ci_chroot.py FOLDER` makes FOLDER/root with mmdebstrap, once, and
prints each step with its exit code. An action is replaced by what it leaves: a checkout by a clone of the
last commit here, an artifact by a copied folder. Exit code: 1 if a step did not end as it should; 4 without
root or mmdebstrap.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
USAGE, MISSING = 2, 4
PACKAGES = "ca-certificates,gcc,git,libc6-dev,make,python3,python3-dev,python3-venv"
RUNNER = 1001  # a user without rights, as on GitHub's machines
PLAN = [
    ("grade-cpu.yml", "grade"),
    ("grade-cpu.yml", "publish"),
    ("grade-gpu.yml", "collect"),
    ("grade-gpu.yml", "grade"),
    ("grade-gpu.yml", "publish"),
    ("test.yml", "lint"),
]
NOT_RUN = {
    ("test.yml", "test"): "make test, which runs without a chroot",
    ("test.yml", "nightly"): "make test-nightly, which runs without a chroot",
    ("image.yml", "build"): "needs a Docker daemon and a registry",
}
VARIABLES = {"LABS": "1", "GRADER_IMAGE": "", "GITHUB_STEP_SUMMARY": "/home/runner/summary.md"}


def job_of(name: str, title: str) -> dict:
    """A job of a workflow, as YAML."""
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text("utf-8"))["jobs"][title]


class Machine:
    """The chroot: `/work` is the workspace of a job, `/home/runner` the home of its user."""

    def __init__(self, folder: Path):
        self.root, self.artifacts = folder / "root", folder / "artifacts"
        self.work, self.home = self.root / "work", self.root / "home" / "runner"
        if not self.root.exists():
            command = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(self.root)]
            subprocess.run(command, check=True)
        for name in ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
            if Path(name).is_file():
                shutil.copy(name, self.root / name.lstrip("/"))

    def begin(self) -> None:
        """Empty the workspace and the home; only .venv stays, because each job would install the same."""
        kept, venv = self.root / "kept", self.work / ".venv"
        if venv.exists():
            venv.rename(kept)
        for folder in (self.work, self.home):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)

    def check_out(self, settings: dict) -> None:
        """Clone the last commit, sparsely where the job asks for that; a `repository` is a student's."""
        git = ["git", "-c", "safe.directory=*", "-C", str(self.work)]
        subprocess.run(["git", "clone", "-q", "--no-checkout", str(ROOT), str(self.work)], check=True)
        if "sparse-checkout" in settings:
            cone = "--cone" if settings.get("sparse-checkout-cone-mode", True) else "--no-cone"
            subprocess.run(
                [*git, "sparse-checkout", "set", cone, *settings["sparse-checkout"].split()], check=True
            )
        subprocess.run([*git, "checkout", "-q"], check=True)
        if (self.root / "kept").exists() and "repository" not in settings:
            (self.root / "kept").rename(self.work / ".venv")

    def use(self, action: str, settings: dict) -> None:
        """Do what an action leaves behind."""
        if "checkout@" in action:
            self.check_out(settings)
        elif "upload-artifact@" in action:
            store = self.artifacts / settings["name"]
            shutil.rmtree(store, ignore_errors=True)
            paths = [self.work / path for path in settings["path"].split()]
            for path in paths:
                target = store if len(paths) == 1 else store / path.name
                if path.is_dir():
                    shutil.copytree(path, target)
                elif path.is_file():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, target)
        elif "download-artifact@" in action:
            shutil.copytree(self.artifacts / settings["name"], self.work / settings["path"])

    def has_what(self, condition: str) -> bool:
        """Whether the files are there that the condition of a step asks for."""
        asked = re.findall(r"hashFiles\('(.*?)'\) != ''", condition)
        return all((self.work / path).exists() for path in asked)

    def run(self, step: dict) -> subprocess.CompletedProcess:
        """Run a step as its user, in namespaces of its own, so that no mount and no process stays."""
        (self.root / "step.sh").write_text(step["run"])
        subprocess.run(["chown", "-R", f"{RUNNER}:{RUNNER}", self.work, self.home], check=True)
        strict = "--noprofile --norc -eo pipefail" if step.get("shell") == "bash" else "-e"
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        names = {"PATH": "/usr/bin:/bin", "HOME": "/home/runner", **pip, **VARIABLES}
        wheels = [path for path in pip.get("PIP_FIND_LINKS", "").split() if Path(path).is_dir()]
        lines = [f"mount --rbind /dev {self.root}/dev", f"mount -t proc proc {self.root}/proc"]
        for path in wheels:
            lines += [f"mkdir -p {self.root}{path}", f"mount --bind {path} {self.root}{path}"]
        lines += [
            f'exec chroot {self.root} setpriv --reuid={RUNNER} --regid={RUNNER} --clear-groups env -i "$@" '
            f"bash -c 'cd /work && exec bash {strict} /step.sh'"
        ]
        given = [f"{name}={value}" for name, value in names.items()]
        command = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "bash",
            "-ec",
            "\n".join(lines),
            "bash",
        ]
        return subprocess.run([*command, *given], capture_output=True, text=True, check=False)


def expected(step: dict) -> int:
    """The exit code that a step should have: without a GPU the graded run on a GPU is refused."""
    return USAGE if "TIER=gpu" in step["run"] and not Path("/dev/nvidiactl").exists() else 0


def main(folder: Path) -> int:
    """Run every job of the plan; print a line for each step, and what it said where it failed."""
    if os.geteuid() or not shutil.which("mmdebstrap"):
        print("needs root and Debian's mmdebstrap: sudo apt-get install mmdebstrap", file=sys.stderr)
        return MISSING
    machine, failed = Machine(folder.resolve()), 0
    for name, title in PLAN:
        machine.begin()
        for step in job_of(name, title)["steps"]:
            if "uses" in step:
                machine.use(step["uses"], step.get("with", {}))
                continue
            words = f"{name} {title}: {step.get('name', step['run'].strip())}"
            if not machine.has_what(step.get("if", "")):
                print(f"{words}: left out by its condition, {step['if']}", flush=True)
                continue
            began = time.monotonic()
            done = machine.run(step)
            print(f"{words}: exit {done.returncode}, {time.monotonic() - began:.0f} s", flush=True)
            if done.returncode != expected(step):
                failed += 1
                print(done.stdout[-2000:], done.stderr[-2000:], sep="\n", flush=True)
    for (name, title), why in NOT_RUN.items():
        print(f"{name} {title}: not run: {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
