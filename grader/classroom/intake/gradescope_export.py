"""Read submission_metadata.yml of a Gradescope export: who handed in which folder, and when.

The export has one folder per submission, such as submission_12345, and this file beside them. It maps each
folder to `:submitters`, each with `:name`, `:sid` and `:email`, and to `:created_at`, in UTC. A group is one
submission with several submitters.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.intake.student_ids import Key, Kind
from grader.system.files import read_bytes

METADATA = "submission_metadata.yml"
MOST_BYTES = 256 << 20  # it repeats the results of every test
MOST_TEXT = 256  # characters of a name, an id or an address
IDS = (Kind.ID, Kind.ACCOUNT, Kind.EMAIL)


class ExportError(Exception):
    """The metadata cannot be used; the message names the file."""


@dataclass(frozen=True)
class Submitted:
    """A submission of the export: the keys of each submitter, and the time of submission."""

    submitters: tuple[tuple[Key, ...], ...]
    submitted: str | None  # ISO 8601, UTC


def folder_of(submissions: Path) -> Path:
    """Return the folder with the metadata: `submissions`, or the only folder in it, as the zip unpacks."""
    inside = [path for path in submissions.iterdir() if not path.name.startswith((".", "__"))]
    if len(inside) == 1 and (inside[0] / METADATA).is_file() and not inside[0].is_symlink():
        return inside[0]
    return submissions


def read(folder: Path) -> dict[str, Submitted]:
    """Return the submissions by folder name, {} without metadata. Raises ExportError if it is unusable."""
    path = folder / METADATA
    if not path.is_file():
        return {}
    import yaml  # only the extra `class` installs it

    try:
        loaded = yaml.load(read_bytes(path, MOST_BYTES), Loader=_Loader())  # a safe loader
        return {str(name): _submitted(one) for name, one in dict(loaded).items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        words = next(iter(str(error).splitlines()), type(error).__name__)
        raise ExportError(f"{path}: cannot be read: {words}") from None


def _Loader():  # noqa: N802 - it returns a class
    """Return a safe loader that keeps every value as text: an id of 0012 must not become the number 10."""
    import yaml

    class Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
        """Builds mappings, lists and texts, and nothing else; tags of Ruby are ignored."""

    return Loader


def _submitted(one: dict) -> Submitted:
    people = one.get(":submitters") or one.get("submitters") or []
    return Submitted(tuple(_keys(person) for person in people), _time(one.get(":created_at") or ""))


def _keys(person: dict[str, str]) -> tuple[Key, ...]:
    texts = {name: value for name, value in person.items() if isinstance(value, str) and value.strip()}
    values = {name.removeprefix(":"): value.strip()[:MOST_TEXT] for name, value in texts.items()}
    kinds = {"sid": IDS, "email": (Kind.EMAIL, Kind.ID), "name": (Kind.NAME,)}
    return tuple(Key(values[name], of) for name, of in kinds.items() if values.get(name))


def _time(text: str) -> str | None:
    """Return a time such as "2027-02-11 21:34:26.114541000 Z" in ISO 8601; None if it cannot be parsed."""
    date, _, rest = text.strip().partition(" ")
    clock, _, zone = rest.partition(" ")
    clock = clock.partition(".")[0]
    zone = "+00:00" if zone in ("", "Z", "UTC") else zone
    try:
        moment = datetime.datetime.fromisoformat(f"{date}T{clock}{zone}" if clock else date)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)
        return moment.astimezone(datetime.timezone.utc).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None
