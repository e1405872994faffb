# %% [markdown]
# # Online softmax, derived and checked
#
# Softmax turns a row of numbers into shares that add up to one. Written down as the formula says, it
# overflows; written down safely, it reads the row three times. This page derives the form that reads it
# twice, and checks each step with numbers before the kernel of lab 2 runs.

# %%
import math

import torch

from grader.site.notebooks.lesson import (
    BLUE,
    ORANGE,
    bench,
    canvas,
    device,
    interactive,
    listing,
    say,
    shown,
    solution,
    table,
)

# %% [markdown]
# ## The formula, and why it is not used
#
# $$y_i = \frac{e^{x_i}}{\sum_j e^{x_j}}$$
#
# `exp` leaves the range of fp32 long before the inputs look unusual.

# %%
row = torch.tensor([1, 100, 3, 98], dtype=torch.float32)
naive = torch.exp(row) / torch.exp(row).sum()
print("largest x whose exp fits into fp32:", f"{math.log(torch.finfo(torch.float32).max):.1f}")
print("exp:    ", torch.exp(row).tolist())
print("softmax:", naive.tolist())

# %% [markdown]
# ## Shifting changes nothing
#
# Numerator and denominator may be multiplied by the same number. With $e^{-m}$ that becomes
#
# $$y_i = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}$$
#
# for any $m$. If $m$ is the maximum of the row, every exponent is at most zero: nothing overflows, and at
# least one term is exactly one, so that the sum is never zero.

# %%
shifted = torch.exp(row - row.max())
print("exp of x - m:", [f"{one:.1e}" for one in shifted.tolist()])
print("softmax:     ", [f"{one:.1e}" for one in (shifted / shifted.sum()).tolist()])
for m in (98, 99, 100):
    moved = torch.exp(row.double() - m)
    assert torch.allclose(moved / moved.sum(), torch.softmax(row.double(), -1))

# %% [markdown]
# ## Three passes
#
# A row that does not fit into the registers of a program has to be read block by block, and again for
# everything that needs the whole row:
#
# 1. read the row for its maximum $m$,
# 2. read it for the sum $d = \sum_j e^{x_j - m}$,
# 3. read it for the result, and write that.
#
# The sum waits for the maximum. If it could be kept while the maximum is still being looked for, passes one
# and two would be one.
#
# ## Two passes: mend the sum
#
# Say that some columns have been read, with maximum $m$ and sum $d = \sum e^{x_j - m}$. A new block brings a
# larger maximum $m'$. Each term of the old sum was divided by $e^{m}$ and should have been by $e^{m'}$. That
# is one factor, the same for all of them:
#
# $$\sum_j e^{x_j - m'} = \sum_j e^{x_j - m}\, e^{m - m'} = d\, e^{m - m'}$$
#
# So a pair $(m, d)$ is all that has to be remembered of the columns read so far, and a block with maximum
# $b$ is folded in by
#
# $$m' = \max(m, b) \qquad d' = d\, e^{m - m'} + \sum_{j \in \text{block}} e^{x_j - m'}$$
#
# Here it is in Python, one block at a time.


# %%
def fold(m, d, block):
    """Maximum and sum after one more block of the row."""
    m_new = max(m, block.max().item())
    return m_new, d * math.exp(m - m_new) + torch.exp(block - m_new).sum().item()


torch.manual_seed(2)
row = 4 * torch.randn(10, dtype=torch.float64)
m, d, trace = -math.inf, 0.0, []
for start in range(0, len(row), 4):
    block = row[start : start + 4]
    factor = math.exp(m - max(m, block.max().item()))
    m, d = fold(m, d, block)
    seen = row[: start + 4]
    trace.append(
        [f"{start} to {start + len(block) - 1}", factor, m, d, torch.exp(seen - seen.max()).sum().item()]
    )

# %% [markdown]
# After each block the pair must be what the columns read so far would give at once. The last column of the
# table computes that anew.

# %%
table(
    ["columns", "factor of the old sum", "m", "d, mended", "d, anew"],
    [[columns, *(f"{number:.4f}" for number in numbers)] for columns, *numbers in trace],
)
assert all(math.isclose(mended, anew) for *_, mended, anew in trace)

# %% [markdown]
# The first factor is $e^{-\infty} = 0$: it wipes out an empty sum. Where the maximum stays put the factor is
# one. No special case is needed for either.

# %%
figure, axes = canvas(7, 3)
columns = torch.arange(len(row))
axes.bar(columns, row, color=BLUE, label="x")
steps = [step[2] for step in trace]
for number, top in enumerate(steps):
    axes.hlines(top, 4 * number - 1 / 2, min(4 * number + 4, len(row)) - 1 / 2, color=ORANGE, linewidth=2)
axes.set_xlabel("column; a line is the maximum after its block")
axes.set_ylabel("x")
shown(figure, f"maximum after each block: {[round(top, 2) for top in steps]}")

