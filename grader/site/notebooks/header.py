"""The common first cells of every notebook: where to open it, and the setup cell."""

from __future__ import annotations

from urllib.parse import urlsplit

# The address of the course, as https://github.com/OWNER/NAME; fill it in once the course is published.
REPOSITORY = ""

SETUP = """\
# Sets up: finds the course, or clones it where this file stands alone, as in Colab.
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = os.environ.get("COURSE_REPOSITORY", "{repository}")  # the address to clone from

above = (Path.cwd(), *Path.cwd().parents)
course = next((folder for folder in above if (folder / "grader" / "site").is_dir()), None)
if course is None:
    if not REPOSITORY:
        sys.exit("The course is not here: fill in REPOSITORY above with the address of its repository.")
    course = Path.cwd() / "course"
    subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, str(course)], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-e", str(course)], check=True)
sys.path.insert(0, str(course))

from grader.site.notebooks import lesson

lesson.start()"""


def setup() -> str:
    """Return the source of the first code cell."""
    return SETUP.format(repository=REPOSITORY)


def ways_to_open(name: str) -> str:
    """Return Markdown that says where the notebook file `name` can be opened."""
    here = f"In VS Code: open the course's folder, then `notebooks/{name}`, and choose the kernel of `.venv`"
    parts = urlsplit(REPOSITORY)
    if not parts.path.strip("/"):
        return f"{here}. In Colab: upload this file, fill in `REPOSITORY` in the first cell."
    path = f"github/{parts.path.strip('/').removesuffix('.git')}/blob/main/notebooks/{name}"
    badge = "https://colab.research.google.com/assets/colab-badge.svg"
    return f"[![Open in Colab]({badge})](https://colab.research.google.com/{path}) {here}."
