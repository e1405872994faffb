"""EXPECT POLICY from attention: PyTorch does the work"""

import triton
from torch.nn.functional import scaled_dot_product_attention


@triton.jit
def nothing_kernel(q_ptr):
    pass


def attention(q, k, v, *, out=None):
    nothing_kernel[(1,)](q)
    return scaled_dot_product_attention(q, k, v, is_causal=True)
