"""Frames between judge and worker: a fixed header, then at most 64 KiB of JSON; nothing is unpickled.

A frame from a worker is not trusted: if it does not parse strictly, ProtocolError is raised and the judge
ends the worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import math
import struct
import types
from typing import TYPE_CHECKING, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAGIC = b"TGRD"
VERSION = 1
HEADER = struct.Struct("<4sBBHII")  # magic, version, kind, zero, block, payload length
MAX_PAYLOAD = 64 * 1024
STACKS_AFTER_S = 1.5  # a worker that has not queued a plan by then prints the stacks of its threads
FORK, OPERATORS = b"F", b"O"  # requests to the fork server: a worker, or the imports of files with operators

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
T = TypeVar("T")


class Kind(enum.IntEnum):
    """The kind of a frame; those below 16 are sent to the worker, the others come from it.

    While it runs a plan, a worker may ask for the graded inputs (OPEN) and for the decoys (SHUT); the judge
    answers TURNED. QUEUE puts a plan behind the shut gate of a GPU, FINISH waits for it. EDIT replaces the
    file's text, in a worker that only looks for the cause of a mistake.
    """

    SETUP = 1
    PREPARE = 2
    FINISH = 3
    GO = 4
    LOAD = 5
    AUDIT = 6
    PICKED = 7
    TURNED = 8
    QUEUE = 9
    EDIT = 10
    DONE = 16
    FAILED = 17
    OPEN = 18
    SHUT = 19


class ProtocolError(Exception):
    """A frame that is malformed, oversized or out of turn."""


def pack(kind: Kind, block: int, payload: JsonObject) -> bytes:
    """Pack one frame; ValueError if the payload is larger than 64 KiB."""
    body = json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_PAYLOAD:
        raise ValueError(f"payload of {len(body)} bytes, at most {MAX_PAYLOAD}")
    return HEADER.pack(MAGIC, VERSION, kind, 0, block, len(body)) + body


def unpack_header(header: bytes) -> tuple[Kind, int, int]:
    """Return kind, block and payload length of a 16-byte header; ProtocolError if it is invalid."""
    magic, version, kind, zero, block, length = HEADER.unpack(header)
    if magic != MAGIC or version != VERSION or zero != 0:
        raise ProtocolError("not a frame of this protocol")
    if length > MAX_PAYLOAD:
        raise ProtocolError(f"a payload of {length} bytes, at most {MAX_PAYLOAD}")
    try:
        return Kind(kind), block, length
    except ValueError:
        raise ProtocolError(f"unknown frame kind {kind}") from None


def unpack_payload(body: bytes) -> JsonObject:
    """Parse the JSON object of a frame; ProtocolError for NaN, Infinity, and values other than an object."""

    def refuse(constant: str) -> float:
        raise ProtocolError(f"{constant} in a payload")

    def finite(digits: str) -> float:
        number = float(digits)
        return number if math.isfinite(number) else refuse(digits[:20])

    try:
        payload = json.loads(body.decode("utf-8"), parse_constant=refuse, parse_float=finite)
        json.dumps(
            payload, ensure_ascii=False
        ).encode()  # fails for a lone surrogate, which cannot be written to a report
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise ProtocolError(f"payload is not JSON: {type(error).__name__}") from None
    if not isinstance(payload, dict):
        raise ProtocolError("payload is not a JSON object")
    return payload


def encode(message: DataclassInstance) -> JsonObject:
    """Convert a dataclass to the payload of a frame."""
    return dataclasses.asdict(message)


def decode(kind: type[T], payload: Json) -> T:
    """Convert a payload to its dataclass; ProtocolError if a field is missing, unknown or of another type."""
    found = _decoded(kind, payload)
    assert isinstance(found, kind)
    return found


def _decoded(kind: object, value: Json) -> object:
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        fields = _fields(kind)
        if isinstance(value, dict) and value.keys() == fields.keys():
            return kind(**{name: _decoded(fields[name], part) for name, part in value.items()})
    elif origin is tuple and isinstance(value, list):
        kinds = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        if len(kinds) == len(value):
            return tuple(map(_decoded, kinds, value))
    elif origin is list and isinstance(value, list):
        return [_decoded(parts[0], part) for part in value]
    elif origin is dict and isinstance(value, dict):
        return {name: _decoded(parts[1], part) for name, part in value.items()}
    elif origin is types.UnionType:
        for one in parts:
            with contextlib.suppress(ProtocolError):
                return _decoded(one, value)
    elif type(value) is kind:
        return value
    raise ProtocolError(f"{type(value).__name__} in place of {getattr(kind, '__name__', kind)}")


_fields = functools.cache(get_type_hints)
