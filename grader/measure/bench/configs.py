"""The configs of an autotuned kernel: its own list, a wider search, one alone, and what each compiles to."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator

from grader.codegen import ptx
from grader.measure.bench.rounds import plainly

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
SIDES, DEPTH, STAGES, WARPS = (64, 128, 256), 64, (3, 4), (4, 8)
MOST_SUMS = 256  # fp32 accumulators of a thread; with twice that, compiling takes seconds and most spill
LANES = 32


def autotuned(module) -> dict[str, object]:
    """Return the autotuned kernels of a module, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(getattr(value, "configs", None), list) and hasattr(value, "fn")
    }


def words(config) -> str:
    """Format a config: `128x256x64, 8 warps, 3 stages` if it has tile sides, else its constants."""
    if set(TILE) <= set(config.kwargs):
        shown = "x".join(str(config.kwargs[key]) for key in TILE)
    else:
        shown = ", ".join(f"{key}={value}" for key, value in config.kwargs.items())
    return f"{shown}, {config.num_warps} warps, {config.num_stages} stages"


def wider(own: list) -> list:
    """Return a list's configs, then those combinations of tile sides, stages and warps that it lacks.

    New configs keep the other constants and the hook of the first one. Raises ValueError without tile sides.
    """
    first = own[0]
    if not set(TILE) <= set(first.kwargs):
        raise ValueError(f"a wider search needs configs that set {', '.join(TILE)}")
    found = {words(config): config for config in own}
    for sides in itertools.product(SIDES, SIDES, STAGES, WARPS):
        block_m, block_n, stages, warps = sides
        if block_m * block_n > MOST_SUMS * LANES * warps:
            continue
        config = copy.copy(first)
        config.kwargs = first.kwargs | dict(zip(TILE, (block_m, block_n, DEPTH), strict=True))
        config.num_stages, config.num_warps = stages, warps
        found.setdefault(words(config), config)
    return list(found.values())


@contextlib.contextmanager
def alone(kernel, config) -> Iterator[None]:
    """Give the autotuner this config only, so that it launches it without a choice."""
    before, kernel.configs = kernel.configs, [config]
    try:
        yield
    finally:
        kernel.configs = before


def with_config(function: Callable, kernel, config) -> Callable:
    """Return the function with the autotuner restricted to one config."""

    def call(*arguments, **keywords):
        with alone(kernel, config):
            return function(*arguments, **keywords)

    return call


def choice(kernel, call: Callable[[], object]) -> tuple[str, list[str]] | None:
    """Return the config that the autotuner picks for this call, and those it tried; None without a launch.

    Its cache is cleared first, so that it tries again.
    """
    kernel.cache.clear()
    kernel.best_config, kernel.configs_timings = None, {}
    call()
    if kernel.best_config is None:
        return None
    picked = words(kernel.best_config)
    return picked, [words(config) for config in kernel.configs_timings] or [picked]


def launched(kernel, config, call: Callable[[], object]) -> list:
    """Return the compiled kernel of each launch in this call with this config.

    The list is empty if the call launches another kernel. Raises what the compiler or the driver raises.
    """
    seen, launch = [], kernel.fn.run

    def run(*arguments, **options):
        made = launch(*arguments, **options)
        seen.append(made)
        return made

    kernel.fn.run = run
    try:
        with alone(kernel, config):
            call()
    finally:
        del kernel.fn.run  # uncovers the method of its class
    return seen


def compiled(kernel, config, call: Callable[[], object]) -> dict:
    """Return registers, spills, shared memory and PTX counts of a launch with this config, or its error.

    `call` launches the kernel at least once; the last launch is described.
    """
    try:
        seen = launched(kernel, config, call)
    except Exception as error:  # of the compiler or the driver; the other configs are still measured
        required = getattr(error, "required", None) if getattr(error, "name", "") == "shared memory" else None
        return {"error": plainly(error), "shared_bytes": required}
    made = seen[-1]
    return {
        "registers": made.n_regs,
        "spill_bytes": 4 * made.n_spills,  # Triton counts words
        "shared_bytes": made.metadata.shared,
        "ptx": ptx.counts(made.asm["ptx"]),
        "instruction": ptx.shape(made.asm["ptx"]),
    }
