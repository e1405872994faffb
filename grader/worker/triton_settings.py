"""How Triton tunes, launches and finds its driver in a worker; set before a student's file is imported."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import triton
from triton.backends.nvidia.compiler import CUDAOptions
from triton.runtime import autotuner, cache
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction
from triton.testing import do_bench

from grader.screen.language import LAUNCH

# For which a config is run when an autotuned kernel is tuned; Triton takes 25 and 100 ms.
TUNE_WARM_MS, TUNE_MS = 5, 20
MOST_TEXT = 200  # characters of a config in a report
LARGE = 256  # elements along an axis, which are several blocks of a small config

_tunes: list[bool] = []  # not empty while kernels run as where they are tuned
_times_run = Counter[tuple[str, str]]()  # configs of autotuned kernels, by the kernel's name


def do_once_for_all_workers() -> None:
    """Do in a process that forks workers what the first launch of each would do, for half a second or more.

    Triton imports Gluon when it looks at the first arguments, and names its cache after a hash of its library
    of 460 MB. The cache lasts as long as a run, in which the library does not change: its version will do.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("triton.experimental.gluon.nvidia.hopper")
    for module in (cache, autotuner):
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: triton.__version__


def load_driver(folder: str) -> None:
    """Load Triton's library for the CUDA driver from `folder`, where Triton compiles it if it is not there.

    Not from the kernel cache of the file: an earlier worker of the file could have left another library
    there, and this process is not confined yet. All workers of a run share the folder.
    """
    kept = os.environ["TRITON_CACHE_DIR"]
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        assert triton.runtime.driver.active
    finally:
        os.environ["TRITON_CACHE_DIR"] = kept


def permit_few_options() -> None:
    """Refuse options of a launch, or of a config, that are not in the language of the labs.

    Some name files that the compiler reads, or are handed to the assembler as they are.
    """
    for kind in (JITFunction, InterpretedFunction):
        kind.run = _with_few_options(kind.run)


def _with_few_options(run: Callable[..., object]) -> Callable[..., object]:
    """Replace the `run` of a kernel, which is compiled or interpreted: both refuse the same."""

    @functools.wraps(run)
    def limited(kernel: JITFunction | InterpretedFunction, *args: object, **options: object) -> object:
        for name in CUDAOptions.__dataclass_fields__:
            if name in options and name not in LAUNCH and name not in kernel.arg_names:
                raise TypeError(f"`{name}=` is not permitted in a launch or a config")
        return run(kernel, *args, **options)

    return limited


def tune_briefly() -> None:
    """Let autotuned kernels time each config for a shorter while than Triton does."""
    triton.runtime.driver.active.get_benchmarker = lambda: functools.partial(
        do_bench, warmup=TUNE_WARM_MS, rep=TUNE_MS
    )


def tune_by_chance(seed: int, runs_first: bool) -> None:
    """Let autotuned kernels pick a random config instead of timing all: faster, and more configs are checked.

    With `runs_first` a config is run before it is chosen, because one may not fit the GPU. Without, where two
    sizes are large, the config with the smallest blocks is picked: it has the most tiles, whose order and
    number a kernel may have wrong. A kernel picks the same config for the same sizes, also in another process
    of the run: what failed can be tried again.
    """

    def first_that_runs() -> Callable[..., list[float]]:
        found: list[object] = []

        def benchmark(call: Callable[[], object], **_: object) -> list[float]:
            # A config that does not fit this GPU raises here, and the autotuner takes the next one.
            if found and found[0] is current[0]:
                return [float("inf")] * 3
            call()
            found[:] = [current[0]]
            return [0.0] * 3

        return benchmark

    current: list[object] = [None]
    prune = Autotuner.prune_configs

    def shuffled(self: Autotuner, kwargs: dict[str, object]) -> list[triton.Config]:
        current[0] = object()
        configs = list(prune(self, kwargs))
        random.Random(f"{seed} {_tuning_key(self, kwargs)}").shuffle(configs)
        if not runs_first and _has_many_tiles(self, kwargs):
            configs.sort(key=_block_elements)
        return configs

    Autotuner.prune_configs = shuffled
    if not runs_first:
        Autotuner.run = _counted(Autotuner.run)
    driver, running = triton.runtime.driver.active, first_that_runs()

    def benchmark(call: Callable[[], object], **more: object) -> list[float]:
        # Of configs that take the same time the autotuner picks the first.
        return running(call, **more) if runs_first or _tunes else [1.0] * 3

    driver.get_benchmarker = lambda: benchmark


