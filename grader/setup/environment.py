"""Set up .venv, or say in one line why not; Python 3.8 can parse this file, so it gets the message too."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, "grader-setup.json")  # written last, so it marks a complete setup
WHERE = "see 'Where to work' in labs/README.md"
LOCK = VENV + ".lock"  # beside .venv, which may be rebuilt; contains text while .venv is incomplete
INPUTS = ("pyproject.toml", "constraints.txt", "grader/setup/environment.py", "grader/setup/steps.py")


def unsupported(platform, version):
    """Return why the labs cannot run on this platform, or None if they can."""
    if platform == "darwin":
        return f"Triton has no macOS wheel: use the devcontainer or Colab, {WHERE}."
    if platform == "win32":
        return f"Triton needs Linux: use the devcontainer, or WSL2 after `wsl --install`, {WHERE}."
    if version < (3, 10):
        return f"Python {version[0]}.{version[1]} is too old for Triton: try `make setup PYTHON=python3.11`."
    return None


def identity():
    """Return what .venv depends on: a new `python` or `root` rebuilds it, new `files` update it."""
    digest = hashlib.sha256()
    for name in INPUTS:
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read() + b"\0")
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"python": python, "root": ROOT, "files": digest.hexdigest()}


def read_stamp():
    """Return the stamp of the last finished setup, {} if there was none."""
    try:
        with open(STAMP, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def write_stamp(stamp):
    """Replace the stamp atomically."""
    with open(STAMP + ".new", "w", encoding="utf-8") as file:
        json.dump(stamp, file)
    os.replace(STAMP + ".new", STAMP)


def is_sound(stamp, now):
    """Whether .venv can be kept: made here, for this Python, and its borrowed folders still exist."""
    same = stamp.get("python") == now["python"] and stamp.get("root") == now["root"]
    python = os.path.join(VENV, "bin", "python")
    return same and os.path.exists(python) and all(os.path.isdir(folder) for folder in stamp["borrowed"])


def is_ready(stamp, now, extras):
    """Whether .venv is complete and up to date."""
    return is_sound(stamp, now) and stamp["files"] == now["files"] and extras <= set(stamp["extras"])


@contextlib.contextmanager
def locked():
    """Hold the lock file, so that two `make` processes do not write into one .venv."""
    import fcntl  # missing on Windows, which `unsupported` has excluded

    with open(LOCK, "a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: waiting for another setup of this folder ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        yield lock


def set_up(extras, lock, steps):
    """Bring .venv up to date: rebuild it if it is unsound or incomplete, else install what is missing."""
    now, stamp = identity(), read_stamp()
    if is_ready(stamp, now, extras):
        return  # the setup that held the lock did it
    is_half_made, is_there = bool(lock.read()), os.path.exists(os.path.join(VENV, "pyvenv.cfg"))
    if is_half_made or not is_there or (stamp and not is_sound(stamp, now)):
        stamp, borrowed = {}, steps.borrowed_folders(VENV)
        lock.write("this .venv is half made\n")
        lock.flush()
        steps.create(VENV, borrowed)
        only_missing = bool(borrowed)
    else:
        borrowed = stamp["borrowed"] if stamp else steps.borrowed_folders(VENV)
        only_missing = bool(borrowed) or not stamp  # without a stamp the user made it: keep its packages
    extras = sorted(extras | set(stamp.get("extras", ())))
    if stamp:
        write_stamp({**stamp, "files": "being updated"})
    steps.link(VENV, borrowed)
    steps.fill(VENV, extras, borrowed, only_missing)
    steps.compile_imports(VENV)
    write_stamp({**now, "extras": extras, "borrowed": borrowed})
    lock.truncate(0)
    steps.say("ready")


def main(arguments=None):
    """Run the setup; return 0 when .venv is ready, 3 when something on this machine prevents it."""
    parser = argparse.ArgumentParser(description="Make .venv ready for the grader.")
    parser.add_argument("--extra", action="append", default=[], help="of pyproject.toml, such as dev")
    extras = set(parser.parse_args(arguments).extra)
    reason = unsupported(sys.platform, sys.version_info)
    if reason is None and not is_ready(read_stamp(), identity(), extras):
        from grader.setup import steps  # imported only when needed, so that a second run is fast

        try:
            with locked() as lock:
                set_up(extras, lock, steps)
        except steps.SetupError as error:
            reason = str(error)
        except OSError as error:
            reason = f"{error}: {steps.advice(str(error))}"
        except KeyboardInterrupt:
            reason = "interrupted; run it again to continue."
    if reason:
        print("setup: " + reason, file=sys.stderr)
    return 3 if reason else 0


if __name__ == "__main__":
    sys.path[0] = ROOT  # not grader/setup/, where a module could shadow one of the standard library
    sys.exit(main())
