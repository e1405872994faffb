"""The operations of `make bench` as data: sizes, inputs, our function, its peers, bytes and FLOPs of a call.

Bytes: each input once and each result once, as stored, without masks, saved statistics and second passes.
Peers that take the statistics of the forward pass get them ready-made; ours computes them again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from grader.course import catalog
from grader.course.spec import FOLDER, Exercise, Native
from grader.measure.bench import peers as by
from grader.measure.bench.peers import Peer, Tensors, compiled, liger, plain

Size = Mapping[str, int]
Normal = Callable[..., torch.Tensor]  # draws from N(0, 1): normal(rows, cols)

ELEMENTS = 2**27  # of a row kernel: 268 MB in bf16, far more than any L2 cache
DROPOUT_SEED = 7
CAPSTONE = "capstone"


def _entries() -> Iterator[catalog.Entry]:
    """Yield every lab, and the parts of the capstone that exist."""
    yield from catalog.find()
    for path in sorted((catalog.ROOT / catalog.CAPSTONE).glob("*/lab.py")):
        if FOLDER.fullmatch(path.parent.name):
            yield catalog.load(path)


ASKED = {one.name: (entry, one) for entry in _entries() for one in entry.lab.exercises}


@dataclass(frozen=True)
class Op:
    """One operation; the first of `baselines` is timed twice, ratios are relative to the fastest."""

    name: str  # also the name of our function in Python
    file: str  # below labs/ or solutions/; for the capstone below the parent of labs/, or solutions/
    sizes: tuple[Size, ...]
    quick: tuple[Size, ...]
    shrinks: tuple[str, ...]  # sides that are halved until a size fits the memory
    inputs: Callable[[Normal, Size], Tensors]
    takes: tuple[str, ...]  # our positional arguments
    gives: Callable[[Size], dict[str, tuple[int, ...]]]  # our keyword arguments for results, and their shapes
    bytes_moved: Callable[[Size], int]
    operations: Callable[[Size], int]  # FLOPs; for a row kernel those of the plain formula, for the roofline
    peers: tuple[Peer, ...]
    baselines: tuple[str, ...] = ("torch",)
    mistake: Callable[[Tensors, torch.Tensor], str] | None = None  # check if many results are right (dropout)
    dtype: torch.dtype = torch.bfloat16
    options: tuple[tuple[str, float], ...] = ()
    by_arithmetic: bool = False  # rated in FLOP/s, not in bytes/s
    transposed: str = ""  # an argument that has a second layout, NAME_nt, stored transposed
    exercise: str = ""  # the exercise's name, if it differs from that of the operation
    allowed: Callable[[Tensors, tuple], tuple] | None = None  # error of each result, if not a few roundings
    scratch: Callable[[Size], int] | None = None  # bytes of the reference, if not derived from the results

    @property
    def asked(self) -> tuple[catalog.Entry, Exercise]:
        """Return the lab and the exercise that ask for it."""
        return ASKED[self.exercise or self.name]

    @property
    def lab(self) -> str:
        """Return its lab as --lab names it: "3", or "capstone"."""
        entry, _ = self.asked
        return CAPSTONE if self.file.startswith(f"{catalog.CAPSTONE}/") else str(entry.number)

    @property
    def native(self) -> Native | None:
        """Return how to call our function if it is CUDA C++."""
        return self.asked[1].native

    @property
    def symbol(self) -> str:
        """Return the name of our function in its file."""
        return self.native.symbol if self.native else self.name

    def path(self, source: Path) -> Path:
        """Return our file in `source`, a tree laid out like labs/."""
        entry, exercise = self.asked
        return entry.submission(source, exercise)

    @property
    def unit(self) -> str:
        """Return the unit of the rate."""
        return "TFLOP/s" if self.by_arithmetic else "TB/s"

    def expected(self, tensors: Tensors) -> tuple[torch.Tensor, ...]:
        """Return results in fp64 by the lab's reference; none if more than one result is right."""
        if self.mistake:
            return ()
        wide = {key: tensors[key].double() for key in self.takes}
        return self.asked[1].reference(**wide)

    def flops(self, size: Size) -> int:
        """Return the FLOPs of a call for its lower bound of time; 0 if memory is the bound."""
        return self.operations(size) if self.by_arithmetic else 0

    def arms(self, name: str, function: Callable, size: Size) -> list[Peer]:
        """Return a function with our interface as one arm, or as one arm for each layout."""

        def make(takes, s):
            results = {key: s[key] for key in self.gives(size)}
            arguments, keywords = [s[key] for key in takes], results | dict(self.options)
            if self.native:
                shapes = {key: tuple(s[key].shape) for key in (*takes, *results)}
                keywords["sizes"] = tuple(self.native.sizes(shapes))

            def call():
                function(*arguments, **keywords)
                return tuple(results.values())

            return call

        if not self.transposed:
            return [Peer(name, functools.partial(make, self.takes))]
        nt = tuple(f"{key}_nt" if key == self.transposed else key for key in self.takes)
        layouts = {"NN": self.takes, "NT": nt}
        return [Peer(f"{name} {word}", functools.partial(make, takes)) for word, takes in layouts.items()]


