"""Watch every load and store of the kernels that a call launches in Triton's interpreter.

Each address is compared with the memory of the tensor whose pointer it was computed from. That is cheap: the
lowest and the highest address of an access, and more only where one of them lies outside.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeAlias

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, ReduceOps, ScanOps, TensorHandle

from grader.worker.witness.memory import Region, name_of
from grader.worker.witness.races import ATOMIC, LOAD, NAMES, STORE, Access, conflict
from grader.worker.witness.record import (
    MOST_FACTS,
    MOST_LAUNCHES,
    MOST_REACHES,
    Birth,
    Index,
    Launch,
    Left,
    Outside,
    Race,
    Reach,
    Witnessed,
)

# Lanes of one launch that are kept for the search for races, and of all launches of a call. Small cases of an
# exercise have fewer; programs of large ones do the same.
MOST_LANES, MOST_LANES_OF_A_CALL = 1 << 18, 1 << 20
MOST_MARKED = 1 << 24  # addresses that are marked in an array, one byte each, to count those that differ
LONGEST_NAME = 64
WIDE = 1 << 31  # elements from a tensor's first one to its last: an offset in it may need more than 32 bits
GROUPED_APART = 0.01  # share by which two groupings of three elements differ; rounding in fp64 does less
SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}  # of what wraps around, by the name in NumPy
LOWEST, HIGHEST = np.minimum.reduce, np.maximum.reduce  # faster than the methods of an array
WATCHED = (
    "create_load", "create_store", "create_masked_load", "create_masked_store", "create_atomic_cas",
    "create_atomic_rmw", "create_select", "create_get_num_programs",
)  # fmt: skip
Lanes: TypeAlias = NDArray[np.bool_]
Parts: TypeAlias = list[NDArray[np.generic]]  # of the values of a reduction, one array each
# From a reduction and its values to three elements, and what is made of them by grouping them in both ways.
Grouped: TypeAlias = Callable[[Any, Sequence[Any]], tuple[Parts, Parts, Parts] | None]


class Recorder:
    """Collects what is seen of the launches of one call."""

    def __init__(
        self,
        files: Collection[str],
        lent: range,
        only_bounds: bool = False,
        most: int | None = None,
        grouped: Grouped | None = None,
    ):
        """`lent` are the addresses of the memory that the judge lends: all of it can be touched safely.

        If `only_bounds`, races are not looked for, nor how far each line reaches. With a `most`, one access
        more is an error. `grouped` combines elements of a reduction in two ways.
        """
        self._grouped = grouped
        self._most = math.inf if most is None else most
        self._files, self._lent, self._only_bounds = files, lent, only_bounds
        self._outside: dict[tuple[int, int, bool], Outside] = {}
        self._races: list[Race] = []
        self._reaches: dict[tuple[object, ...], _Reached] = {}
        self._launches: list[Launch] = []
        self._kept = 0  # lanes of all launches
        self._accesses = self._lanes = 0
        self._stored: dict[int, list[NDArray[np.uint64]]] = {}  # addresses, by where their tensor begins
        self._storing = 0  # lanes of these
        # Addresses of lanes that a store leaves out, by the tensor and the line of the store.
        self._masked: dict[tuple[Region, int], list[NDArray[np.uint64]]] = {}
        self._wraps: dict[int, Birth] = {}  # by the line
        self._groupings: dict[int, Birth] = {}  # by the line
        self._launch: _Launch | None = None
        self.masked = True  # whether the access that runs was written with a mask

    def found(self) -> Witnessed:
        """Return what was seen so far."""
        outside, races = tuple(self._outside.values()), tuple(self._races)
        reaches = tuple(one.told(self._lent) for one in self._reaches.values())
        launches = tuple(self._launches)
        told = Witnessed(outside, races, reaches=reaches, left=tuple(self._left()), launches=launches)
        return replace(
            told,
            accesses=self._accesses,
            lanes=self._lanes,
            again=self._again(),
            wraps=tuple(self._wraps.values()),
            groupings=tuple(self._groupings.values()),
        )

    def _left(self) -> Iterator[Left]:
        """Give the elements of lent tensors that a store reaches with masked lanes, and that none writes."""
        if self._storing > MOST_LANES_OF_A_CALL:
            return
        for (region, line), addresses in list(self._masked.items())[:MOST_FACTS]:
            stored = self._stored.get(region.origin, [])
            never = np.setdiff1d(np.concatenate(addresses), np.concatenate(stored) if stored else [])
            places = (never.astype(np.int64) - region.origin) // region.size
            places = places[_are_elements(places, region)]
            if places.size:
                ends = int(places[0]), int(places[-1])
                yield Left(region.origin - self._lent.start, line, *ends, int(places.size))

    def _again(self) -> int:
        """Return how many lanes stored an element of lent memory that another store had written."""
        every = [np.concatenate(one) for one in self._stored.values()]
        return sum(one.size - _different(one) for one in every if one.size)

    @contextlib.contextmanager
    def launch(
        self, function: InterpretedFunction, args: Sequence[object], options: Mapping[str, object]
    ) -> Iterator[None]:
        """Watch one launch, and look for races when its last program has ended."""
        self._launch = launch = _Launch(function, args, options)
        if self._only_bounds:
            launch.accesses = None
        line = self._line()
        try:
            yield
        finally:
            self._launch = None
        if len(self._launches) < MOST_LAUNCHES:
            grid = interpreter.interpreter_builder.grid_dim
            self._launches.append(Launch(line, grid, launch.is_asked_for, launch.has_turns))
        if len(self._races) < MOST_FACTS and launch.accesses:
            self._look_for_a_race(launch)

    def lend(self, given: Any, value: object) -> bool:
        """Note which memory an argument of the launch has; `value` is what the kernel gets for it.

        Return whether it reaches beyond 2^31 elements.
        """
        if self._launch is None or not (isinstance(value, tl.tensor) and hasattr(given, "data_ptr")):
            return False
        region = Region.of(given)
        self._launch.lend(region, value.handle.dtype)
        return region.stop - region.start > WIDE * region.size

    def computed(self, operation: str, value: Any, lhs: Any, rhs: Any) -> None:
        """Note a sum or product of 32 bits that wraps around, the first one of a line."""
        data = value.data
        if data.dtype != np.int32 or operation not in SIGNS or len(self._wraps) >= MOST_FACTS:
            return
        exact = getattr(np, operation)(lhs.data.astype(np.int64), rhs.data.astype(np.int64))
        wrong = data != exact
        line = self._line() if wrong.any() else 0
        if not line or line in self._wraps:
            return
        at = int(np.argmax(wrong))
        one, other, result, true = (
            str(int(np.broadcast_to(array, wrong.shape).flat[at]))
            for array in (lhs.data, rhs.data, data, exact)
        )
        program = interpreter.interpreter_builder.grid_idx or (0, 0, 0)
        self._wraps[line] = Birth(SIGNS[operation], (one, other), result, line, program, true)

    def combined(self, operation: Any, values: Sequence[Any]) -> None:
        """Note three elements that a reduction or a scan combines to two results, by how they are grouped."""
        line = self._line()
        if not line or line in self._groupings or len(self._groupings) >= MOST_FACTS:
            return
        found = self._grouped(operation, values) if self._grouped else None
        for elements, first, last in zip(*found, strict=True) if found else ():
            given = elements.reshape(len(elements), -1).astype(np.float64)
            one, other = (value.reshape(-1).astype(np.float64) for value in (first, last))
            with np.errstate(all="ignore"):
                apart = np.abs(one - other) > GROUPED_APART * np.maximum(np.abs(one), np.abs(other))
            apart &= np.isfinite(one) & np.isfinite(other) & np.isfinite(given).all(axis=0)
            if apart.any():
                at = int(np.argmax(apart))
                program = interpreter.interpreter_builder.grid_idx or (0, 0, 0)
                results = f"{one[at]:.6g}", f"{other[at]:.6g}"
                self._groupings[line] = Birth("combine", (), results[0], line, program, results[1])
                return

    def asked(self) -> None:
        """Note that a program asks for the size of its grid."""
        if self._launch is not None:
            self._launch.is_asked_for = True

    def seen(
        self,
        kind: int,
        pointers: TensorHandle,
        lanes: Lanes | None,
        values: NDArray[np.generic] | None = None,
        waits: bool = False,
    ) -> Lanes | None:
        """Check an access; return the lanes that may run, None for the given ones."""
        launch, addresses = self._launch, pointers.data
        if launch is None or not addresses.size:
            return None
        self._accesses += 1
        self._lanes += addresses.size
        if self._accesses > self._most:
            raise RuntimeError("more loads and stores than this call may have")
        region, safe = launch.regions.get(id(pointers.dtype)), None
        size = region.size if region else max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        low, high = int(LOWEST(addresses, axis=None)), int(HIGHEST(addresses, axis=None))
        if region is None or not (region.start <= low and high <= region.stop - size):
            region, safe = self._doubtful(launch, kind, pointers, lanes, region, size)
        if self._only_bounds:
            return safe
        line = self._line()
        if region is not None and line:
            launch.access(region.origin, kind, line)
            self._reach(launch, region, kind != LOAD, line, addresses, lanes, low, high)
        if region is not None and kind == STORE and region.origin in self._lent:
            self._store(region, addresses, lanes, line)
        if region is not None and launch.accesses is not None:
            whole = pointers.get_element_ty().is_int()
            self._keep(launch, region, kind, size, addresses, lanes, values, waits, whole, line)
        return safe

    def _store(self, region: Region, addresses: NDArray[np.uint64], lanes: Lanes | None, line: int) -> None:
        """Keep the addresses of a store, unless those of the call are too many."""
        self._storing += addresses.size
        if self._storing <= MOST_LANES_OF_A_CALL:
            mask = None if lanes is None else np.broadcast_to(lanes, addresses.shape)
            active = addresses if mask is None else addresses[mask]
            self._stored.setdefault(region.origin, []).append(active.ravel())
            if mask is not None and active.size < addresses.size:
                self._masked.setdefault((region, line), []).append(addresses[~mask].ravel())

    def _reach(
        self,
        launch: _Launch,
        region: Region,
        writes: bool,
        line: int,
        addresses: NDArray[np.uint64],
        lanes: Lanes | None,
        low: int,
        high: int,
    ) -> None:
        """Note how far an access reaches; `low` and `high` are the ends of all its lanes."""
        key = (region.origin, region.shape, region.strides, line, writes)
        known = self._reaches.get(key)
        if known is not None and known.low <= low and high <= known.high:
            return
        if lanes is not None:
            # Broadcasting takes longer than the rest, and few masks need it.
            same = lanes.shape == addresses.shape
            active = addresses[lanes if same else np.broadcast_to(lanes, addresses.shape)]
            if not active.size:
                return
            low, high = LOWEST(active), HIGHEST(active)
        if known is not None:
            known.low, known.high = min(known.low, int(low)), max(known.high, int(high))
        elif len(self._reaches) < MOST_REACHES:
            # The judge knows the names of what it lends.
            name = "" if region.origin in self._lent else launch.name_of(region)[:LONGEST_NAME]
            self._reaches[key] = _Reached(region, name, line, writes, int(low), int(high))

    def _doubtful(
        self,
        launch: _Launch,
        kind: int,
        pointers: TensorHandle,
        lanes: Lanes | None,
        region: Region | None,
        size: int,
    ) -> tuple[Region | None, Lanes | None]:
        """Look at the active lanes of an access of which some address may be outside."""
        active = np.ones(1, bool) if lanes is None else lanes
        active = np.broadcast_to(active, pointers.data.shape)
        addresses = pointers.data[active]
        if not addresses.size:
            return region, None
        low, high = int(addresses.min()), int(addresses.max())
        known = [region] if region else [*launch.regions.values()]
        for one in known:
            if one.start <= low and high + size <= one.stop:
                return one, None
        if not known:
            return None, None
        inside = _within(pointers.data, size, known)
        out = active & ~inside
        if not out.any():
            return None, None
        first = int(pointers.data[out].min())
        region = region or min(known, key=lambda one: one.distance(first))
        self._note(launch, kind, region, pointers.data[out])
        # A place that is no tensor's could be that of anything else in this process.
        touchable = [*launch.regions.values(), _as_region(self._lent)]
        return region, active & _within(pointers.data, size, touchable)

    def _note(self, launch: _Launch, kind: int, region: Region, addresses: NDArray[np.uint64]) -> None:
        line, writes = self._line(), kind != LOAD
        key = (line, region.origin, writes)
        if key in self._outside or len(self._outside) >= MOST_FACTS:
            return
        offsets = addresses.astype(np.int64) - region.origin
        places = int(offsets.min()) // region.size, int(offsets.max()) // region.size
        argument = region.argument(launch.name_of(region))
        builder = interpreter.interpreter_builder
        self._outside[key] = Outside(
            argument, *places, writes, self.masked, line, builder.grid_idx, builder.grid_dim
        )

    def _keep(
        self,
        launch: _Launch,
        region: Region,
        kind: int,
        size: int,
        addresses: NDArray[np.uint64],
        lanes: Lanes | None,
        values: NDArray[np.generic] | None,
        waits: bool,
        whole: bool,
        line: int,
    ) -> None:
        """Keep an access until the launch has ended, unless there are too many, or no second program."""
        builder = interpreter.interpreter_builder
        launch.lanes += addresses.size
        self._kept += addresses.size
        too_many = launch.lanes > MOST_LANES or self._kept > MOST_LANES_OF_A_CALL
        if launch.accesses is None or too_many or math.prod(builder.grid_dim) < 2:
            launch.accesses = None
            return
        x, y, z = builder.grid_idx
        program = (x * builder.grid_dim[1] + y) * builder.grid_dim[2] + z
        active = np.ones((1,) * addresses.ndim, bool) if lanes is None else lanes
        at = (region.start, kind, program, line, size)
        launch.accesses.append(Access(*at, addresses, active, values, waits, whole))

    def _look_for_a_race(self, launch: _Launch) -> None:
        assert launch.accesses is not None
        found = conflict(launch.accesses)
        if found is None:
            return
        grid = interpreter.interpreter_builder.grid_dim
        memory = found.earlier.memory
        region = next(one for one in launch.regions.values() if one.start == memory)
        both = (found.earlier, found.later)
        self._races.append(
            Race(
                region.argument(launch.name_of(region)),
                (found.address - region.origin) // region.size,
                (NAMES[both[0].kind], NAMES[both[1].kind]),
                (both[0].line, both[1].line),
                (_index(both[0].program, grid), _index(both[1].program, grid)),
                grid,
            )
        )

    def _line(self) -> int:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename not in self._files:
            frame = frame.f_back
        return frame.f_lineno if frame else 0


@dataclass
class _Reached:
    """How far a line has reached into the memory of a tensor so far, in addresses."""

    region: Region
    name: str
    line: int
    writes: bool
    low: int
    high: int

    def told(self, lent: range) -> Reach:
        origin, size = self.region.origin, self.region.size
        offset = origin - lent.start if origin in lent else -1
        places = (self.low - origin) // size, (self.high - origin) // size
        return Reach(self.region.argument(self.name), offset, self.line, self.writes, *places)


class _Launch:
    """One launch: the memory that it was given, and its accesses; None once they are too many."""

    def __init__(self, function: InterpretedFunction, args: Sequence[object], options: Mapping[str, object]):
        self._call = function.fn, args, options
        # By the type of the pointer: the interpreter makes one for each argument, and all pointers that are
        # computed from it share the object. The types are kept, so that no other object gets an id of theirs.
        self.regions: dict[int, Region] = {}
        self._types: list[object] = []
        self.accesses: list[Access] | None = []
        self.lanes = 0
        self.is_asked_for = False  # whether a program asked for the size of the grid
        self.has_turns = False  # whether a program made the same access twice
        self._program: object = None
        self._made = set[tuple[int, int, int]]()  # the accesses of that program

    def lend(self, region: Region, pointer: object) -> None:
        self.regions[id(pointer)] = region
        self._types.append(pointer)

    def access(self, origin: int, kind: int, line: int) -> None:
        """Note an access, until one program has made it twice."""
        if self.has_turns:
            return
        program = interpreter.interpreter_builder.grid_idx
        if program != self._program:
            self._program = program
            self._made.clear()
        self.has_turns = (origin, kind, line) in self._made
        self._made.add((origin, kind, line))

    def name_of(self, region: Region) -> str:
        return name_of(region.origin, *self._call)


@contextlib.contextmanager
def recorded(
    files: Collection[str],
    lent: range,
    only_bounds: bool = False,
    most: int | None = None,
    grouped: Grouped | None = None,
) -> Iterator[Callable[[], Witnessed]]:
    """Yield a function that returns what kernels did so far in the interpreter; lines are those of `files`.

    `lent` are the addresses of the memory that the judge lends. If `only_bounds`, only accesses outside of a
    tensor are noted. With a `most`, a call fails after so many. With `grouped`, functions of reductions and
    scans are noted that depend on how elements are grouped.
    """
    recorder = Recorder(files, lent, only_bounds, most, grouped)
    builder = type(interpreter.interpreter_builder)
    kept = {name: getattr(builder, name) for name in (*WATCHED, "binary_op")}
    run, convert = InterpretedFunction.run, interpreter._implicit_cvt
    reduced, scanned = ReduceOps.generic_reduce, ScanOps.generic_scan

    def launched(function: InterpretedFunction, *args: object, **options: object) -> object:
        if options.get("warmup"):
            return run(function, *args, **options)
        with recorder.launch(function, args, options):
            return run(function, *args, **options)

    def converted(given: object) -> object:
        value = convert(given)
        if recorder.lend(given, value):  # looked at there only, as it takes time
            builder.binary_op = checked
        return value

    def checked(self: object, lhs: Any, rhs: Any, op: Any) -> Any:
        value = kept["binary_op"](self, lhs, rhs, op)
        recorder.computed(op.__name__, value, lhs, rhs)
        return value

    def load_all(self: object, *args: Any) -> Any:
        recorder.masked = False
        try:
            return kept["create_load"](self, *args)
        finally:
            recorder.masked = True

    def store_all(self: object, *args: Any) -> Any:
        recorder.masked = False
        try:
            return kept["create_store"](self, *args)
        finally:
            recorder.masked = True

    # Some callers name the last arguments: cache_modifier, eviction_policy and, of a load, is_volatile.
    def load(self: object, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        volatile = named.get("is_volatile", rest[2] if len(rest) > 2 else False)
        safe = recorder.seen(LOAD, ptrs, _lanes(mask), waits=bool(volatile))
        mask = mask if safe is None else TensorHandle(safe, tl.int1)
        return kept["create_masked_load"](self, ptrs, mask, other, *rest, **named)

    def store(self: object, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        safe = recorder.seen(STORE, ptrs, _lanes(mask), value.data)
        mask = mask if safe is None else TensorHandle(safe, tl.int1)
        return kept["create_masked_store"](self, ptrs, value, mask, *rest, **named)

    def compare(self: object, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        safe = recorder.seen(ATOMIC, ptr, None, waits=True)
        if safe is not None and not safe.all():  # it has no mask, and would change memory of anything else
            return cmp
        return kept["create_atomic_cas"](self, ptr, cmp, val, sem, scope)

    def change(self: object, operation: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        safe = recorder.seen(ATOMIC, ptr, _lanes(mask))
        mask = mask if safe is None else TensorHandle(safe, tl.int1)
        return kept["create_atomic_rmw"](self, operation, ptr, val, mask, sem, scope)

    def select(self: object, cond: Any, lhs: Any, rhs: Any) -> Any:
        value = kept["create_select"](self, cond, lhs, rhs)
        if isinstance(value.dtype, tl.pointer_type) and lhs.dtype is not rhs.dtype:
            value.dtype = tl.pointer_type(value.dtype.element_ty)  # of neither argument alone
        return value

    def count(self: object, axis: int) -> Any:
        recorder.asked()
        return kept["create_get_num_programs"](self, axis)

    def reduce(self: object, values: Any) -> Any:
        recorder.combined(self, values)
        return reduced(self, values)

    def scan(self: object, values: Any) -> Any:
        recorder.combined(self, values)
        return scanned(self, values)

    changes = (load_all, store_all, load, store, compare, change, select, count)
    changed = dict(zip(WATCHED, changes, strict=True))
    InterpretedFunction.run, interpreter._implicit_cvt = launched, converted
    if grouped and not only_bounds:
        ReduceOps.generic_reduce, ScanOps.generic_scan = reduce, scan
    for name, method in changed.items():
        setattr(builder, name, method)
    try:
        yield recorder.found
    finally:
        InterpretedFunction.run, interpreter._implicit_cvt = run, convert
        ReduceOps.generic_reduce, ScanOps.generic_scan = reduced, scanned
        for name, method in kept.items():
            setattr(builder, name, method)


def _lanes(mask: Any) -> Lanes:
    # Block pointers pass an array, and a mask with a comparison of scalars in it has whole numbers.
    lanes = mask if isinstance(mask, np.ndarray) else mask.data
    return lanes.astype(bool, copy=False)


def _different(addresses: NDArray[np.uint64]) -> int:
    """Return how many different addresses there are."""
    low, high = int(LOWEST(addresses)), int(HIGHEST(addresses))
    if high - low >= MOST_MARKED:  # rows that lie far apart
        return int(np.unique(addresses).size)
    marked = np.zeros(high - low + 1, bool)
    marked[addresses - np.uint64(low)] = True
    return int(np.count_nonzero(marked))


def _are_elements(places: NDArray[np.int64], region: Region) -> Lanes:
    """Return which places, counted from a tensor's first element, are elements of it, and no gap between."""
    rest, inside = places, places >= 0
    for size, stride in sorted(zip(region.shape, region.strides, strict=True), key=lambda one: -one[1]):
        if stride > 0:
            inside, rest = inside & (rest // stride < size), rest % stride
    return inside & (rest == 0)


def _within(addresses: NDArray[np.uint64], size: int, regions: Sequence[Region]) -> Lanes:
    inside = np.zeros(addresses.shape, bool)
    for one in regions:
        if one.stop >= one.start + size:
            inside |= (addresses >= np.uint64(one.start)) & (addresses <= np.uint64(one.stop - size))
    return inside


def _as_region(lent: range) -> Region:
    return Region(lent.start, lent.stop, lent.start, 1, (), ())


def _index(program: int, grid: Index) -> Index:
    rest, z = divmod(program, grid[2])
    x, y = divmod(rest, grid[1])
    return x, y, z
