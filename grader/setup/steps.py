"""Install packages into .venv: requirements, packages of this machine, pip or uv; imports no package."""

import os
import re
import shutil
import site
import subprocess
import sys
import time
from http.client import HTTPException
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib import request

STILL_S = 20.0  # print a line after so many seconds, because a silent download looks like a hang
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# What each process of the grader imports of large packages: without bytecode it takes seconds more.
LARGE = ("torch", "torch._prims_common", "torch._inductor.utils", "triton.language")
OWN = ("grader.cli.main", "grader.grading.plugin", "grader.judge.compile_ahead", "grader.worker.worker")
ADVICE = (
    (
        "No space left|os error 28|quota exceeded",
        "the disk is full: free about 3 GB (10 GB with CUDA) and run it again.",
    ),
    (
        "ame resolution|Name or service|unreachable|refused|timed out|dns error|error sending request",
        "no network: connect this machine to its package index and run it again.",
    ),
    (
        "No matching distribution|No solution found|ResolutionImpossible",
        "package not found: no network, or a machine other than Linux with glibc and Python 3.10 to 3.13.",
    ),
    ("", "see above; `make clean` removes .venv for a new start."),
)


class SetupError(Exception):
    """The setup cannot continue; the message says why and what to do, in one line."""


def say(text):
    """Print one line of progress at once."""
    print("setup: " + text, flush=True)


def advice(output):
    """Return what to do about the failure in this output of pip or uv."""
    return next(text for pattern, text in ADVICE if re.search(pattern, output))


def requirements(root, extras):
    """Return the `name>=floor` strings of pyproject.toml, parsed by hand: Python 3.10 has no tomllib."""
    text = Path(root, "pyproject.toml").read_text(encoding="utf-8")
    found = []
    for key in ("dependencies", *extras):
        block = re.search(rf"(?ms)^{re.escape(key)} = \[\n(.*?)^\]", text)
        if block is None:
            raise SetupError(f"pyproject.toml has no list named {key}.")
        found += re.findall(r'(?m)^ +"([^"]+)"', block.group(1))
    return found


def numbers(version):
    """Return the release part of a version for comparison: [2, 13, 0] for 2.13.0+cpu."""
    return [int(part) for part in re.match(r"[\d.]*", version).group().split(".") if part]


def missing(wanted, path):
    """Return the requirements that no package folder in `path` satisfies; imports none of them."""
    absent = []
    for requirement in wanted:
        name, _, floor = requirement.partition(">=")
        found = next((one.version or "" for one in metadata.distributions(name=name, path=path)), None)
        if found is None or numbers(found) < numbers(floor):
            absent.append(requirement)
    return absent


def borrowed_folders(venv):
    """Return the package folders of the active Python if its torch and triton are new enough, else []."""
    pair = [one for one in requirements(os.path.dirname(venv), ()) if re.match("torch>|triton>", one)]
    is_inside = os.path.realpath(sys.prefix) == os.path.realpath(venv)
    if is_inside or missing(pair, sys.path) or not (find_spec("torch") and find_spec("triton")):
        return []
    folders = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
    return [folder for folder in folders if os.path.isdir(folder)]


def create(venv, borrowed):
    """Create an empty .venv, with pip (which takes seconds) only if neither uv nor a borrowed pip exists."""
    with_pip = not shutil.which("uv") and not (borrowed and find_spec("pip"))
    if not find_spec("venv") or (with_pip and not find_spec("ensurepip")):
        raise SetupError("this Python lacks venv: on Debian or Ubuntu, sudo apt install python3-venv.")
    from venv import EnvBuilder  # not at the top: Debian's Python may lack it

    say("making .venv with Python " + sys.version.split()[0] + (" and its torch" if borrowed else ""))
    try:
        EnvBuilder(clear=True, symlinks=True, with_pip=with_pip).create(venv)
    except subprocess.CalledProcessError as failed:  # of ensurepip
        raise SetupError("no pip for .venv: " + advice(str(failed.output))) from failed


