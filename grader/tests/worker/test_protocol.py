"""Frames: what is packed comes back, and whatever else arrives raises ProtocolError and nothing worse."""

import dataclasses
import json
import math

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from grader.worker.protocol import (
    HEADER,
    MAGIC,
    MAX_PAYLOAD,
    VERSION,
    Kind,
    ProtocolError,
    decode,
    encode,
    pack,
    unpack_header,
    unpack_payload,
)

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=9)
LEAVES |= st.floats(allow_nan=False, allow_infinity=False)
LISTS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
PAYLOADS = st.dictionaries(st.text(max_size=9), LISTS, max_size=5)
few = settings(max_examples=60, deadline=None, database=None)


def header(magic=MAGIC, version=VERSION, kind=Kind.DONE, zero=0, block=7, length=2):
    return HEADER.pack(magic, version, kind, zero, block, length)


@few
@given(st.sampled_from(Kind), st.integers(0, 2**32 - 1), PAYLOADS)
def test_what_is_packed_comes_back(kind, block, payload):
    frame = pack(kind, block, payload)
    assert unpack_header(frame[: HEADER.size]) == (kind, block, len(frame) - HEADER.size)
    assert unpack_payload(frame[HEADER.size :]) == payload


def test_header_has_16_bytes():
    assert len(header()) == HEADER.size == 16


@pytest.mark.parametrize(
    "wrong",
    [
        {"magic": b"TGRE"},
        {"version": VERSION + 1},
        {"zero": 1},
        {"kind": 0},
        {"kind": max(Kind) + 1},
        {"kind": 255},
        {"length": MAX_PAYLOAD + 1},
        {"length": 2**32 - 1},
    ],
    ids=str,
)
def test_header_with_one_wrong_field_is_refused(wrong):
    assert unpack_header(header()) == (Kind.DONE, 7, 2)
    with pytest.raises(ProtocolError):
        unpack_header(header(**wrong))


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": [-Infinity]}',
        b'{"a": 1e999}',
        b'{"a": -1e999}',
        b'{"a": "\xff"}',
        b"[1]",
        b"1",
        b"null",
        b'"text"',
        b"",
        b'{"a": 1',
        b'{"a": 1} ,',
        b'{"a": 1}{"a": 1}',
        b"{'a': 1}",
        b'{"a": 1,}',
        b"\x80\x04}q\x00.",
        b'{"a": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"a": ' * 9_000 + b"1" + b"}" * 9_000,
        b'{"a": ' + b"9" * 5_000 + b"}",
        b'{"a": "\\ud800"}',
    ],
    ids=lambda body: ascii(body[:16]),
)
def test_payload_that_is_no_strict_json_object_is_refused(body):
    with pytest.raises(ProtocolError):
        unpack_payload(body)


def test_payload_of_64_kib_passes_and_one_byte_more_is_refused_by_the_sender():
    empty = len(json.dumps({"a": ""}, separators=(",", ":")))
    frame = pack(Kind.GO, 1, {"a": "x" * (MAX_PAYLOAD - empty)})
    assert unpack_header(frame[: HEADER.size])[2] == MAX_PAYLOAD
    with pytest.raises(ValueError, match="65537 bytes"):
        pack(Kind.GO, 1, {"a": "x" * (MAX_PAYLOAD - empty + 1)})


def test_payload_one_byte_too_long_is_refused_by_the_receiver():
    assert unpack_header(header(length=MAX_PAYLOAD))[2] == MAX_PAYLOAD
    with pytest.raises(ProtocolError, match="65537 bytes"):
        unpack_header(header(length=MAX_PAYLOAD + 1))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_sender_packs_no_number_that_the_receiver_would_refuse(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack(Kind.DONE, 1, {"a": number})


@few
@given(
    st.binary(min_size=16, max_size=16)
    | st.builds(lambda tail: MAGIC + tail, st.binary(min_size=12, max_size=12))
)
def test_any_16_bytes_are_a_header_or_a_protocol_error(data):
    try:
        kind, block, length = unpack_header(data)
    except ProtocolError:
        return
    assert pack_header_again(kind, block, length) == data


def pack_header_again(kind, block, length):
    return HEADER.pack(MAGIC, VERSION, kind, 0, block, length)


NUMBERS = st.from_regex(rb"-?[1-9][0-9]{0,9}(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
LONG_NUMBERS = st.sampled_from([1, 4300, 4301]).map(lambda digits: b"7" * digits)
BODIES = (NUMBERS | LONG_NUMBERS).map(lambda number: b'{"a":' + number + b"}")


@settings(
    few, phases=(Phase.explicit, Phase.generate)
)  # to shrink a number of 5000 digits takes half a minute
@given(st.binary() | st.text().map(str.encode) | BODIES)
def test_any_bytes_are_a_payload_or_a_protocol_error(body):
    try:
        payload = unpack_payload(body)
    except ProtocolError:
        return
    assert isinstance(payload, dict)


@few
@given(NUMBERS)
def test_number_that_is_accepted_is_finite(number):
    try:
        payload = unpack_payload(b'{"a":' + number + b"}")
    except ProtocolError:
        return
    assert math.isfinite(payload["a"])


@dataclasses.dataclass(frozen=True)
class Part:
    words: tuple[str, ...]
    pair: tuple[int, float]


@dataclasses.dataclass(frozen=True)
class Message:
    name: str
    part: Part
    numbers: dict[str, bool | int | float | list[int]]


MESSAGE = Message("a", Part(("b", "c"), (1, 2.0)), {"flag": True, "one": 1, "half": 0.5, "sizes": [1, 2]})


def test_a_message_comes_back_from_its_payload():
    assert decode(Message, unpack_payload(pack(Kind.GO, 1, encode(MESSAGE))[HEADER.size :])) == MESSAGE


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1},
        {"name": None},
        {"more": 1},
        {"part": [["b"], [1, 2.0]]},
        {"part": {"words": ["b"]}},
        {"part": {"words": ["b", 1], "pair": [1, 2.0]}},
        {"part": {"words": "b", "pair": [1, 2.0]}},
        {"part": {"words": ["b"], "pair": [1]}},
        {"part": {"words": ["b"], "pair": [True, 2.0]}},
        {"numbers": {"one": "1"}},
        {"numbers": {"one": [1.0]}},
        {"numbers": []},
    ],
    ids=str,
)
def test_a_message_with_a_field_of_another_type_is_refused(change):
    with pytest.raises(ProtocolError):
        decode(Message, json.loads(json.dumps(encode(MESSAGE) | change)))


def test_a_message_that_lacks_a_field_is_refused():
    with pytest.raises(ProtocolError):
        decode(Message, {"name": "a"})