class _NoChoice(dict[object, triton.Config]):
    """An autotuner's cache without a choice; `before` are those that were made, `asked` is the last key."""

    def __init__(self, before: Mapping[object, triton.Config]):
        super().__init__()
        self.before = before
        self.asked: object = None

    def __contains__(self, key: object) -> bool:
        self.asked = key
        return super().__contains__(key)


@contextlib.contextmanager
def other_configs(tunes: bool = False) -> Iterator[None]:
    """Let autotuned kernels run another config than in earlier calls, where they have one.

    In the interpreter the one that has run least often: each of a file's configs runs in some case then.
    Afterwards the earlier choices hold again. What a kernel computes must not depend on the config. If this
    `tunes` them they run once before that, as on a GPU, where each config is timed: what they add to has to
    be reset.
    """

    def others(self: Autotuner, configs: list[triton.Config]) -> list[triton.Config]:
        known = self.cache.before.get(self.cache.asked)
        left = [one for one in configs if one is not known] or configs
        return sorted(left, key=lambda one: _times_run[_named(self, one)])

    _tunes[:] = [True] * tunes
    try:
        with _chosen_anew(others):
            yield
    finally:
        _tunes.clear()


@contextlib.contextmanager
def these_configs(texts: Mapping[str, str]) -> Iterator[None]:
    """Let each autotuned kernel, by its name, run the config with this text, where it has that.

    Afterwards the earlier choices hold again.
    """

    def wanted(self: Autotuner, configs: list[triton.Config]) -> list[triton.Config]:
        text = texts.get(self.base_fn.__name__)
        return [one for one in configs if text_of(one) == text] or configs

    with _chosen_anew(wanted):
        yield


@contextlib.contextmanager
def _chosen_anew(
    choose: Callable[[Autotuner, list[triton.Config]], list[triton.Config]],
) -> Iterator[None]:
    """Let autotuned kernels take the first of the configs that `choose` returns."""
    run, prune = Autotuner.run, Autotuner.prune_configs
    begun: list[Autotuner] = []

    def run_anew(self: Autotuner, *args: object, **options: object) -> object:
        if self not in begun:
            begun.append(self)
            self.cache = _NoChoice(self.cache)
        return run(self, *args, **options)

    def chosen(self: Autotuner, kwargs: dict[str, object]) -> list[triton.Config]:
        return choose(self, list(prune(self, kwargs)))

    Autotuner.run, Autotuner.prune_configs = run_anew, chosen
    try:
        yield
    finally:
        Autotuner.run, Autotuner.prune_configs = run, prune
        for tuner in begun:
            tuner.cache = tuner.cache.before


def text_of(config: triton.Config) -> str:
    """Return a config as one line, not too long for a report."""
    return str(config)[:MOST_TEXT]


def _named(tuner: Autotuner, config: triton.Config) -> tuple[str, str]:
    return tuner.base_fn.__name__, text_of(config)


def _counted(run: Callable[..., object]) -> Callable[..., object]:
    """Count how often each config runs."""

    @functools.wraps(run)
    def counted(self: Autotuner, *args: object, **options: object) -> object:
        result = run(self, *args, **options)
        _times_run[_named(self, self.best_config)] += 1
        return result

    return counted


def _has_many_tiles(tuner: Autotuner, kwargs: Mapping[str, object]) -> bool:
    """Return whether two or more of the sizes that a kernel is tuned for are large."""
    values = {**tuner.nargs, **kwargs}
    sizes = [value for name in tuner.keys if isinstance(value := values.get(name), int)]
    return sum(size >= LARGE for size in sizes) > 1


def _block_elements(config: triton.Config) -> int:
    return math.prod(value for value in config.kwargs.values() if isinstance(value, int))


def _tuning_key(tuner: Autotuner, kwargs: Mapping[str, object]) -> list[object]:
    """Return what a kernel is tuned for: its name, the values of its key, and the dtypes of its tensors.

    A choice that depends on this alone, and on no earlier call, is the same in every worker of a run.
    One that compiles ahead takes the config that the worker on the GPU will run.
    """
    values = {**tuner.nargs, **kwargs}
    dtypes = {name: str(value.dtype) for name, value in values.items() if hasattr(value, "dtype")}
    named = [values.get(name) for name in tuner.keys if name not in dtypes]
    return [tuner.base_fn.__name__, *named, *dtypes.values()]