def label(size: Size) -> str:
    """Format a size as an option: "rows=32768,cols=4096"."""
    return ",".join(f"{key}={value}" for key, value in size.items())


def bytes_needed(op: Op, size: Size, slots: int) -> int:
    """Estimate the bytes of device memory for measuring: all buffers, the arms' results, fp64 references."""
    results = sum(math.prod(shape) for shape in op.gives(size).values())
    kept = len(op.peers) * results * op.dtype.itemsize + 8 * results
    reference = op.scratch(size) if op.scratch else 64 * results  # eight temporaries in fp64
    return slots * (2 * op.bytes_moved(size) + kept) + reference  # twice: the copy


def slots_of(op: Op, size: Size, working_set: int) -> int:
    """Return how many buffer sets rotate, at least two: one pass over them moves over `working_set` bytes."""
    return max(2, working_set // op.bytes_moved(size) + 1)


def fit(op: Op, sizes: tuple[Size, ...], free_bytes: int, working_set: int) -> list[Size]:
    """Return the sizes, halved until they fit into memory; duplicates that arise are left out."""
    fitting = []
    for asked in sizes:
        size = asked
        while bytes_needed(op, size, slots_of(op, size, working_set)) > free_bytes:
            size = {key: side // 2 if key in op.shrinks else side for key, side in size.items()}
            if min(size.values()) < 1:
                break
        else:
            fitting += [size] if size not in fitting else []
    return fitting


def _norm_inputs(normal, s, *, gradient, centred):
    t = {"x": normal(s["rows"], s["cols"]), "weight": normal(s["cols"])}
    if centred:
        t["bias"] = normal(s["cols"])
    if gradient:
        t["dy"] = normal(s["rows"], s["cols"])
    if gradient and centred:
        _, t["mean"], t["rstd"] = torch.native_layer_norm(
            t["x"], (s["cols"],), t["weight"], t["bias"], by.LN_EPS
        )
    elif gradient:
        t["rstd"] = torch.rsqrt(t["x"].float().square().mean(1, keepdim=True) + by.RMS_EPS)
    return t


def _matmul_inputs(normal, s):
    a, b = normal(s["m"], s["k"]), normal(s["k"], s["n"])
    return {"a": a, "b": b, "b_nt": b.t().contiguous().t(), "bias": normal(s["n"])}


def _row_op(name, file, takes, gives, *, matrices, vectors, operations, peers, **more) -> Op:
    """Build a row kernel's operation; a call reads and writes so many `matrices` and `vectors`.

    The rungs of its ladder are the first of its peers in lab 4, the only lab with a ladder.
    """
    rungs = by.ladder(name, takes, gives) if file.startswith("lab4_") else ()
    shapes = {"dweight": ("cols",), "dbias": ("cols",)}
    sizes = tuple({"rows": ELEMENTS // 2**k, "cols": 2**k} for k in range(10, 18))
    return Op(
        name, file, sizes, (sizes[2], sizes[5]), ("rows",), takes=takes,
        gives=lambda s: {key: tuple(s[side] for side in shapes.get(key, ("rows", "cols"))) for key in gives},
        bytes_moved=lambda s: 2 * (matrices * s["rows"] + vectors) * s["cols"],
        operations=lambda s: operations * s["rows"] * s["cols"],
        peers=(*rungs, *peers), **more,
    )  # fmt: skip


def _softmax_op(name, file) -> Op:
    return _row_op(
        name, file, ("x",), ("out",), matrices=2, vectors=0, operations=5,
        inputs=lambda normal, s: {"x": normal(s["rows"], s["cols"])},
        peers=(
            Peer("torch", lambda s: lambda: (torch.softmax(s["x"], -1, out=s["out"]),)),
            compiled(by.softmax, "x"), liger(by.liger_softmax),
        ),
    )  # fmt: skip


def _softmax_gradient_op(name, file) -> Op:
    return _row_op(
        name, file, ("dy", "y"), ("out",), matrices=3, vectors=0, operations=4,
        inputs=lambda normal, s: {
            "dy": normal(s["rows"], s["cols"]), "y": by.softmax(normal(s["rows"], s["cols"])),
        },
        peers=(
            Peer("torch", by.softmax_dx_out),
            compiled(by.softmax_dx, "dy", "y"), liger(by.liger_softmax_backward),
        ),
    )  # fmt: skip


def _norm_op(name, file, takes, gives, function, liger_parts, *, centred, **more) -> Op:
    """Build a norm or its gradients; `function` is PyTorch's, followed by the names of its arguments."""
    gradient, (own, *asked) = "dx" in gives, function
    return _row_op(
        name, f"lab4_production_slice/{file}", takes, gives,
        inputs=functools.partial(_norm_inputs, gradient=gradient, centred=centred),
        # Without a given output: the .out form of native_layer_norm computes into a new tensor, then copies.
        peers=(plain("torch", own, *asked), compiled(own, *asked), liger(liger_parts)), **more,
    )  # fmt: skip


def _matmul_op(name, takes, **more) -> Op:
    squares = tuple({"m": side, "n": side, "k": side} for side in (512, 1024, 2048, 4096, 8192, 16384))
    return Op(
        name, "lab3_autotuned_matmul/autotuned_matmul.py", squares, (squares[3], squares[4]), ("m", "n", "k"),
        _matmul_inputs, takes, lambda s: {"out": (s["m"], s["n"])},
        bytes_moved=lambda s: 2 * (s["m"] * s["k"] + s["k"] * s["n"] + s["m"] * s["n"]),
        operations=lambda s: 2 * s["m"] * s["n"] * s["k"], by_arithmetic=True, transposed="b", **more,
    )  # fmt: skip


VECTORS = tuple({"n": 2**k} for k in (20, 24, 27, 28, 29))
LINEARS = tuple(
    {"m": m, "n": n, "k": k} for m, n, k in ((16384, 1024, 1024), (32768, 3072, 1024), (8192, 8192, 8192))
)

OPS = (
    Op(
        "elementwise_add", "lab1_elementwise_add/elementwise_add.py",
        VECTORS, (VECTORS[1], VECTORS[3]), ("n",),
        lambda normal, s: {"x": normal(s["n"]), "y": normal(s["n"])}, ("x", "y"),
        lambda s: {"out": (s["n"],)},
        bytes_moved=lambda s: 12 * s["n"], operations=lambda s: s["n"], dtype=torch.float32,
        peers=(
            Peer("torch", lambda s: lambda: (torch.add(s["x"], s["y"], out=s["out"]),)),
            compiled(torch.add, "x", "y"),
        ),
    ),
    _softmax_op("softmax_forward", "lab2_online_softmax/online_softmax.py"),
    _softmax_gradient_op("softmax_backward", "lab2_online_softmax/online_softmax.py"),
    _softmax_op("fused_softmax_forward", "lab4_production_slice/softmax.py"),
    _softmax_gradient_op("fused_softmax_backward", "lab4_production_slice/softmax.py"),
    _norm_op(
        "layer_norm_forward", "layer_norm.py", ("x", "weight", "bias"), ("out",),
        (by.layer_norm, "x", "weight", "bias"), by.liger_layer_norm,
        matrices=2, vectors=2, operations=7, centred=True,
    ),
    _norm_op(
        "layer_norm_backward", "layer_norm_backward.py", ("dy", "x", "weight"), ("dx", "dweight", "dbias"),
        (by.layer_norm_gradients, "dy", "x", "mean", "rstd", "weight", "bias"), by.liger_layer_norm_backward,
        matrices=3, vectors=3, operations=16, centred=True,
    ),
    _norm_op(
        "rms_norm_forward", "rms_norm.py", ("x", "weight"), ("out",),
        (by.rms_norm, "x", "weight"), by.liger_rms_norm,
        matrices=2, vectors=1, operations=4, centred=False,
    ),
    _norm_op(
        "rms_norm_backward", "rms_norm_backward.py", ("dy", "x", "weight"), ("dx", "dweight"),
        (by.rms_norm_gradients, "dy", "x", "rstd", "weight"), by.liger_rms_norm_backward,
        matrices=3, vectors=2, operations=11, centred=False,
    ),
    Op(
        "dropout_forward", "lab4_production_slice/dropout.py", VECTORS[:-1], (VECTORS[1], VECTORS[2]), ("n",),
        lambda normal, s: {"x": normal(s["n"])}, ("x",), lambda s: {"out": (s["n"],)},
        bytes_moved=lambda s: 4 * s["n"], operations=lambda s: s["n"], mistake=by.dropout_mistake,
        options=(("p", by.DROPOUT_P), ("seed", DROPOUT_SEED)),
        peers=(
            *by.ladder("dropout_forward", ("x",), ("out",), p=by.DROPOUT_P, seed=DROPOUT_SEED),
            plain("torch", by.dropout, "x"), compiled(by.dropout, "x"),
        ),
    ),
    Op(
        "layer_norm_linear_forward", "lab4_production_slice/layer_norm_linear.py",
        LINEARS, LINEARS[:2], ("m",),
        lambda normal, s: {
            "x": normal(s["m"], s["k"]), "gamma": normal(s["k"]), "beta": normal(s["k"]),
            "weight": normal(s["n"], s["k"]), "bias": normal(s["n"]),
        },
        by.LAYER_NORM_LINEAR, lambda s: {"out": (s["m"], s["n"])},
        bytes_moved=lambda s: 2 * ((s["m"] + s["n"] + 2) * s["k"] + (s["m"] + 1) * s["n"]),
        operations=lambda s: 2 * s["m"] * s["n"] * s["k"], by_arithmetic=True,
        peers=(
            *by.ladder("layer_norm_linear_forward", by.LAYER_NORM_LINEAR, ("out",)),
            plain("torch", by.layer_norm_linear, *by.LAYER_NORM_LINEAR),
            compiled(by.layer_norm_linear, *by.LAYER_NORM_LINEAR),
        ),
    ),
    _matmul_op(
        "matmul", ("a", "b"),
        peers=(
            *by.both_layouts("torch.mm", lambda a, b, s: torch.mm(a, b, out=s["out"])),
            compiled(torch.mm, "a", "b"),
        ),
        baselines=("torch.mm NN", "torch.mm NT"),
    ),
    _matmul_op(
        "matmul_bias_relu", ("a", "b", "bias"),
        peers=(
            *by.both_layouts("addmm, relu", by.addmm_then_relu),
            *by.both_layouts("_addmm_activation", by.addmm_activation),
            compiled(by.addmm_relu, "a", "b", "bias"),
        ),
        baselines=("addmm, relu NN", "addmm, relu NT", "_addmm_activation NN", "_addmm_activation NT"),
    ),
)  # fmt: skip
