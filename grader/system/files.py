"""Read untrusted files, and write files atomically."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from grader.system.text import one_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # installed with pytest

MOST_BYTES = 1 << 20
M = TypeVar("M", bound=BaseModel)


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file. Raises ValueError for a link or for more than `most` bytes."""
    if path.is_symlink():
        raise ValueError(f"{one_line(path.name)} is a link, not a file")
    # Non-blocking, because opening a pipe would wait for a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{one_line(path.name)} is not a regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{one_line(path.name)} has more than {most:,} bytes")
    return data


def sha256(path: Path) -> str | None:
    """Return the hash of a file's bytes in hexadecimal; None if there is no such file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def read_toml(path: Path, model: type[M]) -> M:
    """Read a TOML file into `model`. Raises ValueError with one line, `path: problem`."""
    try:
        return model.model_validate(tomllib.loads(read_bytes(path).decode()))
    except ValidationError as error:
        raise ValueError(f"{path}: {finding(error)}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def finding(error: ValidationError) -> str:
    """Return the first error of pydantic on one line, `field: message`."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return one_line(f"{'.'.join(map(str, found['loc']))}: {found['msg']}".removeprefix(": "))


def replace(path: Path, content: str | bytes) -> None:
    """Write a file atomically, also in case of a power loss."""
    part = path.with_name(f".{path.name}.part")
    with open(part, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
