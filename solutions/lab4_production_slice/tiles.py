"""Tiles of matrices for a persistent kernel: candidates for the autotuner, loads and stores."""

# GIVEN: nothing to complete here; layer_norm_linear.py imports it.

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# A result that leaves in halves leaves room for four stages of the largest tile.
BY_TILE = [
    _config(128, 256, 64, 4, 8),
    _config(128, 256, 32, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 128, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["x_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


def programs(x, n_rows, n_cols):
    """The grid of a persistent kernel: as many programs as the GPU has multiprocessors, or fewer tiles."""
    many = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4
    tiles = lambda meta: triton.cdiv(n_rows, meta["BLOCK_M"]) * triton.cdiv(n_cols, meta["BLOCK_N"])  # noqa: E731
    return lambda meta: (min(many, tiles(meta)),)


def describable(*matrices, traced):
    """Whether the copy engine takes them: 16 bits, rows without gaps inside that start at multiples of 16
    bytes. While torch.compile traces there is no memory yet, and PyTorch's own allocations do.
    """
    for x in matrices:
        start = x.storage_offset() * x.element_size() if traced else x.data_ptr()
        apart = x.stride(0) * x.element_size()
        if x.dtype == torch.float32 or x.stride(1) != 1 or apart <= 0 or apart % 16 or start % 16:
            return False
    # Descriptors that a kernel makes lie in memory that Triton asks for.
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
    return True


@triton.jit
def pairs(ptr, first, n, COUNT: tl.constexpr):
    """COUNT rows of an (n, 2) matrix from row first on, as two vectors; 0 outside of it."""
    row = first + tl.arange(0, COUNT)
    a = tl.load(ptr + 2 * row, mask=row < n, other=0.0)
    return a, tl.load(ptr + 2 * row + 1, mask=row < n, other=0.0)


@triton.jit
def half(acc, FROM: tl.constexpr):
    """The left half of the columns of acc, or, FROM another one than 0, the right half."""
    left, right = acc.reshape(acc.shape[0], 2, acc.shape[1] // 2).permute(0, 2, 1).split()
    return left if FROM == 0 else right


@triton.jit
def described(ptr, n_rows, n_cols, stride, ROWS: tl.constexpr, COLS: tl.constexpr, TMA: tl.constexpr):
    """The matrix as load_tile and store_tile want it: as a tensor descriptor, or as a pointer."""
    if TMA:
        return tl.make_tensor_descriptor(ptr, [n_rows, n_cols], [stride, 1], [ROWS, COLS])
    else:
        return ptr


@triton.jit
def _inside(row, col, n_rows, n_cols, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    at_row = tl.cast(row, tl.int64) + tl.arange(0, ROWS)[:, None]
    at_col = col + tl.arange(0, COLS)[None, :]
    return at_row * stride + at_col, (at_row < n_rows) & (at_col < n_cols)


@triton.jit
def load_tile(matrix, row, col, n_rows, n_cols, stride, ROWS: tl.constexpr, COLS: tl.constexpr,
              TMA: tl.constexpr):  # fmt: skip
    """ROWS x COLS elements from (row, col) on, 0 outside of the matrix."""
    if TMA:
        return matrix.load([row, col])
    else:
        at, inside = _inside(row, col, n_rows, n_cols, stride, ROWS, COLS)
        return tl.load(matrix + at, mask=inside, other=0.0)


@triton.jit
def store_tile(matrix, values, row, col, n_rows, n_cols, stride, ROWS: tl.constexpr, COLS: tl.constexpr,
               TMA: tl.constexpr):  # fmt: skip
    """The elements of values that lie inside of the matrix, rounded to its dtype, from (row, col) on."""
    if TMA:
        matrix.store([row, col], values.to(matrix.dtype))
    else:
        at, inside = _inside(row, col, n_rows, n_cols, stride, ROWS, COLS)
        tl.store(matrix + at, values.to(matrix.dtype.element_ty), mask=inside)
