"""A student's file, read once; this copy is screened, run and recorded; imports no torch."""

from __future__ import annotations

import ast
import enum
import hashlib
import os
import stat
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grader.course.todos import Todo, open_errors, open_todos, open_todos_of

MOST_BYTES = 1 << 20  # size limit of a student's file


class Obstacle(enum.Enum):
    """Why a file has no text."""

    MISSING = enum.auto()
    NO_FILE = enum.auto()  # a folder, a link, a pipe
    TOO_LARGE = enum.auto()
    UNREADABLE = enum.auto()
    NO_TEXT = enum.auto()  # not UTF-8


@dataclass(frozen=True, eq=False)
class Submission:
    """The bytes of one file when it was read; later changes of the file have no effect.

    `data` is None if nothing could be read; `obstacle` then says why, and `words` says it in a sentence.
    """

    path: Path
    data: bytes | None
    obstacle: Obstacle | None = None
    words: str = ""

    @classmethod
    def read(cls, path: Path, most: int = MOST_BYTES) -> Submission:
        """Read a regular file of at most `most` bytes; any failure becomes an obstacle, not an exception."""
        try:
            # Do not follow a link, and do not wait for a writer of a pipe.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                facts = os.fstat(descriptor)
                if not stat.S_ISREG(facts.st_mode):
                    return cls._without(path, Obstacle.NO_FILE)
                if facts.st_size > most:
                    return cls._without(path, Obstacle.TOO_LARGE, facts.st_size, most)
                data = file.read(most + 1)
        except FileNotFoundError:
            return cls(path, None, Obstacle.MISSING, f"{path.name} is missing")
        except OSError as error:
            if path.is_symlink() or (path.exists() and not path.is_file()):
                return cls._without(path, Obstacle.NO_FILE)
            return cls(path, None, Obstacle.UNREADABLE, f"{path.name} cannot be read: {error.strerror}")
        if len(data) > most:
            return cls._without(path, Obstacle.TOO_LARGE, len(data), most)
        try:
            data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            words = f"{path.name} is not UTF-8 text (byte {error.start})"
            return cls(path, data, Obstacle.NO_TEXT, words)
        return cls(path, data)

    @classmethod
    def _without(cls, path: Path, obstacle: Obstacle, size: int = 0, most: int = 0) -> Submission:
        words = f"{path.name} is a folder, a link or a pipe, not a regular file"
        if obstacle is Obstacle.TOO_LARGE:
            words = f"{path.name} is too large: it has {size:,} bytes, the limit is {most:,}"
        return cls(path, None, obstacle, words)

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self.path.name

    @property
    def native(self) -> bool:
        """Whether it is CUDA C++."""
        return self.path.suffix == ".cu"

    @cached_property
    def sha256(self) -> str | None:
        """The SHA-256 of the bytes that were read, None if nothing was read."""
        return None if self.data is None else hashlib.sha256(self.data).hexdigest()

    @cached_property
    def text(self) -> str:
        """The source without a byte order mark; ValueError if the file is not text."""
        if self.obstacle or self.data is None:
            raise ValueError(self.words)
        return self.data.decode("utf-8-sig")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of a Python file, parsed once.

        SyntaxError or ValueError if it is not Python; RecursionError or MemoryError if nested too deeply.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # running the file reports an invalid escape, once
            return ast.parse(self.text, self.name)

    @property
    def parsed(self) -> ast.Module:
        """The syntax tree, empty if the file does not parse."""
        try:
            return self.tree
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.Module(body=[], type_ignores=[])

    def line(self, number: int) -> str:
        """Return a line of the source, numbered from 1; empty if there is no such line."""
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""

    @cached_property
    def open_todos(self) -> tuple[Todo, ...]:
        """Every TODO that is still open, in order."""
        if self.obstacle:
            return ()
        return open_errors(self.text) if self.native else open_todos(self.text, self.parsed)

    def open_todos_of(self, function: str) -> tuple[Todo, ...]:
        """Return the open TODOs that a function of the file depends on; in CUDA C++, all open TODOs."""
        if self.obstacle or self.native:
            return self.open_todos
        return open_todos_of(self.text, function, self.parsed)
