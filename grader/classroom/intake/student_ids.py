"""Find a submission's student from its file name, and make ids that are safe as folder names."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
# Canvas: lovelaceada_LATE_12345_67890_online_softmax-1.py, all files of all students in one folder.
CANVAS = re.compile(
    r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<number>\d{3,})(?:_(?P<attempt>\d{3,}))?_(?P<file>.+)", re.DOTALL
)
# Moodle: a folder "Ada Lovelace_12345_assignsubmission_file_", or a file with its own name appended.
MOODLE = re.compile(
    r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_(?P<what>file|onlinetext)_?(?P<file>.*)", re.DOTALL
)


@dataclass(frozen=True)
class Named:
    """The parsed name of a submission: `keys` may identify the student, best first."""

    keys: tuple[str, ...]
    file: str = ""  # the student's name for the file, if the platform saves files one by one
    late: bool = False
    text_only: bool = False  # text typed into a form, not a file


def named(entry: str, is_folder: bool) -> Named:
    """Parse the name of an entry in the folder of submissions."""
    moodle = MOODLE.fullmatch(entry)
    if moodle:
        keys = (moodle["number"], moodle["name"])
        return Named(keys, "" if is_folder else moodle["file"], text_only=moodle["what"] == "onlinetext")
    canvas = None if is_folder else CANVAS.fullmatch(entry)
    if canvas:
        return Named((canvas["number"], canvas["name"]), canvas["file"], canvas["late"] is not None)
    return Named((re.sub(r"(\.zip|\.git)$", "", entry, flags=re.IGNORECASE) or entry,))


def caseless(text: str) -> str:
    """Return a name without case and in one Unicode form, for comparison."""
    return unicodedata.normalize("NFKC", text).casefold()


def plain(text: str) -> str:
    """Return a name without case and punctuation and in one Unicode form, for comparison."""
    return "".join(filter(str.isalnum, caseless(text)))


def safe_id(text: str) -> str:
    """Return an id that is safe as a folder name: the text itself, or its safe characters and a hash."""
    if SAFE.fullmatch(text) and not text.endswith("."):
        return text
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    left = re.sub(r"[^A-Za-z0-9]+", "-", ascii_text).strip("-")[:40] or "student"
    return f"{left}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
