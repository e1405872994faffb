"""What kernels that work on rows share: tiles, loads, candidates for the autotuner, operators."""

# GIVEN: nothing to complete here; the other files of this lab import it.

import triton
import triton.language as tl
from torch.library import wrap_triton

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

# Columns of a tile; a long row, and columns of its tiles; multiprocessors of a large GPU.
WIDEST, LONG, WIDEST_OF_ROW, PROGRAMS = 8192, 32768, 32768, 132
WARPS = (1, 2, 4, 8, 16, 32)
# A thread has 8 neighbouring lanes, 16 bytes in 16 bits, so LANES is 256 a warp.
# 32 warps leave 64 registers for each thread: said, the compiler keeps to them better than it does unasked.
# Of 16 warps that keep much, two programs fit a multiprocessor then: one loads while the other adds up.
BY_LANES, BY_LANES_OF_TWO = (
    [triton.Config({"LANES": 256 * w}, num_warps=w, maxnreg=64 if w >= most else None) for w in WARPS]
    for most in (32, 16)
)
# STAGES is how many tiles are on their way or at work: with 3, two rows are loaded while one is worked on.
BY_STAGE = [triton.Config({"STAGES": s}, num_warps=w) for w in WARPS for s in (1, 3)]
BY_BOTH = [triton.Config({"LANES": 256 * w, "STAGES": s}, num_warps=w) for w in WARPS for s in (1, 3)]


