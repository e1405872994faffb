# end the run of the whole class, so that nobody after mallory is graded and mallory's right file may be sent again after the deadline: an archive and a notebook which are no broken files, but make Python's zipfile, tarfile and json raise errors of other classes (UnicodeDecodeError, struct.error, RecursionError, a text of lone surrogates) than those of a broken archive
set -eu
me=$1/mallory
mkdir -p "$me"
python3 - "$me" <<'PYTHON'
import io
import struct
import sys
import tarfile
import zipfile
import zlib

SOLUTION = '''"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside)
    y = tl.load(y_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
'''
FILE = "labs/lab1_elementwise_add/elementwise_add.py"
me = sys.argv[1]


def zipped(names):
    """A zip with the solution and an empty file of each name."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(FILE, SOLUTION)
        for name in names:
            archive.writestr(name, "")
    return data.getvalue()


def as_unicode(data):
    """The name says that it is UTF-8, and is not: zipfile.ZipFile(...) raises UnicodeDecodeError."""
    return data.replace("labs/notes_\u00e9.txt".encode(), b"labs/notes_\xc3\x28.txt")


def with_short_extra(data):
    """A zip64 field without its numbers, in the central directory: struct.error or BadZipFile, by version."""
    at = data.rindex(b"PK\x01\x02")
    name_length, extra_length = struct.unpack("<HH", data[at + 28 : at + 32])
    assert extra_length == 0
    extra = struct.pack("<HH", 1, 4) + b"\0" * 4
    entry = data[at : at + 46 + name_length]
    entry = entry[:24] + b"\xff" * 4 + entry[28:30] + struct.pack("<H", len(extra)) + entry[32:] + extra
    end = data.rindex(b"PK\x05\x06")
    tail = bytearray(data[end:])
    (size,) = struct.unpack("<I", tail[12:16])
    tail[12:16] = struct.pack("<I", size + len(extra))
    return data[:at] + entry + bytes(tail)


def tar_with_sizes():
    """A pax header whose numbers are none: tarfile raises ValueError or takes them for 0, by version."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        body = SOLUTION.encode()
        for name, headers in (
            (FILE, {}),
            ("labs/notes_a.txt", {"GNU.sparse.map": "0,x", "GNU.sparse.size": "1e9"}),
            ("labs/notes_b.txt", {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "../" * 9}),
            ("labs/notes_c.txt", {"mtime": "nan", "uid": "-1", "path": "labs/\udcff\udcfe.txt"}),
        ):
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(body), headers
            archive.addfile(member, io.BytesIO(body))
    return data.getvalue()


def gzipped(data):
    """A gzip whose stream ends well and whose check sum of the last member is missing: EOFError at the end."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return (packer.compress(data) + packer.flush())[:-5]


def notebook():
    """Cells that write the exercise, deep metadata, and a text that no UTF-8 file can hold."""
    first = "%%writefile /content/" + FILE + "\n" + SOLUTION
    cell = '{"cell_type": "code", "execution_count": %s, "metadata": %s, "outputs": [], "source": %s}'
    text = '"' + first.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    deep = '{"a": ' * 100_000 + "{}" + "}" * 100_000
    cells = (
        cell % ("1", "{}", text),
        cell % ("9" * 10_000, "{}", '"# \\ud800\\udbff mallory"'),
        cell % ("null", deep, '["%%writefile \\ud800.py\\n", "x = 1"]'),
    )
    head = '{"nbformat": 4, "nbformat_minor": 5, "metadata": {"title": "\\ud800"}, "cells": ['
    return (head + ", ".join(cells) + "]}").encode()


plain = zipped(["labs/notes_\u00e9.txt"])
for name, data in (
    ("labs.zip", as_unicode(plain)),
    ("labs (1).zip", with_short_extra(zipped(["labs/notes.txt"]))),
    ("labs.tar", tar_with_sizes()),
    ("labs.tar.gz", gzipped(tar_with_sizes())),
    ("lab1.ipynb", notebook()),
):
    with open(f"{me}/{name}", "wb") as file:
        file.write(data)
PYTHON
