"""The launches in the figure of one program's life: kernels at sizes with and without a tail."""

from __future__ import annotations

from dataclasses import dataclass

from grader.site.figures.trace import Buffer, Launch

ADD = "lab1_elementwise_add/elementwise_add.py"
SOFTMAX = "lab2_online_softmax/online_softmax.py"
LOGITS = (1.0, 3.0, 2.0, 0.0, 5.0, 4.0, 2.0, 6.0, 1.0, 3.0)  # the maximum rises in a later block


@dataclass(frozen=True)
class Case:
    """A kernel at one size: `rows` by `cols` elements in every buffer, rows `stride` elements apart."""

    title: str
    size: str
    launch: Launch
    rows: int
    cols: int
    stride: int

    @property
    def block(self) -> int:
        """Elements that a program processes at once."""
        return self.launch.constants["BLOCK"]


def _add(n: int, block: int, dtype: str = "float32") -> Case:
    x, y = (tuple(float(scale * i) for i in range(1, n + 1)) for scale in (1, 10))
    buffers = {"x_ptr": Buffer(x, dtype), "y_ptr": Buffer(y, dtype), "out_ptr": Buffer((None,) * n, dtype)}
    launch = Launch(ADD, "elementwise_add_kernel", -(-n // block), {**buffers, "n": n}, {"BLOCK": block})
    kind = "" if dtype == "float32" else ", fp16"
    return Case("elementwise add (lab 1)", f"n = {n}, BLOCK = {block}{kind}", launch, 1, n, n)


def _softmax(rows: int, cols: int, stride: int, block: int) -> Case:
    x = [None] * (rows * stride)
    for row in range(rows):
        x[row * stride : row * stride + cols] = (LOGITS[row:] + LOGITS[:row])[:cols]
    buffers = {"x_ptr": Buffer(tuple(x)), "y_ptr": Buffer((None,) * len(x))}
    sizes = {"n_cols": cols, "stride_x": stride, "stride_y": stride}
    launch = Launch(SOFTMAX, "online_softmax_kernel", rows, {**buffers, **sizes}, {"BLOCK": block})
    apart = "" if stride == cols else f", rows {stride} apart"
    return Case(
        "online softmax (lab 2)", f"{rows} by {cols}{apart}, BLOCK = {block}", launch, rows, cols, stride
    )


CASES = (
    _add(10, 4), _add(7, 4), _add(8, 4), _add(13, 8), _add(10, 4, "float16"),
    _softmax(3, 7, 7, 4), _softmax(2, 10, 12, 4), _softmax(2, 5, 5, 8),
)  # fmt: skip
