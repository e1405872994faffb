"""Read who a submission belongs to from its name, and make ids that are safe as folder names."""

from __future__ import annotations

import enum
import hashlib
import re
import unicodedata
from dataclasses import dataclass

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
# Canvas: lovelaceada_LATE_12345_67890_online_softmax-1.py, all files of all students in one folder.
CANVAS = re.compile(
    r"(?P<name>[^_]+)(?P<late>_LATE)?_(?:(?P<number>\d+)_(?P<attachment>\d+)|(?P<only>\d{3,}))_(?P<file>.+)",
    re.DOTALL,
)
# Moodle: a folder "Ada Lovelace_12345_assignsubmission_file_", or a file with its own name appended.
MOODLE = re.compile(
    r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_(?P<what>file|onlinetext)_?(?P<file>.*)", re.DOTALL
)
ARCHIVE = re.compile(r"(?P<stem>.+?)\.(zip|git|tar\.gz|tgz)", re.IGNORECASE | re.DOTALL)
# What browsers, file managers and platforms add to the name of a copy: "x (1)", "x-1", "x 2", "x copy",
# "x - Copy (2)", "Copy of x".
COPY = re.compile(
    r"Copy of (?P<of>.+)"
    r"|(?P<stem>.+?)(?: ?\(\d{1,3}\)|-\d{1,3}| \d{1,3}| - Copy(?: \(\d{1,3}\))?| copy(?: \d{1,3})?)",
    re.DOTALL,
)


class Kind(enum.Enum):
    """What a text that identifies a student is."""

    ID = "id"  # the roster's own id
    EMAIL = "e-mail address"
    USER = "number of a user"  # of Canvas, where a user has one number in all courses
    NUMBER = "number of a participant"  # of Moodle, where a user has another number in each assignment
    ACCOUNT = "account or number"  # another column of the roster that identifies one person
    GROUP = "group"  # shared by the people who hand in together
    NAME = "name"


ANY = tuple(Kind)


@dataclass(frozen=True)
class Key:
    """A text that may identify a student, and the kinds of columns that it is compared with."""

    text: str
    kinds: tuple[Kind, ...] = ANY


@dataclass(frozen=True)
class Named:
    """The parsed name of a submission: all keys must mean the same student."""

    keys: tuple[Key, ...]
    file: str = ""  # the student's name for the file, if the platform saves files one by one
    late: bool = False

    @property
    def words(self) -> str:
        """The keys as a name for a student who is not on the roster: "Ada Lovelace_4711"."""
        return "_".join(key.text for key in reversed(self.keys))


def named(entry: str, is_folder: bool) -> Named:
    """Parse the name of an entry in the folder of submissions."""
    moodle = MOODLE.fullmatch(entry)
    if moodle:
        keys = (Key(moodle["number"], (Kind.NUMBER,)), Key(moodle["name"], (Kind.NAME,)))
        return Named(keys, "" if is_folder else moodle["file"])
    canvas = None if is_folder else CANVAS.fullmatch(entry)
    if canvas:
        user = Key(canvas["number"] or canvas["only"], (Kind.USER,))
        return Named((user, Key(canvas["name"], (Kind.NAME,))), canvas["file"], bool(canvas["late"]))
    archive = ARCHIVE.fullmatch(entry)
    return Named((Key(archive["stem"] if archive else entry),))


def original(name: str) -> str:
    """Return the name of a file before a copy was numbered, or the name itself: "a (1).py" is "a.py"."""
    stem, dot, suffix = name.rpartition(".")
    match = COPY.fullmatch(stem) if dot else None
    return f"{match['of'] or match['stem']}.{suffix}" if match else name


def caseless(text: str) -> str:
    """Return a text without case, accents in one Unicode form, for comparison; letters stay what they are."""
    return unicodedata.normalize("NFC", text).lower()


def plain(text: str) -> str:
    """Return a text without case and punctuation, accents in one Unicode form, for comparison."""
    return "".join(filter(str.isalnum, caseless(text)))


def loosest(text: str) -> str:
    """Return what is left of a text without case, punctuation, accents and leading zeros, for comparison."""
    letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    return "".join(filter(str.isalnum, letters)).lstrip("0")


def safe_id(text: str) -> str:
    """Return an id that is safe as a folder name: the text itself, or its safe characters and a hash."""
    if SAFE.fullmatch(text) and not text.endswith("."):
        return text
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    left = re.sub(r"[^A-Za-z0-9]+", "-", ascii_text).strip("-")[:40] or "student"
    return f"{left}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
