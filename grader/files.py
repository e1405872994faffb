"""Read files that a student may have written, and write files whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from grader.outcome import one_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

MOST_BYTES = 1 << 20
M = TypeVar("M", bound=BaseModel)


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """All of a regular file that is no link; ValueError where it is something else, or larger than `most`."""
    if path.is_symlink():
        raise ValueError(f"{one_line(path.name)} is a link, not a file")
    # Not blocking: to open a pipe would wait for whoever writes into it.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{one_line(path.name)} is no file")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{one_line(path.name)} has more than {most:,} bytes")
    return data


def read_toml(path: Path, model: type[M]) -> M:
    """What a TOML file holds; ValueError, in a line that begins with its path, where it cannot be used."""
    try:
        return model.model_validate(tomllib.loads(read_bytes(path).decode()))
    except ValidationError as error:
        raise ValueError(f"{path}: {finding(error)}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def finding(error: ValidationError) -> str:
    """Where the first finding of pydantic lies, and what it is."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return one_line(f"{'.'.join(map(str, found['loc']))}: {found['msg']}".removeprefix(": "))


def replace(path: Path, content: str | bytes) -> None:
    """Write it whole or not at all, also where the machine loses its power meanwhile."""
    part = path.with_name(f".{path.name}.part")
    with open(part, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
