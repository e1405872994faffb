"""EXPECT PASS from layer_norm_linear: forward and backward without a normalised row, tuned for an H200.

The ideas beyond the solution, and what each saves:
* One launch prepares both: mean and 1 / deviation of each row of x, and each row of gamma * weight. Mean and
  variance take one reading, see near_mean.
* The matrix product is persistent: as many programs as multiprocessors, each with tile after tile. Loads of
  the next tile begin while the last one is being stored.
* Where the matrices permit it, the copy engine of the GPU (TMA) loads and stores tiles by tensor descriptors:
  no thread computes addresses, and no register holds them.
* The norm is applied to half a tile at a time: that leaves registers, and so room for four stages of the
  largest tile.
* Groups of eight rows of tiles are taken together, as in lab 3, so that x and weight come from the L2 cache.
* The backward pass stores no normalised row either. dweight and dgamma come from one product in fp32, that of
  rstd * dy with x; the mean comes off after it.
* A row is added up in lanes, each inside a thread, so that threads wait for each other once.
"""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

WIDEST_TILE = 8192
# A thread has 8 neighbouring columns, 16 bytes in 16 bits, the widest load; so LANES is 256 a warp.
# 32 warps leave 64 registers for each thread. The compiler keeps to them better if it is told.
LANES = [
    triton.Config({"LANES": 256 * warps}, num_warps=warps, maxnreg=64 if warps == 32 else None)
    for warps in (1, 2, 4, 8, 16, 32)
]


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=4, warps=8),
    tile(128, 256, 32, stages=4, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 128, 128, stages=4, warps=4),
    tile(64, 64, 32, stages=4, warps=4),
]


