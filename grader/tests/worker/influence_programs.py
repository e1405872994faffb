"""Kernels that take a part of an input to a wrong place, each in lent memory; called by test_influence.py.

Run as a file, it prints the way of one element of the input into the first element of the output, as JSON.
"""

import json
import sys

import torch
import triton
import triton.language as tl

from grader.worker.protocol import encode
from grader.worker.witness.influence import followed
from grader.worker.witness.record import Followed

N = 8


@triton.jit
def shifted_bias(x, bias, out, N: tl.constexpr):
    lanes = tl.arange(0, N)
    sums = tl.load(x + lanes) * 2.0
    from_next = tl.load(bias + (lanes + 1) % N)
    tl.store(out + lanes, sums + from_next)  # joined


def joined_by_a_sum(x, bias, out):
    shifted_bias[(1,)](x, bias, out, N)


@triton.jit
def keep_by_columns(bias, kept, N: tl.constexpr):
    row = tl.program_id(0)
    tl.store(kept + row, tl.load(bias + row))
    tl.store(kept + N + row, 1.0)  # stored too


@triton.jit
def read_by_rows(x, kept, out):
    row = tl.program_id(0)
    value = tl.load(kept + row * 2 + 1)  # loaded
    tl.store(out + row, tl.load(x + row) * value)


def through_its_own_memory(x, bias, out):
    kept = torch.empty(2 * N)
    keep_by_columns[(N,)](bias, kept, N)
    read_by_rows[(N,)](x, kept, out)


def through_a_result_of_its_own(x, bias, out):
    own = torch.empty_like(out)
    shifted_bias[(1,)](x, bias, own, N)


@triton.jit
def summed(x, bias, out, N: tl.constexpr):
    lanes = tl.arange(0, N)
    total = tl.sum(tl.load(bias + lanes), axis=0)  # summed
    tl.store(out + lanes, tl.load(x + lanes) - total)


def joined_by_a_reduction(x, bias, out):
    summed[(1,)](x, bias, out, N)


@triton.jit
def one_by_one(x, bias, out, N: tl.constexpr):
    lanes = tl.arange(0, N)
    tl.store(out + lanes, tl.load(x + lanes) + tl.load(bias + lanes))


def no_way_for_another_element(x, bias, out):
    one_by_one[(1,)](x, bias, out, N)


def main():
    lent = torch.zeros(64)
    x, bias, out = lent[:N], lent[16 : 16 + N], lent[32 : 32 + N]
    x.copy_(torch.arange(1.0, N + 1))
    bias.copy_(torch.arange(2.0, N + 2))
    addresses = range(lent.data_ptr(), lent.data_ptr() + 4 * lent.numel())
    part = Followed(offset=64, size=4, shape=(N,), strides=(1,), axis=0, start=1, stop=2, target=128, place=0)
    for name, function in list(globals().items()):
        if name.startswith(("joined_", "through_", "no_way_")):
            with followed([__file__], addresses, part) as found:
                function(x, bias, out)
            print(json.dumps({"name": name, "seen": encode(found())}))


if __name__ == "__main__":
    sys.exit(main())
