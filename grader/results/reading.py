"""Read results.json of the current schema version or an older one; nothing else parses it into the models."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from grader.results.models import MOST_BYTES, SCHEMA_VERSION, Results
from grader.results.upgrade import JSON, upgraded
from grader.system.files import read_bytes


class NewerSchemaError(ValueError):
    """The file is from a newer grader, and may have fields that are unknown here."""


def parse(data: str | bytes) -> Results:
    """Parse one run.

    NewerSchemaError if a newer grader wrote it; ValueError, possibly pydantic's, if it is not a graded run.
    """
    return _run(_loaded(data))


def parse_runs(data: str | bytes) -> list[Results]:
    """Parse a record of one run or a list of runs; raises the errors of `parse`."""
    found = _loaded(data)
    return [_run(one) for one in (found if isinstance(found, list) else [found])]


def read(path: Path) -> Results:
    """Read the run in a file, which may be a student's; raises OSError and the errors of `parse`."""
    return parse(read_bytes(path, MOST_BYTES))


def measured_sha256(data: str | bytes) -> str:
    """Return a hash of everything measured, by item, in data that `parse` accepts.

    It is computed from the JSON before any upgrade, so that it equals the hash in receipts of older versions.
    """
    run = _loaded(data)
    measured = {
        f"{lab['folder']}/{item['id']}": found
        for lab in run["labs"]
        for exercise in lab["exercises"]
        for item in exercise["items"]
        if (found := _measured(item))
    }
    return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()


def _measured(item: JSON) -> JSON:
    """Return what receipts cover: up to version 2 all of `figures`, since then timing and kernels."""
    if "figures" in item:
        return item["figures"]
    return {name: item[name] for name in ("timing", "kernels") if item.get(name)}


def _loaded(data: str | bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _run(found: object) -> Results:
    version = found.get("schema_version") if isinstance(found, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema version {version}; this grader reads up to {SCHEMA_VERSION}")
    if isinstance(found, dict) and version in (1, 2):
        try:
            found = upgraded(found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"schema version {version}, but {type(error).__name__}: {error}") from None
    return Results.model_validate(found)
