"""Make .venv ready, or say in one line why not; Python 3.8 can parse it, so as to be told the same."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, "grader-setup.json")  # written last, so it vouches for everything before it
WHERE = "see 'Where to work' in labs/README.md"
LOCK = VENV + ".lock"  # beside .venv, which may be rebuilt; holds text while .venv is being made
INPUTS = ("pyproject.toml", "constraints.txt", "grader/setup_env.py", "grader/setup_steps.py")


def unsupported(platform, version):
    """Say why the labs cannot run on this kind of machine; None where they can."""
    if platform == "darwin":
        return f"Triton has no macOS wheel: use the devcontainer or Colab, {WHERE}."
    if platform == "win32":
        return f"Triton needs Linux: use the devcontainer, or WSL2 after `wsl --install`, {WHERE}."
    if version < (3, 10):
        return f"Python {version[0]}.{version[1]} is too old for Triton: try `make setup PYTHON=python3.11`."
    return None


def identity():
    """What .venv depends on: a change of `python` or `root` rebuilds it, a change of `files` updates it."""
    digest = hashlib.sha256()
    for name in INPUTS:
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read() + b"\0")
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"python": python, "root": ROOT, "files": digest.hexdigest()}


def read_stamp():
    """What the last finished setup wrote, {} if there was none."""
    try:
        with open(STAMP, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def write_stamp(stamp):
    """Replace the stamp in one step."""
    with open(STAMP + ".new", "w", encoding="utf-8") as file:
        json.dump(stamp, file)
    os.replace(STAMP + ".new", STAMP)


def is_sound(stamp, now):
    """Whether .venv can be kept: made here, for this Python, and what it borrows is still there."""
    same = stamp.get("python") == now["python"] and stamp.get("root") == now["root"]
    python = os.path.join(VENV, "bin", "python")
    return same and os.path.exists(python) and all(os.path.isdir(folder) for folder in stamp["borrowed"])


def is_ready(stamp, now, extras):
    """Whether nothing is left to do."""
    return is_sound(stamp, now) and stamp["files"] == now["files"] and extras <= set(stamp["extras"])


@contextlib.contextmanager
def locked():
    """Hold the lock file, so that two `make` at once do not write into one .venv."""
    import fcntl  # missing on Windows, which has been turned away by now

    with open(LOCK, "a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: waiting for another setup of this folder ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        yield lock


def set_up(extras, lock, steps):
    """Bring .venv up to date: rebuild it where it is unsound or half made, else add what is missing."""
    now, stamp = identity(), read_stamp()
    if is_ready(stamp, now, extras):
        return  # the setup we waited for did it
    is_half_made, is_there = bool(lock.read()), os.path.exists(os.path.join(VENV, "pyvenv.cfg"))
    if is_half_made or not is_there or (stamp and not is_sound(stamp, now)):
        stamp, borrowed = {}, steps.borrowed_folders(VENV)
        lock.write("this .venv is half made\n")
        lock.flush()
        steps.create(VENV, borrowed)
        only_missing = bool(borrowed)
    else:
        borrowed = stamp["borrowed"] if stamp else steps.borrowed_folders(VENV)
        only_missing = bool(borrowed) or not stamp  # without a stamp it is somebody's own: what it has stays
    extras = sorted(extras | set(stamp.get("extras", ())))
    if stamp:
        write_stamp({**stamp, "files": "being updated"})
    steps.link(VENV, borrowed)
    steps.fill(VENV, extras, borrowed, only_missing)
    write_stamp({**now, "extras": extras, "borrowed": borrowed})
    lock.truncate(0)
    steps.say("ready")


def main(arguments=None):
    """Run the setup; 0 when .venv is ready, 3 when something about this machine is in the way."""
    parser = argparse.ArgumentParser(description="Make .venv ready for the grader.")
    parser.add_argument("--extra", action="append", default=[], help="of pyproject.toml, such as dev")
    extras = set(parser.parse_args(arguments).extra)
    reason = unsupported(sys.platform, sys.version_info)
    if reason is None and not is_ready(read_stamp(), identity(), extras):
        from grader import setup_steps as steps  # a second run does not pay for its imports

        try:
            with locked() as lock:
                set_up(extras, lock, steps)
        except steps.SetupError as error:
            reason = str(error)
        except OSError as error:
            reason = f"{error}: {steps.advice(str(error))}"
        except KeyboardInterrupt:
            reason = "interrupted; run it again to go on."
    if reason:
        print("setup: " + reason, file=sys.stderr)
    return 3 if reason else 0


if __name__ == "__main__":
    sys.path[0] = ROOT  # not grader/, where a module could stand in for one of the library
    sys.exit(main())
