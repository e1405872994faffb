"""Record the tree that Proton, Triton's profiler, writes for kernels of labs 3 and 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from grader.course import catalog
from grader.measure.bench.run import load
from grader.site.notebooks.lessons import Told
from grader.site.notebooks.recorded_apart import tell

SIDE = 4096
ROWS, COLS = 16384, 8192
CALLS = 20  # in each scope, after warm-up calls that compile and tune
COMMAND = 'proton.start("session"); with proton.scope("lab 3 matmul"): ...; proton.finalize()'


class Scope(NamedTuple):
    """The call of a scope, and the work of one call."""

    call: Callable[[], object]
    flops: int = 0
    bytes_moved: int = 0


def scopes(device: str, side: int, rows: int, cols: int) -> dict[str, Scope]:
    """Return the scopes by name; their inputs are N(0, 1) in bf16."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32  # the interpreter computes bf16 wrong

    def normal(*shape):
        return torch.randn(shape, device=device, dtype=dtype)

    solutions = catalog.ROOT / "solutions"
    product = load(solutions / "lab3_autotuned_matmul" / "autotuned_matmul.py")
    part = {
        name: load(solutions / "lab4_production_slice" / f"{name}.py")
        for name in ("softmax", "layer_norm", "dropout", "layer_norm_linear")
    }
    a, b, c = normal(side, side), normal(side, side), normal(side, side)
    scale, shift, bias = normal(side), normal(side), normal(side)
    x, y, gamma, beta = normal(rows, cols), normal(rows, cols), normal(cols), normal(cols)
    flops, moved = 2 * side**3, 2 * x.numel() * x.element_size()
    linear = part["layer_norm_linear"].layer_norm_linear_forward
    return {
        "lab 3 matmul": Scope(lambda: product.matmul(a, b, out=c), flops),
        "torch.mm": Scope(lambda: torch.mm(a, b, out=c), flops),
        "lab 4 softmax": Scope(lambda: part["softmax"].fused_softmax_forward(x, out=y), 0, moved),
        "lab 4 layer_norm": Scope(
            lambda: part["layer_norm"].layer_norm_forward(x, gamma, beta, out=y), 0, moved
        ),
        "lab 4 dropout": Scope(lambda: part["dropout"].dropout_forward(x, p=0.5, seed=7, out=y), 0, moved),
        "lab 4 layer_norm_linear": Scope(lambda: linear(a, scale, shift, b, bias, out=c), flops),
    }


def session(asked: Mapping[str, Scope], profiler, folder: Path, wait: Callable[[], object]) -> Told:
    """Profile CALLS calls of each scope; the text `tree` is the file that the profiler wrote."""
    for scope in asked.values():
        for _ in range(2):
            scope.call()
    wait()
    file = folder / "session"
    profiler.start(str(file))
    for name, scope in asked.items():
        with profiler.scope(name):
            for _ in range(CALLS):
                scope.call()
        wait()
    profiler.finalize()
    figures = {"calls": CALLS}
    for name, scope in asked.items():
        figures |= {f"{name}, flops": scope.flops, f"{name}, bytes": scope.bytes_moved}
    tree = file.with_suffix(".hatchet").read_text("utf-8")
    return Told(command=COMMAND, texts={"tree": tree}, figures=figures)


def measure(folder: Path) -> Told:
    """Run the session on the GPU of this machine."""
    from triton import profiler

    return session(scopes("cuda", SIDE, ROWS, COLS), profiler, folder, torch.cuda.synchronize)


if __name__ == "__main__":
    tell(measure)
