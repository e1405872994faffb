"""Read the files of a checkout from git."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from grader.classroom.release.contents import File
from grader.system.processes import run_tool


class ReleaseError(ValueError):
    """The release cannot be made; the message is for an instructor."""


def git(root: Path, *arguments: str) -> bytes:
    """Run git in a folder and return its output. Raises ReleaseError with git's error message."""
    try:
        done = run_tool(["git", *arguments], None, cwd=root)
    except FileNotFoundError:
        raise ReleaseError("git is not installed, and a release is made from a commit") from None
    if done.code:
        complaint = done.complaint.splitlines()
        raise ReleaseError(f"git {arguments[0]}: {complaint[-1] if complaint else done.code}")
    return done.output


def committed(root: Path) -> tuple[str, dict[str, File]]:
    """Return the HEAD commit and its files. Raises ReleaseError if there are uncommitted changes."""
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
    """Return all file versions and commit messages in the history of a repository, by object hash."""
    listed = git(root, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    found = {}
    for line in listed.decode().splitlines():
        name, kind = line.split()
        if kind != "tree":
            found[name] = git(root, "cat-file", kind, name)
    return found
