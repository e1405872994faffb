"""The process that measures the configs of one file: run the autotuner, compile, then time in turn."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import tempfile
from pathlib import Path

import torch

from grader.measure.bench import configs as tuned
from grader.measure.bench import rounds
from grader.measure.bench.ops import Op, Size, label
from grader.measure.bench.peers import Peer
from grader.measure.bench.run import load
from grader.measure.bench.tuning import op_beside_library
from grader.system.python_calls import fork_calls

PLAN = rounds.Plan(rounds=7, block_us=8_000.0)
COMPILERS = 12  # processes that compile ahead, at most
SMALL = 1024  # a kernel is compiled once for all sizes divisible by 16


def child(op: Op, file: Path, sizes: list[Size], wide: bool) -> None:
    """Measure on the GPU; print a line of JSON before and after each step."""
    op = op_beside_library(op)
    ahead(op, file, wide)
    measure(op, file, sizes, wide, "cuda", rounds.CudaClock())


def measure(op: Op, file: Path, sizes: list[Size], wide: bool, device: str, clock) -> None:
    """Measure on any device; SystemExit unless the operation launches exactly one autotuned kernel."""
    module = load(file)
    function = getattr(module, op.symbol)
    gc.disable()  # a garbage collection inside a block would add milliseconds to an arm at random
    asked = {}
    for size in sizes:
        say({"running": f"runs the autotuner at {label(size)}"})
        call = _call(op, function, size, device)
        choices = {name: tuned.choice(one, call) for name, one in tuned.autotuned(module).items()}
        asked[label(size)] = {name: one for name, one in choices.items() if one}
    launched = set().union(*asked.values())
    if len(launched) != 1:
        raise SystemExit(f"{op.name} launches {len(launched)} autotuned kernels, but needs exactly one")
    (name,) = launched
    kernel = tuned.autotuned(module)[name]
    own = list(kernel.configs)
    all_of_them = tuned.wider(own) if wide else own
    compiled = _compile(_call(op, function, sizes[0], device), kernel, all_of_them, own)
    say({"kernel": name, "compiled": compiled})
    able = [config for config, one in zip(all_of_them, compiled, strict=True) if not one.get("error")]
    for size in sizes:
        say({"running": label(size)})
        arms = [_arm(op, function, kernel, config, size) for config in able]
        found = rounds.measure(op, size, arms, clock, PLAN, device)
        picked, tried = asked[label(size)][name]
        say({"found": found | {"configs": {}}, "picked": picked, "tried": tried})
        gc.collect()  # an arm is in a reference cycle, and would keep its buffers
        torch.cuda.empty_cache()


def say(message: dict) -> None:
    """Send one message to the parent process, as a line of JSON."""
    print(json.dumps(message), flush=True)


def _call(op: Op, function, size: Size, device: str):
    return op.arms("ordinary", function, size)[0].make(rounds.draw(op, size, device))


def _arm(op: Op, function, kernel, config, size: Size) -> Peer:
    forced = tuned.with_config(function, kernel, config)
    return op.arms(tuned.words(config), forced, size)[0]


def _compile(call, kernel, configs, own) -> list[dict]:
    """Compile every config; return what each compiled to, or its error."""
    compiled = []
    for config in configs:
        say({"running": f"compiles {tuned.words(config)}"})
        compiled.append(
            {
                "name": tuned.words(config),
                "constants": dict(config.kwargs),
                "num_warps": config.num_warps,
                "num_stages": config.num_stages,
                "own": config in own,
            }
            | tuned.compiled(kernel, config, call)
        )
    return compiled


def ahead(op: Op, file: Path, wide: bool) -> None:
    """Compile all configs in parallel into Triton's cache, in processes that do not use the GPU; best effort.

    The processes are forked before CUDA is initialized, because a process that uses CUDA cannot be forked.
    """
    many = min(COMPILERS, os.cpu_count() or 1)
    if torch.cuda.is_initialized() or many < 4:
        return
    say({"running": f"compiles with {many} processes"})
    fork_calls(_ahead, [(op, file, wide, number, many) for number in range(many)])


def _ahead(op: Op, file: Path, wide: bool, number: int, many: int) -> None:
    from grader.codegen import offline

    with tempfile.TemporaryDirectory() as folder:
        offline.install(90, folder)
        module = load(file)
        size = dict.fromkeys(("m", "n", "k"), SMALL)
        call = _call(op, getattr(module, op.symbol), size, "cpu")
        for kernel in tuned.autotuned(module).values():
            every = tuned.wider(list(kernel.configs)) if wide else kernel.configs
            for config in itertools.islice(every, number, None, many):
                # An error of a config is reported when it is compiled again.
                with contextlib.suppress(Exception), tuned.alone(kernel, config):
                    call()
                if getattr(kernel, "best_config", None) is None:
                    break  # this call launches another kernel
