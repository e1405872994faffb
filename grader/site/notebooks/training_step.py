"""Record memory and time of a training step with PyTorch's operators, with lab 4's, and both compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as nnf

from grader.course import catalog
from grader.site.notebooks.lessons import Told
from grader.site.notebooks.recorded_apart import tell

ROWS, COLS = 32768, 8192  # long enough on a GPU to hide the CPU's launch overhead
P, SEED = 0.1, 7
ROUNDS = 15  # the order is reversed in every second round
ALL = "all four in a row"
COMMAND = "torch.cuda.memory_allocated() between the passes, torch.cuda.max_memory_allocated() behind them"


def operators() -> tuple[dict[str, Callable], dict[str, Callable]]:
    """Return PyTorch's operators and lab 4's, under the same names; each takes x, a weight and a bias."""
    if str(catalog.ROOT) not in sys.path:
        sys.path.append(str(catalog.ROOT))
    from solutions import lab4_production_slice as ours

    theirs = {
        "layer_norm": lambda x, w, b: nnf.layer_norm(x, x.shape[-1:], w, b),
        "dropout": lambda x, *_: nnf.dropout(x, P),
        "rms_norm": lambda x, w, _: nnf.rms_norm(x, x.shape[-1:], w, 1e-6),
        "softmax": lambda x, *_: torch.softmax(x, dim=-1),
    }
    mine = {
        "layer_norm": ours.layer_norm,
        "dropout": lambda x, *_: ours.dropout(x, p=P, seed=SEED),
        "rms_norm": lambda x, w, _: ours.rms_norm(x, w),
        "softmax": lambda x, *_: ours.fused_softmax(x),
    }
    return theirs, mine


def chain(named: dict[str, Callable]) -> Callable:
    """Return a function that applies all four operators in sequence."""

    def all_four(x, w, b):
        for one in named.values():
            x = one(x, w, b)
        return x

    return all_four


def measure(device: str = "cuda", rows: int = ROWS, cols: int = COLS) -> Told:
    """Measure each operator alone, and all four eager and compiled, on N(0, 1) in bf16.

    Figures are named `OPERATOR, ARM, WHAT`. kept_bytes are allocated between the forward and the backward
    pass, including the result; peak_bytes are the peak above the memory allocated before; median_us is the
    median time of forward and backward.
    """
    x = torch.randn(rows, cols, device=device, dtype=torch.bfloat16, requires_grad=True)
    w, b = (torch.randn(cols, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    dy = torch.randn_like(x)
    figures = {
        "rows": rows,
        "cols": cols,
        "p": P,
        "rounds": ROUNDS,
        "bytes_of_x": x.numel() * x.element_size(),
    }
    for operator, calls in asked().items():
        steps = {arm: step(call, (x, w, b), dy) for arm, call in calls.items()}
        for arm, facts in compare(steps).items():
            figures |= {f"{operator}, {arm}, {what}": value for what, value in facts.items()}
    return Told(command=COMMAND, figures=figures)


def asked() -> dict[str, dict[str, Callable]]:
    """Return the calls to compare by operator, then by arm."""
    theirs, mine = operators()
    alone = {name: {"torch": theirs[name], "lab 4": mine[name]} for name in theirs}
    compiled = {
        "torch, compiled": torch.compile(chain(theirs), dynamic=False),
        "lab 4, compiled": torch.compile(chain(mine), dynamic=False, fullgraph=True),
    }
    return alone | {ALL: {"torch": chain(theirs), "lab 4": chain(mine)} | compiled}


def step(call: Callable, inputs: tuple, dy: torch.Tensor) -> Callable[[Callable[[], object]], None]:
    """Return one training step; its argument is called between the forward and the backward pass."""

    def run(between: Callable[[], object] = lambda: None) -> None:
        y = call(*inputs)
        between()
        y.backward(dy)
        for one in inputs:
            one.grad = None

    return run


def compare(steps: dict[str, Callable]) -> dict[str, dict[str, float]]:
    """Return kept bytes, peak bytes and median microseconds of each arm."""
    found = {}
    for name, run in steps.items():
        run()  # compiles and tunes
        run()
        found[name] = memory(run)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(ROUNDS):
        for name in list(steps)[:: -1 if number % 2 else 1]:
            times[name].append(elapsed_us(steps[name]))
    return {name: facts | {"median_us": median(times[name])} for name, facts in found.items()}


def memory(run: Callable) -> dict[str, int]:
    """Return the bytes kept between the passes, and the peak during both."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = []
    run(lambda: kept.append(torch.cuda.memory_allocated() - before))
    return {"kept_bytes": kept[0], "peak_bytes": torch.cuda.max_memory_allocated() - before}


def elapsed_us(run: Callable) -> float:
    """Return the time of one step on the GPU in microseconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return 1000 * begin.elapsed_time(end)


if __name__ == "__main__":
    tell(lambda _: measure())
