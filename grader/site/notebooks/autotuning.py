"""Record what the autotuner prints and measures for lab 3's matmul; run as a script in its own process."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
from collections.abc import Iterator

from grader.course import catalog
from grader.site.notebooks.kernels import solution
from grader.site.notebooks.lessons import Told
from grader.system.processes import run_tool

FILE = "lab3_autotuned_matmul/autotuned_matmul.py"
TRACE, SPACE = "trace", "space"
SIZES = (128, 1024, 4096)  # of square matrices
TILES = ((64, 64), (128, 64), (128, 128), (128, 256), (256, 128))
DEPTHS, STAGES, WARPS = (32, 64, 128), (2, 3, 4), (4, 8)  # some combinations do not fit on a GPU
LIMIT_S = 540.0
MARK = "figures: "


def trace() -> Told:
    """Record the output of TRITON_PRINT_AUTOTUNING=1 at each size, and the time of each config in us."""
    return _run_as_script(TRACE)


def search_space() -> Told:
    """Record the time in us of each config of a wide space at one size; the text lists those that fail."""
    return _run_as_script(SPACE)


def _run_as_script(what: str) -> Told:
    """Run this module as a script, in a process that has tuned nothing yet."""
    own = os.environ | {"TRITON_PRINT_AUTOTUNING": str(int(what == TRACE)), "TRITON_CACHE_AUTOTUNING": "0"}
    command = [sys.executable, "-m", "grader.site.notebooks.autotuning", what]
    done = run_tool(command, LIMIT_S, cwd=catalog.ROOT, env=own)
    printed, found, figures = done.text.partition(MARK)
    if done.code or not found:
        raise RuntimeError(done.complaint[-2000:] or "no figures were printed")
    command = f"TRITON_PRINT_AUTOTUNING=1 python -m grader.site.notebooks.autotuning {what}"
    return Told(command=command, texts={what: printed.rstrip()}, figures=json.loads(figures))


def main(what: str, sizes=SIZES) -> None:
    """Print the trace, or the configs that do not fit, and then the figures as JSON."""
    print(f"{MARK}{json.dumps(dict((_traced if what == TRACE else _searched)(sizes)))}")


def _traced(sizes) -> Iterator[tuple[str, float]]:
    """Yield the time of the solution's configs at each size; the last size runs again with its key known."""
    module = _plain()
    for side in (*sizes, sizes[-1]):
        print(f"matmul, M = N = K = {side}", flush=True)
        module.matmul(*_square(side))
        for config, time_us in _times(module.matmul_kernel):
            yield f"{side}: {config}", time_us


def _searched(sizes) -> Iterator[tuple[str, float]]:
    """Yield the time of every config of the space at the last size; print those that do not fit."""
    import triton

    module = _plain()
    space = itertools.product(TILES, DEPTHS, STAGES, WARPS)
    configs = [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n} | {"BLOCK_K": k, "GROUP_M": 8}, warps, stages)
        for (m, n), k, stages, warps in space
    ]
    tuner = triton.autotune(configs=configs, key=["M", "N", "K"])(module.matmul_kernel.fn)
    module.matmul_kernel = tuner
    module.matmul(*_square(sizes[-1]))
    for config, time_us in _times(tuner):
        if math.isfinite(time_us):
            yield str(config), time_us
        else:
            print(config)


def _plain():
    """Return the solution limited to its pointer kernel, the one that the skeleton asks for."""
    module = solution(FILE)
    module.describable = lambda _: False
    return module


def _square(side: int):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(side)
    return [torch.randn(side, side, device=device, dtype=torch.float16) for _ in range(2)]


def _times(tuner) -> Iterator[tuple[object, float]]:
    """Yield each config that was tried last with its median time in us."""
    for config, times in tuner.configs_timings.items():
        yield config, 1e3 * (times[0] if isinstance(times, list | tuple) else times)


if __name__ == "__main__":
    main(sys.argv[1])
