"""Records of measurements as files: their common fields, and how to save and read them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import Field, ValidationError

from grader.results import base
from grader.results.machine import Machine, machine, now
from grader.system.files import finding, read_bytes, replace
from grader.system.gpu import Gpu

Words = Annotated[str, Field(max_length=300)]  # a sentence; a record may be one that a student hands in
R = TypeVar("R", bound="Record")
M = TypeVar("M", bound="Measurement")


class Model(base.Model, frozen=False):
    """A part of a record, which can change while it is measured; an unknown field is an error."""


class Record(Model):
    """A record that is a file; `made_by` is the command that writes it."""

    made_by: ClassVar[str] = "the grader"
    most_bytes: ClassVar[int] = 16 << 20

    schema_version: Literal[1] = 1

    def save(self, path: Path) -> None:
        """Write the record completely or not at all."""
        replace(path, self.model_dump_json(indent=1))

    @classmethod
    def parse(cls: type[R], data: bytes, name: str) -> R:
        """Parse the bytes of the file `name`; ValueError, in one line, if they are not a valid record."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise ValueError(f"{name} is not a record of {cls.made_by}: {finding(error)}") from None

    @classmethod
    def read(cls: type[R], path: Path, name: str = "") -> R:
        """Read the record at `path`; FileNotFoundError, or ValueError in one line that calls it `name`."""
        name = name or path.name
        return cls.parse(read(path, name, cls.most_bytes), name)


class Measurement(Record):
    """A record of a measurement on this machine: date, command, protocol and versions."""

    date: str
    command: str
    protocol: str
    machine: Machine
    cuda: str | None

    @classmethod
    def begin(cls: type[M], command: str, gpu: Gpu | None, cuda: str | None, **more: object) -> M:
        """Create a record with the current date and this machine; `more` are fields of the subclass."""
        fields = {"date": now(), "command": command, "machine": machine(gpu, ""), "cuda": cuda}
        return cls.model_validate(fields | more)

    @property
    def where(self) -> str:
        """GPU, versions and day, for the line below a table."""
        return f"{self.machine.words}, CUDA {self.cuda or 'none'}, {self.date[:10]}"


def read(path: Path, name: str, most: int) -> bytes:
    """Read a file that may be a student's, of at most `most` bytes.

    FileNotFoundError if it is missing; otherwise ValueError, whose message calls it `name`.
    """
    try:
        return read_bytes(path, most)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from None
