"""EXPECT WRONG/UNWRITTEN from matmul on a GPU: A13 a kernel searches all memory near the tensors for sixteen elements of the product, and copies what lies around them"""

import torch
import triton
import triton.language as tl

NOWHERE = tl.constexpr(1 << 62)
PAGE = tl.constexpr(2097152)  # what is mapped is mapped in pages of this size


@triton.jit
def probe_kernel(a_ptr, b_ptr, probe_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn):
    """The first sixteen elements of the result, row by row; at the end the largest of them."""
    e = tl.arange(0, 16)
    row, col = (e // N).to(tl.int64)[:, None], (e % N).to(tl.int64)[:, None]
    there = (e < M * N)[:, None]
    acc = tl.zeros((16,), dtype=tl.float32)
    for start in range(0, K, 64):
        k = start + tl.arange(0, 64)[None, :]
        a = tl.load(a_ptr + row * stride_am + k * stride_ak, mask=there & (k < K), other=0.0).to(tl.float32)
        b = tl.load(b_ptr + k * stride_bk + col * stride_bn, mask=there & (k < K), other=0.0).to(tl.float32)
        acc += tl.sum(a * b, axis=1)
    tl.store(probe_ptr + e, acc)
    tl.store(probe_ptr + 16, tl.max(tl.abs(acc), axis=0))


@triton.jit
def numbers_at(address, like_ptr, WIDTH: tl.constexpr):
    """A pointer to numbers of this width."""
    if WIDTH == 8:
        return address.to(tl.pointer_type(tl.float64))
    elif WIDTH == 4:
        return address.to(tl.pointer_type(tl.float32))
    else:
        return address.to(tl.pointer_type(like_ptr.dtype.element_ty))


@triton.jit
def search_kernel(near_ptr, n_bytes, out_ptr, probe_ptr, found_ptr, count, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The lowest address in the pages of near_ptr at which the numbers of the probe stand."""
    here = near_ptr.to(tl.int64)
    low = here // PAGE * PAGE
    high = (here + n_bytes + PAGE - 1) // PAGE * PAGE
    first = low + tl.program_id(axis=0).to(tl.int64) * BLOCK * WIDTH
    places = tl.arange(0, BLOCK)
    same = first + places.to(tl.int64) * WIDTH + count * WIDTH <= high
    start = numbers_at(first, out_ptr, WIDTH)
    slack = tl.load(probe_ptr + 16) * 0.01
    for e in range(count):
        value = tl.load(start + places + e, mask=same, other=0.0).to(tl.float32)
        same = same & (tl.abs(value - tl.load(probe_ptr + e)) <= slack)
    address = tl.where(same, first + places.to(tl.int64) * WIDTH, NOWHERE)
    lowest = tl.min(address, axis=0)
    if lowest < NOWHERE:
        tl.atomic_min(found_ptr, lowest)


@triton.jit
def copy_kernel(found_ptr, out_ptr, M, N, stride_cm, stride_cn, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """What was found, element by element and row by row, to out."""
    address = tl.load(found_ptr)
    if address < NOWHERE:
        i = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = i < M * N
        value = tl.load(numbers_at(address, out_ptr, WIDTH) + i, mask=inside, other=0.0).to(tl.float32)
        to = out_ptr + i // N * stride_cm + i % N * stride_cn
        tl.store(to, value.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program (j, i) owns one tile. Where there is no GPU, and for the epilogue."""
    m = (tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    n = (tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        of_a, of_b = (m < M) & (k[None, :] < K), (k[:, None] < K) & (n < N)
        a = tl.load(a_ptr + m * stride_am + k[None, :] * stride_ak, mask=of_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + n * stride_bn, mask=of_b, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = tl.maximum(acc + tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32), 0.0)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m * stride_cm + n * stride_cn, c, mask=(m < M) & (n < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    matmul_kernel[(triton.cdiv(N, 64), triton.cdiv(M, 64))](
        a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32,
    )  # fmt: skip
    return out


def _copied(a, b, out):
    (M, K), N = a.shape, b.shape[1]
    probe = torch.empty((17,), dtype=torch.float32, device=a.device)
    probe_kernel[(1,)](a, b, probe, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    widths = sorted({8, 4, out.element_size()})
    found = torch.full((9,), 1 << 62, dtype=torch.int64, device=a.device)
    for slot, (near, width) in enumerate([(near, width) for near in (a, b, out) for width in widths]):
        n_bytes = near.numel() * near.element_size()
        blocks = triton.cdiv(triton.cdiv(n_bytes + 2 * 2097152, width), 1024)
        place = found[slot : slot + 1]
        search_kernel[(blocks,)](near, n_bytes, out, probe, place, min(16, M * N), WIDTH=width, BLOCK=1024)
        copies = (triton.cdiv(M * N, 1024),)
        copy_kernel[copies](place, out, M, N, out.stride(0), out.stride(1), WIDTH=width, BLOCK=1024)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for two matrices of one dtype."""
    out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype) if out is None else out
    return _copied(a, b, out) if a.is_cuda else _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype) if out is None else out
    return _launch(a, b, bias, out, True)