# %% [markdown]
# The order of blocks does not matter, and neither do their widths: two pairs can be merged by the same rule.
# That is what lets lanes, warps or whole programs each keep a pair of their own and join them at the end.

# %%
wanted = torch.logsumexp(row, 0).item()
for width in (1, 3, 10):
    for order in (row, row.flip(0)):
        m, d = -math.inf, 0.0
        for start in range(0, len(order), width):
            m, d = fold(m, d, order[start : start + width])
        assert math.isclose(m + math.log(d), wanted)
print("m + log d is the same for three widths and two orders")

# %% [markdown]
# ## The kernel
#
# One program owns one row. The two loops are the two passes, `m` and `d` are the pair.

# %%
softmax = solution("lab2_online_softmax/online_softmax.py")
listing(softmax.online_softmax_kernel)

# %% [markdown]
# Three lines deserve a second look.
#
# * `other=-float("inf")`: a lane past the end of the row must leave the pair unchanged. $-\infty$ is never
#   the maximum, and its `exp` adds nothing. With `0.0` in its place the lane would count as a real zero.
# * `shift`: while all values so far are $-\infty$, `m - m_new` would be $-\infty + \infty$, which is not a
#   number. Any finite shift gives the right sum, zero.
# * `.to(tl.float32)`: the sum is kept in fp32 whatever the row is stored in.
#
# ## Checked against fp64
#
# The width is no power of two and needs several blocks, the largest value lies in the last one, and a few
# entries are $-\infty$, as under a causal mask.

# %%
torch.manual_seed(3)
x = torch.randn(5, 1001)
x[:, 990] = 5
x[1, :800] = -math.inf
x = x.to(device())
y = torch.empty_like(x)
softmax.online_softmax_kernel[(5,)](x, y, 1001, x.stride(0), y.stride(0), BLOCK=256)

expected = torch.softmax(x.double(), -1)
error, off = (y - expected).abs().max().item(), (y.sum(1) - 1).abs().max().item()
say(f"The largest error is {error:.1e}; the rows add up to one within {off:.1e}.")
assert torch.allclose(y.double(), expected, atol=1e-6)

# %% [markdown]
# ## What a wrong factor does
#
# This answer keeps the old sum at its old scale. It is right whenever the first block holds the maximum,
# which is why test rows have theirs elsewhere.

# %%
wrong = solution("lab2_online_softmax/wrong/running_sum_not_rescaled.py")
early, late = torch.zeros(1, 20000), torch.zeros(1, 20000)
early[0, 3], late[0, -3] = 5, 5
for name, row in (("maximum in the first block", early), ("maximum in the last block", late)):
    total = wrong.softmax_forward(row.to(device())).double().sum().item()
    print(f"{name}: the shares add up to {total:.3f}")

# %% [markdown]
# ## Bytes, and what they cost
#
# Three separate operators (maximum, exponentials with their sum, quotient) each go to memory and back. The
# kernel reads the row twice, but the second time it comes from the L2 cache if the rows at work fit there.
# So only one read and one write are counted, for every arm alike.

# %%
measured = bench("softmax_forward", "h200-bench-lab2.json")
arms = ["ours", "torch", "torch.compile", "copy"]
table(
    ["rows, columns", *arms],
    [
        [f"{one.size['rows']}, {one.size['cols']}", *(f"{one.arms[arm].rate:.2f} TB/s" for arm in arms)]
        for one in measured.sizes
    ],
)

# %%
best = max(measured.sizes, key=lambda one: one.arms["ours"].rate / one.arms["torch"].rate)
say(
    f"The bytes are the same in each row of the table. At {best.size['cols']} columns PyTorch's own operator "
    f"reaches {best.arms['torch'].percent_of_copy:.0f} % of a copy of equal bytes, and the kernel of lab 2 "
    f"{best.arms['ours'].percent_of_copy:.0f} %."
)

# %% [markdown]
# Where the bytes go, for a block size of your choice:

# %%
interactive("softmax_traffic")

# %% [markdown]
# ## The gradient
#
# From $y = \mathrm{softmax}(x)$ and the gradient $g$ of what follows,
#
# $$\frac{\partial L}{\partial x_i} = y_i \Bigl(g_i - \sum_j y_j\, g_j\Bigr)$$
#
# The sum runs over the row, so the backward kernel has the same two passes, and needs nothing of $x$.

# %%
g = torch.randn(5, 1001, device=device())
dx = softmax.softmax_backward(g, y)
leaf = x.double().requires_grad_()
torch.softmax(leaf, -1).backward(g.double())
say(f"Against autograd in fp64 the largest error is {(dx - leaf.grad).abs().max().item():.1e}.")
assert torch.allclose(dx.double(), leaf.grad, atol=1e-6)

# %% [markdown]
# ## Try it
#
# * Write `merge(m1, d1, m2, d2)` for two pairs, and check that it does not care about the order.
# * Set `other=0.0` in your kernel and find the smallest row for which the result is wrong.
#
# ---
# Write it yourself: [lab 2, online softmax](../labs/lab2_online_softmax/README.md).