def fitting(configs, named_args, **kwargs):
    """Configs with 8 to 32 values of a tile for each thread: fewer leave threads idle, more do not fit."""
    values = kwargs["TILE"] * kwargs.get("ROWS", 1)
    return [config for config in configs if 8 <= values // (32 * config.num_warps) <= 32]


def few_or_many(configs, named_args, **kwargs):
    """Configs with 8 values of a tile for each thread, or 32 if they are kept. What lies between is slower at
    work, but not to a tuner: it times a call behind one that left L2 full of what is still to be written.
    """
    # Where nothing is kept, as many programs as fit do better than two that share all the registers.
    pool, most = (configs, 32) if kwargs["KEPT"] else (BY_LANES, 8)
    return [config for config in pool if kwargs["TILE"] // (32 * config.num_warps) in (8, most)]


def wide(configs, named_args, **kwargs):
    """Configs with 16 to 64 values of a tile for each thread, or 64 where a long row is one tile."""
    least = 64 if kwargs["TILES"] == 1 and kwargs["TILE"] > WIDEST else 16
    kept = [config for config in configs if least <= kwargs["TILE"] // (32 * config.num_warps) <= 64]
    return kept or configs[:1]


def tiles(n_cols: int, widest: int = WIDEST) -> dict[str, int]:
    """Columns of a tile, and how many tiles a row of n_cols columns has, both powers of two."""
    size = max(256, triton.next_power_of_2(n_cols))
    return {"TILE": min(size, widest), "TILES": max(1, size // widest)}


def wide_tiles(n_cols: int, widest: int = WIDEST) -> dict[str, int]:
    """The same for a program with a whole row: of a long one two tiles at least, so that half of it is near
    when it is read again, and no wider tiles than its threads can hold.
    """
    return tiles(n_cols, max(widest, min(triton.next_power_of_2(n_cols) // 2, WIDEST_OF_ROW)))


def halves(n_cols: int) -> dict[str, int]:
    """The same with two tiles or more a row, which come from L1 when they are read again; KEPT tells how many
    are not: of a very long row the last, which stays in registers.
    """
    if n_cols > LONG:
        return tiles(n_cols, min(triton.next_power_of_2(n_cols) // 4, WIDEST_OF_ROW)) | {"KEPT": 1}
    return tiles(n_cols, max(2048, min(triton.next_power_of_2(n_cols) // 2, WIDEST))) | {"KEPT": 0}


def last_kept(n_cols: int) -> dict[str, int]:
    """The same for a program that reads two more numbers a column: one tile up to WIDEST columns, and of a
    long row the last of several, is KEPT; between them narrow tiles, read again, leave room for programs.
    """
    size = max(256, triton.next_power_of_2(n_cols))
    if WIDEST < size <= 2 * WIDEST:
        return tiles(n_cols, WIDEST // 2) | {"KEPT": 0}
    return tiles(n_cols, size if size <= WIDEST else min(size // 2, WIDEST_OF_ROW)) | {"KEPT": 1}


def programs_for(n_rows: int, n_cols: int) -> int:
    """Programs of a pass that adds up rows, each with sums of its own over its rows: where a row is one tile,
    one on each multiprocessor of a large GPU, and more where rows are short.
    """
    return max(1, min(n_rows, PROGRAMS * WIDEST // n_cols))


@triton.jit
def columns(TILE: tl.constexpr, LANES: tl.constexpr):
    """Columns of a tile as TILE / LANES by LANES: what is reduced along axis 0 stays inside a thread."""
    return tl.arange(0, TILE // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def keep(ptrs, inside, other=0.0, KEEP: tl.constexpr = False):
    """Elements as they lie in memory, for `again`: two of 16 bits share a register; `other` where nothing is.
    Those to KEEP are read again, and should stay near.
    """
    return tl.load(ptrs, mask=inside, other=other, eviction_policy="evict_last" if KEEP else "evict_first")


@triton.jit
def load(ptrs, inside, other=0.0, KEEP: tl.constexpr = False):
    """The same in fp32."""
    return keep(ptrs, inside, other, KEEP).to(tl.float32)


@triton.jit
def again(kept):
    """The same numbers, which the compiler cannot know: it would keep what it made of them before, in fp32
    and so in twice the registers, in place of converting them once more.
    """
    if not INTERPRETED:
        # Called pure, since PyTorch's tracer takes an impure one for a write to every tensor.
        kept = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [kept], kept.dtype, is_pure=True,
                                         pack=32 // kept.dtype.primitive_bitwidth)  # fmt: skip
    return kept


@triton.jit
def inverse_root(value, eps):
    """1 / sqrt(value + eps) in fp32; torch.compile passes eps in fp64, which would spread."""
    return tl.rsqrt(value + tl.cast(eps, tl.float32))


@triton.jit
def moments(total, squares, n, eps):
    """The mean, and 1 / sqrt(variance + eps), of n numbers from their sum and the sum of their squares."""
    mean = total / n
    return mean, inverse_root(tl.maximum(squares / n - mean * mean, 0.0), eps)


@triton.jit
def near_mean(row_ptr, n_cols):
    """The mean of four values of a row, rounded to their dtype, so that it can stand in for one. Each thread
    asks for all four, and none waits for another; one value alone may lie far out, and would cost digits.
    """
    ends = tl.load(row_ptr).to(tl.float32) + tl.load(row_ptr + n_cols - 1).to(tl.float32)
    middle = tl.load(row_ptr + n_cols // 3).to(tl.float32) + tl.load(row_ptr + n_cols // 2).to(tl.float32)
    return (0.25 * (ends + middle)).to(row_ptr.dtype.element_ty).to(tl.float32)


@triton.jit
def store(ptrs, values, inside):
    """Values in the dtype of the pointer; nobody reads them soon."""
    tl.store(ptrs, values.to(ptrs.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def store_row(row_ptr, n, weight_ptr, bias_ptr, at, n_cols):
    """n * weight + bias in columns `at` of a row."""
    y = n * load(weight_ptr + at, at < n_cols, KEEP=True) + load(bias_ptr + at, at < n_cols, KEEP=True)
    store(row_ptr + at, y, at < n_cols)


@triton.jit
def four_sums(a, b, c, d):
    """The sums of four tiles: inside threads, inside warps, and then over the warps all four at once, so that
    threads wait for each other once.
    """
    a, b, c, d = tl.sum(a, axis=0), tl.sum(b, axis=0), tl.sum(c, axis=0), tl.sum(d, axis=0)
    four = tl.join(tl.join(a, b), tl.join(c, d))
    of_warps = tl.sum(tl.reshape(four, (four.shape[0] // 256, 256, 2, 2)), axis=1)
    ab, cd = tl.split(tl.sum(of_warps, axis=0))
    sum_a, sum_b = tl.split(ab)
    sum_c, sum_d = tl.split(cd)
    return sum_a, sum_b, sum_c, sum_d


@triton.jit
def sums_of_two(ptr, inside, COUNT: tl.constexpr):
    """Sums over COUNT pairs of numbers, one behind the other from each place in ptr on."""
    a, b = load(ptr, inside), load(ptr + 1, inside)
    for pair in tl.static_range(1, COUNT):
        a, b = a + load(ptr + 2 * pair, inside), b + load(ptr + 2 * pair + 1, inside)
    return a, b


@triton.jit
def write4(ptr, a, b, c, d):
    """Four numbers to ptr and the three places behind it."""
    tl.store(ptr, a)
    tl.store(ptr + 1, b)
    tl.store(ptr + 2, c)
    tl.store(ptr + 3, d)


@triton.jit
def read4(ptr, COUNT: tl.constexpr):
    """Sums over COUNT groups of four numbers that write4 left one behind the other from ptr on."""
    groups = ptr + 4 * tl.arange(0, COUNT)
    a, b = tl.sum(tl.load(groups), axis=0), tl.sum(tl.load(groups + 1), axis=0)
    return a, b, tl.sum(tl.load(groups + 2), axis=0), tl.sum(tl.load(groups + 3), axis=0)


def on(kernel, traced: bool):
    """The kernel, or what torch.compile can see of it, for the body of an operator."""
    return wrap_triton(kernel) if traced else kernel
