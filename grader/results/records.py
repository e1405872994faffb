"""Records of measurements as files: what stands at the head of each, and how one is saved and read."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from pydantic import ValidationError

from grader.results import base
from grader.results.machine import Machine, machine, now
from grader.system.files import finding, read_bytes, replace
from grader.system.gpu import Gpu

R = TypeVar("R", bound="Record")
M = TypeVar("M", bound="Measurement")


class Model(base.Model, frozen=False):
    """A part of a record, which grows while it is measured; a field that it does not know is an error."""


class Record(Model):
    """A file of its own; `made_by` is the command that writes it."""

    made_by: ClassVar[str] = "the grader"
    most_bytes: ClassVar[int] = 16 << 20

    schema_version: Literal[1] = 1

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        replace(path, self.model_dump_json(indent=1))

    @classmethod
    def parse(cls: type[R], data: bytes, name: str) -> R:
        """The record in the bytes of the file `name`; ValueError, in one line, where they are none."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise ValueError(f"{name} is no record of {cls.made_by}: {finding(error)}") from None

    @classmethod
    def read(cls: type[R], path: Path, name: str = "") -> R:
        """The record at `path`, which errors call `name`; FileNotFoundError, or ValueError in one line."""
        name = name or path.name
        return cls.parse(read(path, name, cls.most_bytes), name)


class Measurement(Record):
    """A record of what a command measured on this machine: when, how and with what."""

    date: str
    command: str
    protocol: str
    machine: Machine
    cuda: str | None

    @classmethod
    def begin(cls: type[M], command: str, gpu: Gpu | None, cuda: str | None, **more: object) -> M:
        """A record of this moment, on this machine and its GPU; `more` are fields of its own."""
        fields = {"date": now(), "command": command, "machine": machine(gpu, ""), "cuda": cuda}
        return cls.model_validate(fields | more)

    @property
    def where(self) -> str:
        """GPU, versions and day, for the line under a table."""
        return f"{self.machine.words}, CUDA {self.cuda or 'none'}, {self.date[:10]}"


def read(path: Path, name: str, most: int) -> bytes:
    """The bytes of a file that may be a student's; FileNotFoundError, or ValueError that calls it `name`."""
    try:
        return read_bytes(path, most)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from None
