"""Frames between judge and worker: a fixed header, then at most 64 KiB of JSON; nothing is ever unpickled.

A frame from a worker is a claim. Whatever does not parse strictly raises ProtocolError, and the judge ends
the worker.
"""

from __future__ import annotations

import enum
import json
import math
import struct

MAGIC = b"TGRD"
VERSION = 1
HEADER = struct.Struct("<4sBBHII")  # magic, version, kind, zero, block, payload length
MAX_PAYLOAD = 64 * 1024
PLAIN, OPERATORS = b"F", b"O"  # what a warm parent is asked for: a worker, or one for a file with operators


class Kind(enum.IntEnum):
    """What a frame says; those below 16 go to the worker, the others come back."""

    SETUP = 1
    PREPARE = 2
    WAKE = 3
    GO = 4
    LOAD = 5
    WITNESS = 6
    PICKED = 7
    DONE = 16
    FAILED = 17


class ProtocolError(Exception):
    """A frame that is malformed, oversized or out of turn."""


def pack(kind: Kind, block: int, payload: dict) -> bytes:
    """One frame; ValueError where the payload passes 64 KiB."""
    body = json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_PAYLOAD:
        raise ValueError(f"payload of {len(body)} bytes, at most {MAX_PAYLOAD}")
    return HEADER.pack(MAGIC, VERSION, kind, 0, block, len(body)) + body


def unpack_header(header: bytes) -> tuple[Kind, int, int]:
    """Kind, block and payload length of a 16-byte header."""
    magic, version, kind, zero, block, length = HEADER.unpack(header)
    if magic != MAGIC or version != VERSION or zero != 0:
        raise ProtocolError("not a frame of this protocol")
    if length > MAX_PAYLOAD:
        raise ProtocolError(f"a payload of {length} bytes, at most {MAX_PAYLOAD}")
    try:
        return Kind(kind), block, length
    except ValueError:
        raise ProtocolError(f"unknown frame kind {kind}") from None


def unpack_payload(body: bytes) -> dict:
    """The JSON object of a frame; NaN and Infinity are refused, as are values that are not an object."""

    def refuse(constant):
        raise ProtocolError(f"{constant} in a payload")

    def finite(digits):
        number = float(digits)
        return number if math.isfinite(number) else refuse(digits[:20])

    try:
        payload = json.loads(body.decode("utf-8"), parse_constant=refuse, parse_float=finite)
        json.dumps(
            payload, ensure_ascii=False
        ).encode()  # a lone surrogate could never be written to a report
    except (ValueError, RecursionError) as error:  # bytes, JSON, or a number of thousands of digits
        raise ProtocolError(f"payload is not JSON: {type(error).__name__}") from None
    if not isinstance(payload, dict):
        raise ProtocolError("payload is not a JSON object")
    return payload
