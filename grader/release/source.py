"""The files of a checkout, from git."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from grader.release.contents import File


class ReleaseError(ValueError):
    """Why there is no release, in words for an instructor."""


def git(root: Path, *arguments: str) -> bytes:
    """What git prints in a folder; ReleaseError with its complaint."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        raise ReleaseError("git is not installed, and a release is made from a commit") from None
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").strip().splitlines()
        raise ReleaseError(f"git {arguments[0]}: {complaint[-1] if complaint else done.returncode}")
    return done.stdout


def committed(root: Path) -> tuple[str, dict[str, File]]:
    """The commit that a checkout stands at, and its files; ReleaseError where something is not committed."""
    changed = git(root, "status", "--porcelain").decode(errors="replace").splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:5])
        raise ReleaseError(f"not committed: {names}. A release is made from a commit; commit or stash first")
    files = {}
    with tarfile.open(fileobj=io.BytesIO(git(root, "archive", "--format=tar", "HEAD"))) as archive:
        for one in archive:
            if one.isfile():
                files[one.name] = File(archive.extractfile(one).read(), bool(one.mode & 0o100))
            elif not one.isdir():
                files[one.name] = File(one.linkname.encode(), link=True)
    return git(root, "rev-parse", "HEAD").decode().strip(), files


def blobs(root: Path) -> dict[str, bytes]:
    """Every file that the history of a repository ever held, by its hash, and every message."""
    listed = git(root, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    found = {}
    for line in listed.decode().splitlines():
        name, kind = line.split()
        if kind != "tree":
            found[name] = git(root, "cat-file", kind, name)
    return found
