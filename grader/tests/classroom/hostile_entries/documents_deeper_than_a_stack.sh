# the class run ends without a gradebook, or 40 points of documents become GRADER_FAULT (nothing taken off): JSON nested 400,000 deep is read by the judge itself and gives RecursionError, which is no ValueError
set -eu
mallory="$1/mallory"
lab="$mallory/labs/lab1_elementwise_add"
capstone="$mallory/gpu-programming"
mkdir -p "$lab" "$capstone/hardware-survey" "$capstone/cuda-kernels" "$capstone/triton-kernels" \
    "$capstone/kernel-log/0001" "$capstone/kernel-log/0002"

# 0.8 MB in each file, far below a limit on sizes, and valid JSON.
deep() {
    head -c 400000 /dev/zero | tr '\0' '['
    head -c 400000 /dev/zero | tr '\0' ']'
}
pairs() {
    printf '{"hash": "%064d", "previous": null, "gpu": "H200", "rates": ' 0
    deep
    printf ', "time": 1e999, "bytes": 1'
    head -c 4200 /dev/zero | tr '\0' '0'   # an int of 4201 digits: float() of it is OverflowError
    printf '}\n'
}

pairs > "$capstone/hardware-survey/survey.json"
pairs > "$capstone/cuda-kernels/bench.json"
pairs > "$capstone/triton-kernels/bench.json"
pairs > "$capstone/kernel-log/0001/record.json"
pairs > "$capstone/kernel-log/0002/record.json"

cat > "$capstone/hardware-survey/README.md" <<'END'
# The capstone: a survey of your GPU

<!-- BEGIN survey survey.json -->
<!-- END -->
END
cat > "$capstone/KERNEL_LOG.md" <<'END'
# Kernel log

<!-- BEGIN step 0001 -->
<!-- END -->
END

# An honest lab 1, so that there is something to grade beside the documents.
cat > "$lab/elementwise_add.py" <<'END'
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    total = tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, total, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
END
