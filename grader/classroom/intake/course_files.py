"""Tell a file of the course, which a student hands in along with the answers, from a student's own."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from grader.course import catalog

# What a checkout of the course holds beside the course.
NOT_COURSE = {".git", ".venv", "results", "__pycache__", "build"}


@lru_cache
def paths(root: Path = catalog.ROOT) -> frozenset[str]:
    """Return the paths of the course's files, relative to its root."""
    found = set()
    for where, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_COURSE]
        below = Path(where).relative_to(root)
        found |= {(below / name).as_posix() for name in files}
    return frozenset(found)


def is_course_file(path: str, root: Path = catalog.ROOT) -> bool:
    """Whether the path ends like the path of a file of the course, as in `my-work/labs/README.md`.

    A name without a folder says too little: `README.md` may be the student's own.
    """
    parts = path.split("/")
    return any("/".join(parts[at:]) in paths(root) for at in range(len(parts) - 1))