def package_folder(venv):
    """Return the site-packages folder of .venv. Raises SetupError if it was made for another Python."""
    folder = os.path.join(venv, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    if not os.path.isdir(folder):
        raise SetupError(".venv is for another Python: remove it with `make clean` and run it again.")
    return folder


def link(venv, borrowed):
    """Make `import grader` and the borrowed packages work in .venv with a .pth file, which needs no build."""
    # --system-site-packages does not work: if the active Python is a venv, it means the Python beneath it
    lines = [os.path.dirname(venv), *(f"import site; site.addsitedir({folder!r})" for folder in borrowed)]
    Path(package_folder(venv), "triton_course_lab.pth").write_text("\n".join([*lines, ""]), encoding="utf-8")


def install(venv, wanted, what, *options):
    """Install into .venv with uv or pip; their output is shown only on failure. Raises SetupError."""
    say(f"installing {what} ...")
    python, uv = f"{venv}/bin/python", shutil.which("uv")
    uv_tool = [uv, "pip", "install", "--python", python, *uv_sources(os.environ)]
    tool = uv_tool if uv else [python, "-m", "pip", "install"]
    command = [*tool, "-c", os.path.join(os.path.dirname(venv), "constraints.txt"), *options, *wanted]
    environ = {
        **os.environ,
        "PIP_USER": "0",
        "PIP_NO_INPUT": "1",
    }  # --user fails in a venv, and nobody sees a prompt
    code, output = patiently(command, environ)
    if code:
        print("\n".join(output.splitlines()[-20:]), file=sys.stderr)
        raise SetupError(advice(output))


def uv_sources(environ):
    """Return uv options for the indexes in pip's environment variables; [] if uv's own are set."""
    if any(name.startswith("UV_") and ("INDEX" in name or "LINKS" in name) for name in environ):
        return []
    options = (
        ["--no-index"] if environ.get("PIP_NO_INDEX", "0").lower() not in ("", "0", "false", "no") else []
    )
    pairs = (
        ("PIP_INDEX_URL", "--default-index"),
        ("PIP_EXTRA_INDEX_URL", "--index"),
        ("PIP_FIND_LINKS", "--find-links"),
    )
    for name, option in pairs:
        for place in environ.get(name, "").split():
            # uv stops where pip only warns.
            if option != "--find-links" or "://" in place or os.path.exists(place):
                options += [option, place]
    return options


def patiently(command, environ):
    """Run a command that may take minutes and return exit code and output; print regularly that it runs."""
    pipe = subprocess.PIPE
    began = time.monotonic()
    with subprocess.Popen(
        command, env=environ, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        while True:
            try:
                output, _ = running.communicate(timeout=STILL_S)
                return running.returncode, output
            except subprocess.TimeoutExpired:
                say(f"still running after {time.monotonic() - began:.0f} s ...")
            except BaseException:
                running.kill()
                raise


def has_nvidia_driver():
    """Whether an NVIDIA driver is installed, without starting a process."""
    devices = os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/nvidiactl")
    return devices or shutil.which("nvidia-smi") is not None


def cpu_index_answers():
    """Whether the index of CPU builds can be reached; without it pip retries for minutes and uv fails."""
    try:
        return request.urlopen(CPU_INDEX + "/torch/", timeout=3).status == 200
    except (OSError, HTTPException):
        return False


def install_torch(venv, wanted):
    """Install torch separately: it takes long, and its index depends on the machine.

    GRADER_TORCH=cuda is for login nodes and images without a driver whose GPUs are on other machines.
    """
    if os.environ.get("GRADER_TORCH") == "cuda" or has_nvidia_driver():
        install(venv, wanted, "torch with CUDA (about 3 GB)")
    elif cpu_index_answers():
        # 2.13.0+cpu sorts above 2.13.0; by default uv stops at the first index that has the package
        best = ["--index-strategy", "unsafe-best-match"] if shutil.which("uv") else []
        install(venv, wanted, "the CPU build of torch (about 200 MB)", "--extra-index-url", CPU_INDEX, *best)
    else:
        install(venv, wanted, f"torch (3 GB, unless your index has a CPU build: {CPU_INDEX} does not answer)")


def fill(venv, extras, borrowed, only_missing):
    """Install the requirements at their pinned versions, or only the missing ones."""
    root, folder = os.path.dirname(venv), package_folder(venv)
    wanted = requirements(root, extras)
    if only_missing:
        python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        wanted = missing(wanted, [folder, *filter(None, python_path), *borrowed])
    torch = [one for one in wanted if one.startswith("torch>")]
    pinned = re.search(r"(?m)^torch==([\d.]+)", Path(root, "constraints.txt").read_text(encoding="utf-8"))
    if torch and missing([f"torch>={pinned.group(1)}"], [folder]):
        install_torch(venv, torch)
    if rest := [one for one in wanted if one not in torch]:
        new = ", ".join(one.partition(">=")[0] for one in missing(rest, [folder]))
        install(venv, rest, new.replace("triton", "triton (about 200 MB)") or "the pinned versions")


def compile_imports(venv):
    """Import what a run needs once, so that Python keeps its bytecode: uv, and images, leave that out.

    Where it cannot be written nothing is lost but time.
    """
    code = f"""
import contextlib, importlib
for name in {(*LARGE, *OWN)!r}:
    with contextlib.suppress(Exception):
        importlib.import_module(name)
"""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    patiently([os.path.join(venv, "bin", "python"), "-c", code], environ)
