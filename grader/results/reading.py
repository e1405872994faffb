"""Read results.json, of this version of its schema or an older one: the one way from JSON to the models."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from grader.results.models import MOST_BYTES, SCHEMA_VERSION, Results
from grader.results.upgrade import JSON, upgraded
from grader.system.files import read_bytes


class NewerSchemaError(ValueError):
    """A newer grader wrote the file: it may have fields that are unknown here."""


def parse(data: str | bytes) -> Results:
    """One run.

    NewerSchemaError; ValueError, which may be pydantic's, where it is no run of this grader.
    """
    return _run(_loaded(data))


def parse_runs(data: str | bytes) -> list[Results]:
    """The run of a record, or the runs of a record of several; the errors of `parse`."""
    found = _loaded(data)
    return [_run(one) for one in (found if isinstance(found, list) else [found])]


def read(path: Path) -> Results:
    """The run of a file, which may be a student's; OSError, and the errors of `parse`."""
    return parse(read_bytes(path, MOST_BYTES))


def measured_sha256(data: str | bytes) -> str:
    """One hash of the raw rounds and of all else that was measured, by item, in data that `parse` takes.

    It is made of the file as it is: the hash in a receipt of an older version stays right.
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
    """What receipts vouch for: until version 2 all of `figures`, since then timing and kernels."""
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
        raise NewerSchemaError(f"schema version {version}, and this grader knows {SCHEMA_VERSION}")
    if isinstance(found, dict) and version in (1, 2):
        try:
            found = upgraded(found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"schema version {version}, but {type(error).__name__}: {error}") from None
    return Results.model_validate(found)
