"""Record which hints a student has opened, in a small file next to the results; imports no torch."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from grader.system.files import finding, read_bytes, replace

FILE = "hints.json"


class OpenedHints(BaseModel):
    """The highest level shown of each hint, by the lab's folder and the hint's number, and the last hint."""

    model_config = ConfigDict(extra="forbid")
    version: int = 1
    labs: dict[str, dict[int, NonNegativeInt]] = {}
    last: tuple[str, int] | None = None

    def level(self, lab: str, hint: int) -> int:
        """How many levels of a hint were shown."""
        return self.labs.get(lab, {}).get(hint, 0)

    def show(self, lab: str, hint: int, level: int) -> None:
        """Remember that this level, and those before it, were shown."""
        self.labs.setdefault(lab, {})[hint] = max(level, self.level(lab, hint))
        self.last = (lab, hint)


def load(folder: Path) -> tuple[OpenedHints, str]:
    """Return what was shown so far, and what is wrong with the file (empty if nothing is)."""
    try:
        return OpenedHints.model_validate_json(read_bytes(folder / FILE)), ""
    except FileNotFoundError:
        return OpenedHints(), ""
    except ValidationError as error:
        return OpenedHints(), finding(error)
    except (OSError, ValueError) as error:
        return OpenedHints(), str(error)


def save(revealed: OpenedHints, folder: Path) -> None:
    """Write the file completely or not at all; OSError if that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / FILE, revealed.model_dump_json(indent=1))
