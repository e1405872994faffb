"""Trees of files for tests of a release."""

import os
import re

from grader.classroom.release.contents import File
from grader.classroom.release.source import git


def lying(root):
    """The files of a checkout as they lie there, committed or not, without those that git ignores."""
    names = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0")
    paths = {name: root / name for name in sorted(set(names)) if name}
    return {
        name: File(os.fsencode(os.readlink(path)), link=True)
        if path.is_symlink()
        else File(path.read_bytes(), os.access(path, os.X_OK))
        for name, path in paths.items()
        if path.is_symlink() or path.is_file()
    }


def missing_in(page, targets):
    """What a page names that a student has not; plots of a survey are made by its command."""
    text = page.read_text("utf-8")
    yield from re.findall(r"solutions/|FROM=solutions|course staff\)|STAFF", text)
    yield from (name for name in re.findall(r"`make ([a-z-]+)", text) if name not in targets)
    for link in re.findall(r"(?:\]\(|src(?:set)?=\")([^)\"\s#:]+)[)\"#]", text):
        made = page.parent.name == "hardware-survey" and link.endswith(".svg")
        if not made and link != "..." and not (page.parent / link).exists():
            yield link
