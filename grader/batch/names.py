"""Whose submission it is: names as learning platforms make them, and ids that are safe as folder names."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
# Canvas: lovelaceada_LATE_12345_67890_online_softmax-1.py, one file each, all in one folder.
CANVAS = re.compile(
    r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<number>\d{3,})(?:_(?P<attempt>\d{3,}))?_(?P<file>.+)", re.DOTALL
)
# Moodle: "Ada Lovelace_12345_assignsubmission_file_", a folder; or the same with the file's name behind it.
MOODLE = re.compile(
    r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_(?P<what>file|onlinetext)_?(?P<file>.*)", re.DOTALL
)


@dataclass(frozen=True)
class Named:
    """What the name of something handed in says: words that may name the student, best first."""

    keys: tuple[str, ...]
    file: str = ""  # of one file among several, as the student called it
    late: bool = False
    text_only: bool = False  # what a student typed into a form; no file


def named(entry: str, is_folder: bool) -> Named:
    """What an entry of the folder of submissions is called after."""
    moodle = MOODLE.fullmatch(entry)
    if moodle:
        keys = (moodle["number"], moodle["name"])
        return Named(keys, "" if is_folder else moodle["file"], text_only=moodle["what"] == "onlinetext")
    canvas = None if is_folder else CANVAS.fullmatch(entry)
    if canvas:
        return Named((canvas["number"], canvas["name"]), canvas["file"], canvas["late"] is not None)
    return Named((re.sub(r"(\.zip|\.git)$", "", entry, flags=re.IGNORECASE) or entry,))


def plain(text: str) -> str:
    """A name as it is compared: no case, no accents' spelling, no punctuation."""
    return "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())


def safe_id(text: str) -> str:
    """An id that is safe as a folder's name: the text itself, or what is left of it and a hash."""
    if SAFE.fullmatch(text) and not text.endswith("."):
        return text
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    left = re.sub(r"[^A-Za-z0-9]+", "-", ascii_text).strip("-")[:40] or "student"
    return f"{left}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
