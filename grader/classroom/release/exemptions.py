"""Lines of answers that a release may show, listed in exemptions.toml with the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grader.classroom.release.contents import File
from grader.results.base import Model
from grader.system.files import read_toml

LISTED = Path(__file__).with_name("exemptions.toml")
_CUT = "\nexempted\n"  # keeps what stands before from joining what stands behind


class Exemption(Model):
    """Lines that the files may show."""

    files: tuple[str, ...]
    lines: str
    reason: str

    @property
    def text(self) -> str:
        """The lines as they stand in the files."""
        return self.lines.strip("\n")


class _Listed(Model):
    exemption: tuple[Exemption, ...]


def exemptions() -> tuple[Exemption, ...]:
    """Return the list. Raises ValueError in one line if the file is not valid."""
    return read_toml(LISTED, _Listed).exemption


def without_exempted(files: Mapping[str, File], listed: tuple[Exemption, ...]) -> dict[str, File]:
    """Return the files without the exempted lines, for a search. A listed file may be missing."""
    out = dict(files)
    for path, file in files.items():
        ours = tuple(one for one in listed if path in one.files)
        if ours:
            out[path] = File(without_lines(file.data, ours), file.program)
    return out


def without_lines(data: bytes, listed: tuple[Exemption, ...]) -> bytes:
    """Return the bytes without the lines of these exemptions, whatever the file."""
    for one in listed:
        data = data.replace(one.text.encode(), _CUT.encode())
    return data


def unused(files: Mapping[str, File], listed: tuple[Exemption, ...]) -> list[str]:
    """Return `file: first line` of each exemption whose file is there and no longer has the lines."""
    return [
        f"{path}: {one.text.splitlines()[0].strip()}"
        for one in listed
        for path in one.files
        if path in files and one.text.encode() not in files[path].data
    ]
