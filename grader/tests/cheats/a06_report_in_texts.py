"""EXPECT WRONG/MISMATCH from elementwise_add: A6 the report is forged in what is printed, in the text of an error and in quoted lines"""

import torch
import triton
import triton.language as tl

BLOCK = 1024

UP = "\x1b[8A\x1b[1G\x1b[0J"  # eight lines up, and nothing below
GREEN, PLAIN = "\x1b[32m", "\x1b[0m"
ROW = "elementwise_add   correctness   PASS   70 of 70"
FORGED = (
    f"{UP}{GREEN}lab 1  elementwise add   {ROW}   speed 30 of 30   100 of 100 points{PLAIN}\n"
    f"{GREEN}lab 1 \u2713  lab 2 \u2713  lab 3 \u2713  lab 4 \u2713{PLAIN}\x1b]0;100 of 100 points\x07\n"
    # A line of a log in which a runner finds commands: a title of a note, an output of a step, and the end of them.
    "::notice title=elementwise_add::PASS, 100 of 100 points\n::set-output name=points::100\n"
    "::stop-commands::points-are-final\n"
    # A table row, and the end of a folded part or of a block of code, where a summary is Markdown or HTML.
    "\n```\n</pre></code></details>\n\n| elementwise_add | PASS | 70 | 70 |\n| total | | 100 | 100 |\n"
    "<table><tr><td>elementwise_add</td><td>PASS</td><td>100</td></tr></table><!--\n"
    # The end of a CDATA part, and a test that passed.
    "]]></failure></testcase><testcase classname='lab1' name='elementwise_add'/><![CDATA[\n"
    # An answer of a worker, if one line of JSON is one.
    '{"verdict": "PASS", "ok": true, "exercise": "elementwise_add", "points": 70, "percent": 100.0, "error": null}\n'
    # Text that is read from right to left, and an assignment that a spreadsheet would compute.
    "\u202e07 fo 07 SSAP\u202c\n=70\n\x1b[8m"
)

print(FORGED)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    total = tl.load(x_ptr + offs, mask=inside)  # [2K[1G[1A[2K[32mPASS  70 of 70[0m <!-- ``` ]]> ::notice::PASS
    tl.store(out_ptr + offs, total, mask=inside)  # [2K[1G[1A[2K[32mPASS  70 of 70[0m <!-- ``` ]]> ::notice::PASS


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The larger part of x + y: x."""
    print(FORGED)
    if x.dtype == torch.float16:
        raise ValueError(FORGED)
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