def fitting_rows(configs, named_args, **meta):
    """Return the configs with 8 to 32 values of a tile for each thread: more do not fit its registers."""
    return [config for config in configs if 8 <= meta["TILE"] // (32 * config.num_warps) <= 32]


def fitting_tiles(configs, named_args, **meta):
    """Return the configs with tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["x_ptr"].dtype == torch.float32 else 256
    most = min(widest, named_args["M"], named_args["N"])
    kept = [one for one in configs if max(one.kwargs["BLOCK_M"], one.kwargs["BLOCK_N"]) <= most]
    return kept or configs[-1:]


BY_SIZE = {"early_config_prune": fitting_tiles}


def tiles_of_a_row(n_cols: int) -> dict[str, int]:
    """Return the columns of a tile, and how many tiles a row has; both are powers of two."""
    padded = max(256, triton.next_power_of_2(n_cols))
    return {"TILE": min(padded, WIDEST_TILE), "TILES": max(1, padded // WIDEST_TILE)}


@triton.jit
def columns(TILE: tl.constexpr, LANES: tl.constexpr):
    """Return the columns of a tile as TILE / LANES by LANES: what is added along axis 0 stays in a thread."""
    return tl.arange(0, TILE // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def load(pointers, inside, AGAIN: tl.constexpr):
    """Return numbers in fp32, 0 outside; AGAIN says whether the cache should keep them for a second time."""
    hint: tl.constexpr = "evict_last" if AGAIN else "evict_first"
    return tl.load(pointers, mask=inside, other=0.0, eviction_policy=hint).to(tl.float32)


@triton.jit
def store(pointers, values, inside):
    """Store values, rounded to the dtype of the pointers; nobody reads them soon."""
    values = values.to(pointers.dtype.element_ty)
    tl.store(pointers, values, mask=inside, eviction_policy="evict_first")


@triton.jit
def near_mean(row_ptr, n_cols):
    """Return the mean of four values of a row, rounded to their dtype, so that it can stand in for one.

    Sums of x - near and of its square give mean and variance in one reading: the squares of x itself would
    cancel where the mean is large. One value alone may lie far out, and would cost digits.
    """
    ends = tl.load(row_ptr).to(tl.float32) + tl.load(row_ptr + n_cols - 1).to(tl.float32)
    middle = tl.load(row_ptr + n_cols // 3).to(tl.float32) + tl.load(row_ptr + n_cols // 2).to(tl.float32)
    return (0.25 * (ends + middle)).to(row_ptr.dtype.element_ty).to(tl.float32)


@triton.jit
def prepare_row_of_x(
    row,
    x_ptr,
    stats_ptr,
    n_cols,
    stride,
    eps,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    LANES: tl.constexpr,
):
    """Store the mean and 1 / sqrt(variance + eps) of a row to stats[row, :]."""
    x_row = x_ptr + row.to(tl.int64) * stride
    cols = columns(TILE, LANES)
    near = near_mean(x_row, n_cols)
    sums = tl.zeros((LANES,), dtype=tl.float32)
    squares = tl.zeros((LANES,), dtype=tl.float32)
    for i in range(TILES):
        at = i * TILE + cols
        d = tl.where(at < n_cols, load(x_row + at, at < n_cols, AGAIN=True) - near, 0.0)
        sums += tl.sum(d, axis=0)
        squares += tl.sum(d * d, axis=0)
    off = tl.sum(sums, axis=0) / n_cols
    variance = tl.maximum(tl.sum(squares, axis=0) / n_cols - off * off, 0.0)
    tl.store(stats_ptr + 2 * row, near + off)
    # torch.compile passes eps in fp64, which would spread.
    tl.store(stats_ptr + 2 * row + 1, tl.rsqrt(variance + tl.cast(eps, tl.float32)))


@triton.jit
def prepare_row_of_weight(
    row,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    sums_ptr,
    n_cols,
    stride,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    LANES: tl.constexpr,
):
    """Store gamma * weight[row], rounded, to row of scaled.

    The sum of what was rounded goes to sums[row, 0], that of beta * weight, plus the bias, to sums[row, 1].
    """
    cols = columns(TILE, LANES)
    total = tl.zeros((LANES,), dtype=tl.float32)
    shift = tl.zeros((LANES,), dtype=tl.float32)
    for i in range(TILES):
        at = i * TILE + cols
        weight = load(weight_ptr + row.to(tl.int64) * stride + at, at < n_cols, AGAIN=False)
        scaled = weight * load(gamma_ptr + at, at < n_cols, AGAIN=True)
        scaled = scaled.to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + row.to(tl.int64) * n_cols + at, scaled, mask=at < n_cols)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(weight * load(beta_ptr + at, at < n_cols, AGAIN=True), axis=0)
    tl.store(sums_ptr + 2 * row, tl.sum(total, axis=0))
    tl.store(sums_ptr + 2 * row + 1, tl.sum(shift, axis=0) + tl.load(bias_ptr + row).to(tl.float32))


@triton.autotune(configs=LANES, key=["n_cols"], prune_configs_by={"early_config_prune": fitting_rows})
@triton.jit
def prepare_kernel(
    x_ptr,
    gamma_ptr,
    beta_ptr,
    weight_ptr,
    bias_ptr,
    stats_ptr,
    scaled_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_weight,
    eps,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    LANES: tl.constexpr,
):
    """Program i < n_rows owns row i of x, and each program after them one row of the weight.

    stats is (n_rows, 2) fp32, sums (rows of the weight, 2) fp32, and scaled is like the weight.
    """
    row = tl.program_id(axis=0)
    if row < n_rows:
        prepare_row_of_x(row, x_ptr, stats_ptr, n_cols, stride_x, eps, TILE, TILES, LANES)
    else:
        prepare_row_of_weight(
            row - n_rows,
            weight_ptr,
            gamma_ptr,
            beta_ptr,
            bias_ptr,
            scaled_ptr,
            sums_ptr,
            n_cols,
            stride_weight,
            TILE,
            TILES,
            LANES,
        )


@triton.jit
def described(ptr, n_rows, n_cols, stride, ROWS: tl.constexpr, COLS: tl.constexpr, TMA: tl.constexpr):
    """Return a matrix as load_tile and store_tile want it: as a tensor descriptor, or as a pointer."""
    if TMA:
        return tl.make_tensor_descriptor(ptr, [n_rows, n_cols], [stride, 1], [ROWS, COLS])
    else:
        return ptr


@triton.jit
def offsets_and_mask(row, col, n_rows, n_cols, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return offsets of a tile from (row, col) on, and which of its elements lie inside of the matrix."""
    rows = tl.cast(row, tl.int64) + tl.arange(0, ROWS)[:, None]
    cols = col + tl.arange(0, COLS)[None, :]
    return rows * stride + cols, (rows < n_rows) & (cols < n_cols)


@triton.jit
def load_tile(
    matrix, row, col, n_rows, n_cols, stride, ROWS: tl.constexpr, COLS: tl.constexpr, TMA: tl.constexpr
):
    """Return ROWS x COLS elements from (row, col) on, 0 outside of the matrix."""
    if TMA:
        return matrix.load([row, col])
    else:
        offsets, inside = offsets_and_mask(row, col, n_rows, n_cols, stride, ROWS, COLS)
        return tl.load(matrix + offsets, mask=inside, other=0.0)


@triton.jit
def store_tile(
    matrix,
    values,
    row,
    col,
    n_rows,
    n_cols,
    stride,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    TMA: tl.constexpr,
):
    """Store values that lie inside of the matrix, rounded to its dtype, from (row, col) on."""
    if TMA:
        matrix.store([row, col], values.to(matrix.dtype))
    else:
        offsets, inside = offsets_and_mask(row, col, n_rows, n_cols, stride, ROWS, COLS)
        tl.store(matrix + offsets, values.to(matrix.dtype.element_ty), mask=inside)


@triton.jit
def load_pairs(ptr, first, n, COUNT: tl.constexpr):
    """Return rows of an (n, 2) matrix, COUNT from `first` on, as two vectors; 0 outside of it."""
    row = first + tl.arange(0, COUNT)
    a = tl.load(ptr + 2 * row, mask=row < n, other=0.0)
    b = tl.load(ptr + 2 * row + 1, mask=row < n, other=0.0)
    return a, b


@triton.jit
def half_of_columns(acc, FROM: tl.constexpr):
    """Return the left half of the columns of acc where FROM is 0, else the right half."""
    left, right = acc.reshape(acc.shape[0], 2, acc.shape[1] // 2).permute(0, 2, 1).split()
    return left if FROM == 0 else right


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by=BY_SIZE)
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    out_ptr,
    stats_ptr,
    sums_ptr,
    M,
    N,
    K,
    stride_x,
    stride_out,
    TMA: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """out = rstd * (x @ scaled.T - mean * total) + shift; program i takes tiles i, i + programs and so on.

    x is (M, K), scaled (N, K), contiguous, and out (M, N). Mean and rstd of each row are the pairs in stats,
    (M, 2); total and shift of each column are those in sums, (N, 2).
    """
    x = described(x_ptr, M, K, stride_x, BLOCK_M, BLOCK_K, TMA)
    scaled = described(scaled_ptr, N, K, K, BLOCK_N, BLOCK_K, TMA)
    out = described(out_ptr, M, N, stride_out, BLOCK_M, BLOCK_N // 2, TMA)
    count = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    group = 8 * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(axis=0), count, tl.num_programs(axis=0), flatten=True):
        height = min(tl.cdiv(M, BLOCK_M) - tile // group * 8, 8)
        m = (tile // group * 8 + tile % group % height) * BLOCK_M
        n = tile % group // height * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = load_tile(x, m, k, M, K, stride_x, BLOCK_M, BLOCK_K, TMA)
            b = load_tile(scaled, n, k, N, K, K, BLOCK_N, BLOCK_K, TMA)
            acc = tl.dot(a, b.T, acc, input_precision="ieee")
        mean, rstd = load_pairs(stats_ptr, m, M, BLOCK_M)
        # Half a tile at a time: two numbers for each of its columns would not fit beside the whole.
        for left in tl.static_range(0, BLOCK_N, BLOCK_N // 2):
            total, shift = load_pairs(sums_ptr, n + left, N, BLOCK_N // 2)
            product = half_of_columns(acc, left)
            y = rstd[:, None] * (product - mean[:, None] * total[None, :]) + shift[None, :]
            store_tile(out, y, m, n + left, M, N, stride_out, BLOCK_M, BLOCK_N // 2, TMA)


def programs_for(x, n_rows, n_cols):
    """Return the grid of a persistent kernel: one program a multiprocessor, or fewer tiles."""
    many = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4
    tiles = lambda meta: triton.cdiv(n_rows, meta["BLOCK_M"]) * triton.cdiv(n_cols, meta["BLOCK_N"])  # noqa: E731
    return lambda meta: (min(many, tiles(meta)),)


def can_be_described(*matrices):
    """Return whether the copy engine takes all of them: 16 bits, rows that start at multiples of 16 bytes.

    While torch.compile traces there is no memory yet; the allocations of PyTorch start at such a multiple.
    """
    for x in matrices:
        traced = on(linear_kernel, x) is not linear_kernel
        start = x.storage_offset() * x.element_size() if traced else x.data_ptr()
        apart = x.stride(0) * x.element_size()
        if x.dtype == torch.float32 or x.stride(1) != 1 or apart <= 0 or apart % 16 or start % 16:
            return False
    # Descriptors that a kernel makes lie in memory that Triton asks for.
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
    return True


def forward_and_statistics(x, gamma, beta, weight, bias, eps, out=None):
    """Return the result, mean and 1 / deviation of each row of x, (n_rows, 2) fp32, and gamma * weight."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    stats = torch.empty((M, 2), device=x.device, dtype=torch.float32)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    sums = torch.empty((N, 2), device=x.device, dtype=torch.float32)
    arguments = x, gamma, beta, weight, bias, stats, scaled, sums, M, K, x.stride(0), weight.stride(0), eps
    on(prepare_kernel, x)[(M + N,)](*arguments, **tiles_of_a_row(K))
    by_copy_engine = can_be_described(x, scaled, out)
    launch = on(linear_kernel, x)[programs_for(x, M, N)]
    launch(x, scaled, out, stats, sums, M, N, K, x.stride(0), out.stride(0), by_copy_engine)
    return out, stats, scaled


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, as in the solution."""
    y, _, _ = forward_and_statistics(x, gamma, beta, weight, bias, eps, out)
    return y


@triton.autotune(configs=LANES, key=["n_cols"], prune_configs_by={"early_config_prune": fitting_rows})
@triton.jit
def gradient_kernel(
    g_ptr,
    dy_ptr,
    x_ptr,
    stats_ptr,
    dx_ptr,
    means_ptr,
    scaled_ptr,
    n_cols,
    n_outs,
    stride_x,
    stride_dy,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    LANES: tl.constexpr,
):
    """dx = rstd * (g - mean(g) - n * mean(g * n)); program i owns row i.

    n is the normalised row, and g = dy @ (gamma * weight) the gradient for it. rstd * dy, rounded, goes to
    scaled, which is like dy. The mean goes to means, (n_rows, 2) of that dtype: what it is rounded to, and
    what was lost.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    cols = columns(TILE, LANES)
    mean = tl.load(stats_ptr + 2 * row)
    rstd = tl.load(stats_ptr + 2 * row + 1)
    sums = tl.zeros((LANES,), dtype=tl.float32)
    products = tl.zeros((LANES,), dtype=tl.float32)
    for i in range(TILES):
        at = i * TILE + cols
        g = load(g_ptr + row * n_cols + at, at < n_cols, AGAIN=False)
        x = load(x_ptr + row * stride_x + at, at < n_cols, AGAIN=False)
        sums += tl.sum(g, axis=0)
        products += tl.sum(g * (x - mean), axis=0)
    mean_g = tl.sum(sums, axis=0) / n_cols
    slope = tl.sum(products, axis=0) * rstd * rstd / n_cols
    for i in range(TILES):
        at = i * TILE + cols
        g = load(g_ptr + row * n_cols + at, at < n_cols, AGAIN=False)
        x = load(x_ptr + row * stride_x + at, at < n_cols, AGAIN=False)
        store(dx_ptr + row * n_cols + at, rstd * (g - mean_g - (x - mean) * slope), at < n_cols)
    for start in range(0, n_outs, TILE):
        at = start + cols
        dy = load(dy_ptr + row * stride_dy + at, at < n_outs, AGAIN=False)
        store(scaled_ptr + row * n_outs + at, rstd * dy, at < n_outs)
    rounded = mean.to(means_ptr.dtype.element_ty)
    tl.store(means_ptr + 2 * row, rounded)
    tl.store(means_ptr + 2 * row + 1, (mean - rounded.to(tl.float32)).to(means_ptr.dtype.element_ty))


@triton.jit
def weight_gradient_kernel(
    products_ptr,
    offs_ptr,
    sums_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    dgamma_ptr,
    dbeta_ptr,
    dweight_ptr,
    dbias_ptr,
    n_rows,
    n_cols,
    stride_weight,
    stride_dweight,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Four gradients from G = dy.T @ n, with n the normalised rows, and s, the sums of dy over its rows.

    dweight = G * gamma + s * beta, dgamma adds weight * G over its rows, dbeta weight * s, and dbias = s.
    Program k owns COLS columns. G is products, (n_rows, n_cols), less both columns of offs, (n_rows, 2); sums
    is (n_rows, 1); all three are fp32.
    """
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    gamma = load(gamma_ptr + cols, cols < n_cols, AGAIN=False)
    beta = load(beta_ptr + cols, cols < n_cols, AGAIN=False)
    dgamma = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbeta = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        row = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (row < n_rows) & (cols < n_cols)
        s = load(sums_ptr + row, row < n_rows, AGAIN=False)
        off = load(offs_ptr + 2 * row, row < n_rows, AGAIN=False)
        off += load(offs_ptr + 2 * row + 1, row < n_rows, AGAIN=False)
        g = tl.where(inside, load(products_ptr + row * n_cols + cols, inside, AGAIN=False) - off, 0.0)
        weight = load(weight_ptr + row * stride_weight + cols, inside, AGAIN=False)
        store(dweight_ptr + row * stride_dweight + cols, g * gamma + s * beta, inside)
        store(dbias_ptr + row, s, (row < n_rows) & (tl.program_id(axis=0) == 0))
        dgamma += weight * g
        dbeta += weight * s
    store(dgamma_ptr + cols, tl.sum(dgamma, axis=0), cols < n_cols)
    store(dbeta_ptr + cols, tl.sum(dbeta, axis=0), cols < n_cols)


def product_in_fp32(a, b):
    """Return a @ b in fp32, which cuBLAS gives for 16 bits, too: the mean comes off later."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.mm(a.to(torch.float32), b.to(torch.float32))


def weight_gradients(dy, x, scaled, means, gamma, beta, weight):
    """Return the gradients of gamma, beta, weight and bias, from what gradient_kernel left."""
    n_rows, n_cols = weight.shape
    dgamma = torch.empty_like(gamma)
    dbeta = torch.empty_like(beta)
    dweight = torch.empty_like(weight)
    dbias = torch.empty_like(weight[:, 0])
    ones = torch.full((dy.shape[0], 1), 1.0, dtype=dy.dtype, device=dy.device)
    # G = (rstd * dy).T @ (x - mean), in two products.
    products = product_in_fp32(scaled.t(), x)
    offs = product_in_fp32(scaled.t(), means)
    sums = product_in_fp32(dy.t(), ones)
    results = dgamma, dbeta, dweight, dbias
    strides = weight.stride(0), dweight.stride(0)
    launch = on(weight_gradient_kernel, dy)[(triton.cdiv(n_cols, 32),)]
    launch(products, offs, sums, weight, gamma, beta, *results, n_rows, n_cols, *strides, ROWS=64, COLS=32)
    return results


@triton_op("course::tuned_layer_norm_linear", mutates_args=())
def forward_op(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result, and what its gradient needs, as an operator that torch.compile can look into."""
    return forward_and_statistics(x, gamma, beta, weight, bias, eps)


@triton_op("course::tuned_layer_norm_linear_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor,
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    weight: torch.Tensor,
    stats: torch.Tensor,
    scaled: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """dx, dgamma, dbeta, dweight and dbias, likewise; the matrix products are those of torch."""
    M, K = x.shape
    N = weight.shape[0]
    dx = torch.empty((M, K), device=x.device, dtype=x.dtype)
    means = torch.empty((M, 2), device=x.device, dtype=x.dtype)
    scaled_dy = torch.empty((M, N), device=x.device, dtype=x.dtype)
    g = torch.mm(dy, scaled)
    launch = on(gradient_kernel, x)[(M,)]
    launch(g, dy, x, stats, dx, means, scaled_dy, K, N, x.stride(0), dy.stride(0), **tiles_of_a_row(K))
    return dx, *weight_gradients(dy, x, scaled_dy, means, gamma, beta, weight)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        y, stats, scaled = forward_op(x, gamma, beta, weight, bias, eps)
        ctx.save_for_backward(x, gamma, beta, weight, stats, scaled)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight, stats, scaled = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, gamma, beta, weight, stats, scaled), None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
