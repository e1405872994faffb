"""The only module that imports a student's file: it runs the function on lent memory on request.

It never gets an expected value, a tolerance or a result; what it reports earns no points.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib.util
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias

import torch

from grader.codegen import absent_gpu, nvcc, offline
from grader.course.tiers import DEFAULT_ARCH
from grader.sandbox import confine
from grader.worker import exchange, launch_audit, launches, returned, triton_settings
from grader.worker.edited_file import EditedFile
from grader.worker.error_report import describe
from grader.worker.gate import Queue
from grader.worker.interpreted import alternatives, kept_launches
from grader.worker.interpreted.grids import one_program, other_programs, own_tensors_filled
from grader.worker.interpreted.reductions import both_groupings
from grader.worker.messages import (
    FIRST_INPUT,
    Audit,
    AuditReport,
    Edited,
    Go,
    Picked,
    Place,
    Plan,
    Queued,
    Ran,
    Read,
    Returned,
    Setup,
)
from grader.worker.protocol import (
    HEADER,
    STACKS_AFTER_S,
    JsonObject,
    Kind,
    decode,
    encode,
    pack,
    unpack_header,
    unpack_payload,
)
from grader.worker.shared_memory import Arena, Tensor
from grader.worker.witness import births, influence, recorder
from grader.worker.witness.record import Witnessed

# What watches a run, with a function that returns what was seen.
Witness: TypeAlias = contextlib.AbstractContextManager[Callable[[], Witnessed]]


class ReadyCall(NamedTuple):
    """One call of a plan, with the lent tensors opened."""

    function: Callable[..., object]
    inputs: Sequence[torch.Tensor]
    named: Mapping[str, object]  # outputs that are passed, and numbers
    outputs: Mapping[str, torch.Tensor]  # tensors that the function may return, by the names told of them


def main(control: int, stdout: int, stderr: int, memory: int, gate: int, done: int) -> None:
    """Serve the judge over `control` until the judge closes it."""
    os.setsid()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    channel = socket.socket(fileno=control)
    first = _receive(channel)
    if first is None:
        return
    _, block, payload = first
    setup = decode(Setup, payload)
    try:
        arena, queue = _settle(setup, memory, gate, done)
    except BaseException as error:  # no line of the student's has run: this is a fault of the grader
        channel.sendall(pack(Kind.FAILED, block, encode(describe(error, setup.file))))
        return
    channel.sendall(pack(Kind.DONE, block, {}))
    module: ModuleType | nvcc.Library | None = None
    edited: EditedFile | None = None
    on_gpu, timed = arena.device != "cpu", setup.tuning == "full"
    plans: dict[int, list[ReadyCall]] = {}
    while True:
        frame = _receive(channel)
        if frame is None:
            return
        kind, block, payload = frame
        reply: JsonObject = {}
        try:
            if kind is Kind.LOAD:
                for path in (*setup.given, *setup.parts):
                    if path.endswith(".py"):
                        _load(path, os.path.splitext(os.path.basename(path))[0])
                module = _build(setup) if setup.file.endswith(".cu") else _load(setup.file, "submission")
            elif kind is Kind.EDIT:
                plans.clear()
                _skip_kernels_of_operators()
                alternatives.taken()  # of a run that has failed
                edit = decode(Edited, payload)
                edited = edited or EditedFile(edit.file, "submission")
                module = edited.enter(edit.kept) or edited.load(
                    Path(edit.file).read_text("utf-8"), edit.is_base, edit.is_near, edit.kept
                )
            elif kind is Kind.PREPARE:
                plan = decode(Plan, payload)
                plans[plan.plan] = _ready(module, arena, plan)
            elif kind is Kind.FINISH:
                torch.cuda.synchronize()
            elif kind is Kind.QUEUE:
                assert queue is not None
                asked_to = decode(Queued, payload)
                reply = encode(_queued(plans[asked_to.plan], queue, asked_to))
            elif kind is Kind.PICKED:
                reply = Picked(picked(module)).payload()
            elif kind is Kind.AUDIT:
                asked = decode(Audit, payload)
                files = [setup.file, *setup.given, *setup.parts]
                reply = encode(_watch(plans[asked.plan], on_gpu, files, asked, own_kernels(module)))
            else:
                go = decode(Go, payload)
                calls = plans[go.plan]
                witness = _witness(go, setup, module, arena)
                if setup.tuning == "offline":
                    offline.parse_only(go.parsed)
                if go.exchanged:
                    files = [setup.file, *setup.given, *setup.parts]
                    ran = _exchanged(calls, _Frames(channel, block), files, go.may_call, witness)
                else:
                    idle = launches.products_idle() if go.products_idle else contextlib.nullcontext()
                    with idle, alternatives.selecting(go.selected, go.compared):
                        ran = _run(calls, on_gpu) if timed else _seen(calls, on_gpu, witness, go.bounds)
                reply = encode(ran)
        except BaseException as error:
            reply, answer = encode(describe(error, setup.file, setup.parts)), Kind.FAILED
        else:
            answer = Kind.DONE
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the student's code may have closed or replaced it
                stream.flush()
        channel.sendall(pack(answer, block, reply))


def _receive(channel: socket.socket) -> tuple[Kind, int, JsonObject] | None:
    """Return the next frame, or None once the judge has closed its end."""

    def exactly(count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            more = channel.recv(count - len(data))
            if not more:
                return None
            data += more
        return data

    header = exactly(HEADER.size)
    if header is None:
        return None
    kind, block, length = unpack_header(header)
    body = exactly(length) if length else b"{}"
    return None if body is None else (kind, block, unpack_payload(body))


def _settle(setup: Setup, memory: int, gate: int, done: int) -> tuple[Arena, Queue | None]:
    """Set up folder, environment and lent memory, then apply all limits, before student code is imported."""
    os.chdir(setup.folder)
    os.environ.clear()
    os.environ.update(setup.environment)
    tempfile.tempdir = None  # the fork server's imports may have set it; this worker has its own folder
    torch.set_num_threads(1)
    handle = memory if setup.device == "cpu" else bytes.fromhex(setup.handle)
    arena = Arena.open(setup.device, setup.arena_bytes, handle)
    queue = Queue(gate, done) if setup.gated else None
    if setup.device != "cpu":
        triton_settings.load_driver(setup.driver_cache)
    elif not setup.ahead:
        absent_gpu.install(setup.arch or DEFAULT_ARCH)
    if setup.ahead:
        from grader.codegen import ahead

        ahead.install(setup.arch)
    triton_settings.permit_few_options()
    if setup.tuning == "full" and setup.device != "cpu":
        triton_settings.tune_briefly()
    if setup.tuning != "full":
        triton_settings.tune_by_chance(setup.tuning_seed, runs_first=setup.ahead or setup.device != "cpu")
    if setup.tuning == "offline":
        offline.install(setup.arch, setup.folder)
    # The interpreter computes with NumPy, whose warnings a reader would take for what the file has printed.
    warnings.filterwarnings("ignore", module=r"(numpy|triton|grader)\b")
    confine.apply(setup.confinement)
    return arena, queue


def _no_kernels(fn: Callable[..., object]) -> list[object]:
    del fn
    return []


def _skip_kernels_of_operators() -> None:
    """Let an operator be registered without a search of its source for kernels, which takes 60 ms.

    Only torch.compile needs them, and no edited file is compiled.
    """
    from torch._library import triton as operators

    if hasattr(operators, "get_inner_triton_kernels"):  # of recent versions of PyTorch
        operators.get_inner_triton_kernels = _no_kernels


def _load(path: str, name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _build(setup: Setup) -> nvcc.Library:
    """Compile a CUDA C++ file and load it as a module, for this GPU or for one that is absent."""
    on_gpu = setup.device != "cpu"
    major_minor = torch.cuda.get_device_capability() if on_gpu else divmod(setup.arch, 10)
    folder = Path(setup.environment["TRITON_CACHE_DIR"])
    return nvcc.load(Path(setup.file), folder, nvcc.arch_name(*major_minor), runs=on_gpu, checked=True)


def picked(module: object) -> dict[str, str]:
    """Return the config with which each autotuned kernel of the file ran last; shown, never scored."""
    tuned = {name: getattr(value, "best_config", None) for name, value in vars(module).items()}
    return {name: triton_settings.text_of(config) for name, config in tuned.items() if config is not None}


def own_kernels(module: ModuleType | nvcc.Library | None) -> list[str]:
    """Return the names of the kernels in a CUDA C++ file, from the compiler; none for a Python file."""
    return module.kernels if isinstance(module, nvcc.Library) else []


def _ready(module: ModuleType | nvcc.Library | None, arena: Arena, plan: Plan) -> list[ReadyCall]:
    """Prepare the calls of a plan; lent tensors are opened now, so that a timed block only makes calls."""

    def lent(place: Place) -> torch.Tensor:
        return arena.view(Tensor(*place))

    function = getattr(module, plan.function, None)
    if not callable(function):
        raise AttributeError(f"this file has no function {plan.function}")
    calls = []
    for read, written in plan.calls:
        inputs = [lent(place) for place in read]
        outputs = {name: lent(place) for name, place in written.items()}
        if plan.differentiable:
            gradient = _gradient(function, plan, *outputs.values())
            calls.append(ReadyCall(gradient, inputs, {}, {FIRST_INPUT: inputs[0]}))
        elif plan.allocates:
            calls.append(ReadyCall(returned.delivering(function, outputs), inputs, plan.named, outputs))
        else:
            calls.append(ReadyCall(function, inputs, {**outputs, **plan.named}, outputs))
    if plan.other_configs:
        others = functools.partial(triton_settings.other_configs, plan.tunes)
        calls = [call._replace(function=_within(others, call.function)) for call in calls]
    if plan.configs:
        given = functools.partial(triton_settings.these_configs, plan.configs)
        calls = [call._replace(function=_within(given, call.function)) for call in calls]
    if plan.programs is not None:
        other = functools.partial(other_programs, plan.programs)
        calls = [call._replace(function=_within(other, call.function)) for call in calls]
    if plan.only is not None:
        one = functools.partial(one_program, plan.only)
        calls = [call._replace(function=_within(one, call.function)) for call in calls]
    if plan.kept is not None:
        keeping = functools.partial(kept_launches.keeping, plan.kept)
        calls = [call._replace(function=_within(keeping, call.function)) for call in calls]
    if plan.filled:
        calls = [call._replace(function=_within(own_tensors_filled, call.function)) for call in calls]
    return calls


def _within(
    setting: Callable[[], contextlib.AbstractContextManager[None]], function: Callable[..., object]
) -> Callable[..., object]:
    def call(*inputs: torch.Tensor, **named: object) -> object:
        with setting():
            return function(*inputs, **named)

    return call


def _gradient(
    function: Callable[..., object], plan: Plan, y: torch.Tensor, *gradients: torch.Tensor
) -> Callable[..., torch.Tensor]:
    """Return a function: y = f(x, ...), then y.backward(dy), results copied to lent memory; never timed."""

    def gradients_of(asked: Collection[int], *tensors: torch.Tensor) -> torch.Tensor:
        *values, dy = tensors
        leaves = [value.detach().requires_grad_(at in asked) for at, value in enumerate(values)]
        # Views, so that the result has a gradient function even if it is x itself.
        result = function(*(leaf.view_as(leaf) for leaf in leaves), **plan.named)
        alone = f" where argument {min(asked) + 1} alone needs a gradient" if plan.separate else ""
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"{function.__name__} returned {type(result).__name__}, not a tensor")
        if result.grad_fn is None:
            raise RuntimeError(f"{function.__name__} returned a tensor without a gradient function{alone}")
        # Through .data: on a GPU all lent tensors are views of one tensor, and autograd would treat a write
        # to it as a change of the x that the function has saved.
        y.data.copy_(result.detach())
        result.backward(dy)
        for at, gradient in enumerate(gradients):
            if at not in asked:
                continue
            found = leaves[at].grad
            if found is None:
                raise RuntimeError(
                    f"backward left no gradient for argument {at + 1} of {function.__name__}{alone}"
                )
            gradient.data.copy_(found)
        return result.detach()

    def forward_and_backward(*tensors: torch.Tensor) -> torch.Tensor:
        if not plan.separate:
            return gradients_of(range(len(tensors) - 1), *tensors)
        return [gradients_of((at,), *tensors) for at in range(len(gradients))][-1]

    return forward_and_backward


def _run(calls: Sequence[ReadyCall], on_gpu: bool) -> Ran:
    """Run the calls to their end; nothing is watched but what the last one returns."""
    values = _call(calls, on_gpu)
    if on_gpu:
        torch.cuda.synchronize()
    return Ran(returned=values)


def _seen(calls: Sequence[ReadyCall], on_gpu: bool, witness: Witness, is_trial: bool) -> Ran:
    """Run the calls like `_run`, and report which torch operators computed and which kernels ran.

    In a trial the kernels are not reported: to name an edited one by its text takes a tenth of the time.
    """
    census = contextlib.nullcontext(dict) if is_trial else launches.recorded()
    with launch_audit.operators() as seen, census as launched, witness as witnessed:
        ran = _run(calls, on_gpu)
    told = witnessed(), alternatives.taken()
    return Ran(tuple(seen()), (), (), launched(), ran.returned, *told)


def _queued(calls: Sequence[ReadyCall], queue: Queue, asked: Queued) -> Ran:
    """Queue the calls behind the gate and return at once."""
    gc.disable()
    # By a thread that needs no lock of Python: CUDA blocks signals while it waits.
    faulthandler.dump_traceback_later(STACKS_AFTER_S, file=2)
    queue.begin(asked.ticket)
    try:
        if not asked.watched:
            _call(calls, on_gpu=True)
            return Ran()
        with launch_audit.operators() as seen, launches.recorded() as launched:
            values = _call(calls, on_gpu=True)
        return Ran(tuple(seen()), launched=launched(), returned=values)
    finally:
        faulthandler.cancel_dump_traceback_later()
        queue.end(asked.ticket)
        gc.enable()


def _call(calls: Sequence[ReadyCall], on_gpu: bool) -> tuple[Returned, ...] | None:
    """Make the calls; return what the last one returned, None if it is none of its outputs by design."""
    value: object = None
    for call in calls:
        value = call.function(*call.inputs, **call.named)
    if on_gpu and not calls:
        torch.zeros(1, device="cuda")  # so that a block without calls also switches the GPU's context
    return returned.described(value, calls[-1].outputs) if calls and calls[-1].outputs else None


class _Frames:
    """The exchange of a run on a CPU: the judge is asked, and has changed the inputs when it answers."""

    def __init__(self, channel: socket.socket, block: int):
        self._channel, self._block = channel, block

    def open(self) -> None:
        self._ask(Kind.OPEN)

    def shut(self) -> None:
        self._ask(Kind.SHUT)

    def _ask(self, kind: Kind) -> None:
        self._channel.sendall(pack(kind, self._block, {}))
        answer = _receive(self._channel)
        if answer is None or answer[0] is not Kind.TURNED:
            raise RuntimeError("the grader did not answer")


def _witness(go: Go, setup: Setup, module: ModuleType | nvcc.Library | None, arena: Arena) -> Witness:
    """Return what watches a run in the interpreter, if that is asked."""
    if not (go.witnessed or go.traced or go.bounds or go.followed):
        return contextlib.nullcontext(Witnessed)
    # Lines are those of the file itself, also where it calls a function of another one. An edited file has
    # another path than the submitted one.
    files = [str(getattr(module, "__file__", setup.file))]
    if go.traced:
        return births.traced(files)
    if go.followed:
        return influence.followed(files, arena.addresses, go.followed)
    only_bounds = not go.witnessed
    return recorder.recorded(files, arena.addresses, only_bounds, go.most, both_groupings)


def _exchanged(
    calls: Sequence[ReadyCall],
    judge: exchange.Judge,
    files: Sequence[str],
    may_call: Sequence[str],
    witness: Witness,
) -> Ran:
    """Run the calls in the interpreter; kernels get the graded inputs, host code gets decoys."""
    inputs = [tensor for call in calls for tensor in call.inputs]
    asked = exchange.Watch(judge, inputs, files, may_call)
    with (
        exchange.watched(asked) as watch,
        launches.recorded(interpreted=True) as launched,
        witness as witnessed,
    ):
        ran = _run(calls, on_gpu=False)
    computed = [
        Read(name, line.line, line.function, line.code) for name, line in watch.computed.items() if line
    ]
    places = tuple(computed[: exchange.MAX_READS])
    read = tuple(watch.reads)
    return Ran(tuple(watch.operators()), places, read, launched(), ran.returned, witnessed())


def _watch(
    calls: Sequence[ReadyCall], on_gpu: bool, files: Sequence[str], asked: Audit, own: Sequence[str]
) -> AuditReport:
    """Run the calls once more, untimed: with kernels that do nothing, or under CUPTI.

    `own` are names of kernels of the file itself.
    """
    with (
        launch_audit.kernels_counted(files, asked.may_call, own)
        if asked.kernels_counted
        else launch_audit.kernels_disabled(files, len(calls)) as found
    ):
        for call in calls:
            call.function(*call.inputs, **call.named)
    if on_gpu:
        torch.cuda.synchronize()
    return found
