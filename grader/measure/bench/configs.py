"""The configs of an autotuned kernel: its own list, a wider one, one alone, and what each compiled to."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator

from grader.codegen import ptx
from grader.measure.bench.rounds import plainly

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
SIDES, DEPTH, STAGES, WARPS = (64, 128, 256), 64, (3, 4), (4, 8)
MOST_SUMS = 256  # fp32 sums of a thread; with twice that the compiler takes seconds, and nearly all spill
LANES = 32


def autotuned(module) -> dict[str, object]:
    """The autotuned kernels of a file, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(getattr(value, "configs", None), list) and hasattr(value, "fn")
    }


def words(config) -> str:
    """`128x256x64, 8 warps, 3 stages` where the names allow it, else the constants."""
    if set(TILE) <= set(config.kwargs):
        shown = "x".join(str(config.kwargs[key]) for key in TILE)
    else:
        shown = ", ".join(f"{key}={value}" for key, value in config.kwargs.items())
    return f"{shown}, {config.num_warps} warps, {config.num_stages} stages"


def wider(own: list) -> list:
    """The configs of a list, then those of a product of tile sides, stages and warps that it has not.

    What else the first config sets stays: its other constants, its hook. ValueError without tile sides.
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
    """The autotuner with this config and no other: it has nothing to choose, and launches it."""
    before, kernel.configs = kernel.configs, [config]
    try:
        yield
    finally:
        kernel.configs = before


def with_config(function: Callable, kernel, config) -> Callable:
    """The function, as it would be with one config."""

    def call(*arguments, **keywords):
        with alone(kernel, config):
            return function(*arguments, **keywords)

    return call


def choice(kernel, call: Callable[[], object]) -> tuple[str, list[str]] | None:
    """What the autotuner takes for this call, and which configs it tried; None where it is not launched.

    Its memory is emptied first, so that it tries again.
    """
    kernel.cache.clear()
    kernel.best_config, kernel.configs_timings = None, {}
    call()
    if kernel.best_config is None:
        return None
    picked = words(kernel.best_config)
    return picked, [words(config) for config in kernel.configs_timings] or [picked]


def launched(kernel, config, call: Callable[[], object]) -> list:
    """What each launch of the kernel in this call was compiled to, with this config; none where the call
    launches another kernel. Raises whatever the compiler or the driver does.
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
        del kernel.fn.run  # that of its class is there again
    return seen


def compiled(kernel, config, call: Callable[[], object]) -> dict:
    """Registers, spilled bytes and shared memory of a launch with this config, its PTX counted; or its error.

    `call` launches the kernel, once or more; the last launch is the one that is told about.
    """
    try:
        seen = launched(kernel, config, call)
    except Exception as error:  # of the compiler or of the driver; the other configs go on
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
