"""What the figures show is what the course's kernels do, as their runs in Triton's interpreter say."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from grader.course import catalog
from grader.site.figures import (
    program_cases,
    program_life,
    program_words,
    softmax_counts,
    softmax_traffic,
    tile_order,
)
from grader.site.figures.statements import by_statement, lines, statements
from grader.site.figures.trace import ITEM_BYTES, Access, Buffer, Launch, Step, trace

ADD = (catalog.ROOT / "solutions" / program_cases.ADD).read_text("utf-8")
SOFTMAX = (catalog.ROOT / "solutions" / program_cases.SOFTMAX).read_text("utf-8")
LOADED = Access("load", "x_ptr", (4, 5, 6, 7), (True, True, True, False), (1.0, 2.0, 3.0, 0.0), False)


def bytes_moved(program, launch):
    """Bytes that one program loads and stores: the lanes that are not masked off, each access counted."""
    total = {"load": 0, "store": 0}
    for step in program:
        for access in step.accesses:
            total[access.kind] += sum(access.mask) * ITEM_BYTES[launch.arguments[access.buffer].dtype]
    return total


def matmul(rows, cols, group_m, side=2):
    """Lab 3's kernel on rows by cols tiles of side by side elements, in fp32."""
    m, n, k = side * rows, side * cols, side
    sizes = {"M": m, "N": n, "K": k, "stride_am": k, "stride_ak": 1, "stride_bk": n, "stride_bn": 1}
    buffers = {"a_ptr": Buffer((1.0,) * (m * k)), "b_ptr": Buffer((1.0,) * (k * n)),
               "c_ptr": Buffer((None,) * (m * n)), "bias_ptr": Buffer((0.0,) * n)}  # fmt: skip
    blocks = {f"BLOCK_{one}": side for one in "MNK"} | {"GROUP_M": group_m, "BIAS_RELU": False}
    arguments = {**buffers, **sizes, "stride_cm": n, "stride_cn": 1}
    return Launch(
        "lab3_autotuned_matmul/autotuned_matmul.py", "matmul_kernel", rows * cols, arguments, blocks
    )


def softmax(rows, cols, block, dtype):
    x = Buffer(tuple(float(i % 7) for i in range(rows * cols)), dtype)
    sizes = {"n_cols": cols, "stride_x": cols, "stride_y": cols}
    buffers = {"x_ptr": x, "y_ptr": Buffer((None,) * (rows * cols), dtype)}
    return Launch(
        program_cases.SOFTMAX, "online_softmax_kernel", rows, {**buffers, **sizes}, {"BLOCK": block}
    )


def row_in_one_block(rows, cols, block, dtype):
    x_ptr, out_ptr = (softmax(rows, cols, block, dtype).arguments[name] for name in ("x_ptr", "y_ptr"))
    arguments = {"x_ptr": x_ptr, "out_ptr": out_ptr, "n_cols": cols, "sx": cols, "so": cols}
    file = "lab2_online_softmax/variants/short_rows_have_their_own_kernel.py"
    assert softmax_traffic.KERNELS["fused"].startswith(f"solutions/{file}")
    return Launch(file, "short_forward", rows, arguments, {"BLOCK": block})


TILED = [(4, 4, 1), (4, 4, 2), (5, 3, 2), (3, 5, 4), (7, 2, 3)]
ONLINE = [(2, 10, 4, "float32"), (1, 8, 4, "float16"), (3, 5, 16, "float32")]
FUSED = [(2, 10, 16, "float32"), (2, 16, 16, "float16")]


@pytest.fixture(scope="module")
def traces():
    """All launches of this file in one process of the interpreter: the traces by launch."""
    launches = {("tiles", *one): matmul(*one) for one in TILED}
    launches |= {("online", *one): softmax(*one) for one in ONLINE}
    launches |= {("fused", *one): row_in_one_block(*one) for one in FUSED}
    return dict(
        zip(launches, zip(launches.values(), trace(list(launches.values())), strict=True), strict=True)
    )


@pytest.mark.parametrize("size", TILED, ids=lambda size: "rows={},cols={},GROUP_M={}".format(*size))
def test_the_order_of_tiles_is_that_of_the_real_kernel(traces, size):
    rows, cols, group_m = size
    launch, programs = traces[("tiles", *size)]
    side = launch.constants["BLOCK_M"]
    assert len(programs) == rows * cols
    places = []
    for program in programs:
        (stored,) = (one for step in program for one in step.accesses if one.kind == "store")
        first = stored.offsets[0]
        places.append((first // launch.arguments["N"] // side, first % launch.arguments["N"] // side))
    assert places == tile_order.order(rows, cols, group_m)


@pytest.mark.parametrize("rows", [3, 8])
@pytest.mark.parametrize("group_m", [1, 2, 5])
def test_every_order_visits_every_tile_once(rows, group_m):
    places = tile_order.order(rows, 6, group_m)
    assert sorted(places) == [(row, col) for row in range(rows) for col in range(6)]


def test_a_cache_that_holds_all_strips_fetches_each_once():
    digits = tile_order.misses(tile_order.order(5, 4, 2), capacity=9)
    assert tile_order.fetched(digits) == 9
    assert digits[0] == "3"


def test_the_model_of_the_cache_throws_out_what_was_used_longest_ago():
    # a0 b0, a0 b1, a0 b2 with room for two: b0 makes way for b1, a0 stays.
    assert tile_order.misses([(0, 0), (0, 1), (0, 2), (0, 1)], capacity=2) == "3222"
    assert tile_order.misses([(0, 0), (0, 1), (0, 0)], capacity=3) == "320"


@pytest.mark.parametrize("size", ONLINE, ids=str)
def test_online_softmax_moves_the_bytes_that_the_figure_counts(traces, size):
    _, cols, block, dtype = size
    launch, programs = traces[("online", *size)]
    assert_moved(programs, launch, softmax_counts.online(cols, block), dtype)


@pytest.mark.parametrize("size", FUSED, ids=str)
def test_fused_softmax_moves_the_bytes_that_the_figure_counts(traces, size):
    _, cols, tile, dtype = size
    launch, programs = traces[("fused", *size)]
    assert_moved(programs, launch, softmax_counts.fused(cols, tile), dtype)


def assert_moved(programs, launch, moves, dtype):
    """Every program loads and stores what the moves of a row add up to."""
    item_bytes = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    total, programs = softmax_counts.totals(moves), list(programs)
    assert programs
    for program in programs:
        moved = bytes_moved(program, launch)
        assert moved == {"load": item_bytes * total["read"], "store": item_bytes * total["written"]}


class Moved(TorchDispatchMode):
    """Counts the elements that each operation of PyTorch takes and gives."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        self.read += sum(one.numel() for one in args if isinstance(one, torch.Tensor))
        self.written += found.numel()
        self.calls += 1
        return found

    read = written = calls = 0


@pytest.mark.parametrize(("cols", "block"), [(10, 4), (8, 8), (1000, 1024)])
def test_naive_softmax_moves_what_five_operations_of_pytorch_take_and_give(cols, block):
    x = torch.randn(3, cols)
    with Moved() as moved:
        m = torch.amax(x, dim=1, keepdim=True)
        z = torch.sub(x, m)
        e = torch.exp(z)
        d = torch.sum(e, dim=1, keepdim=True)
        y = torch.div(e, d)
    torch.testing.assert_close(y, x.softmax(dim=1))
    assert moved.calls == len(softmax_counts.OPERATIONS)
    total = softmax_counts.totals(softmax_counts.naive(cols, block))
    assert (moved.read, moved.written) == (3 * total["read"], 3 * total["written"])


@pytest.mark.parametrize("dtype", softmax_traffic.DTYPES)
@pytest.mark.parametrize("cols", softmax_traffic.COLS)
def test_fused_softmax_moves_the_least_that_lab_2_counts(cols, dtype):
    total = softmax_counts.totals(softmax_counts.fused(cols, 1024))
    moved = softmax_traffic.ROWS * softmax_traffic.DTYPES[dtype] * (total["read"] + total["written"])
    assert moved == softmax_traffic.least_bytes(softmax_traffic.ROWS, cols, dtype)


@pytest.mark.parametrize("count", [softmax_counts.naive, softmax_counts.fused, softmax_counts.online])
def test_the_block_changes_what_is_held_and_never_what_is_moved(count):
    small, large = (softmax_counts.totals(count(1000, block)) for block in (64, 1024))
    assert all(small[name] == large[name] for name in ("read", "written", "on_chip"))
    assert (small["held"] < large["held"]) == (count is not softmax_counts.fused)


def test_five_operations_on_chip_and_fused_ones_are_the_same_arithmetic():
    naive, fused = (
        softmax_counts.totals(count(1000, 256)) for count in (softmax_counts.naive, softmax_counts.fused)
    )
    assert naive["on_chip"] == fused["on_chip"] == softmax_counts.ARITHMETIC * 1000


@pytest.fixture(scope="module")
def cases():
    return program_life.compute()["cases"]


def test_the_last_program_of_an_uneven_vector_is_masked(cases):
    (seven,) = (one for one in cases if one["size"] == "n = 7, BLOCK = 4")
    assert len(seven["programs"]) == 2
    accesses = [access for step in seven["programs"][1] for access in step["accesses"]]
    assert [one["kind"] for one in accesses] == ["load", "load", "store"]
    for access in accesses:
        assert access["offsets"] == (4, 5, 6, 7)
        assert access["bytes"] == [16, 20, 24, 28]
        assert access["mask"] == (True, True, True, False)
    assert accesses[2]["values"][:3] == ["55", "66", "77"]


def test_programs_of_a_case_store_every_element_once(cases):
    for case in cases:
        stored = [
            (access["buffer"], offset)
            for program in case["programs"]
            for step in program
            for access in step["accesses"]
            if access["kind"] == "store"
            for offset, there in zip(access["offsets"], access["mask"], strict=True)
            if there
        ]
        (buffer,) = {name for name, _ in stored}
        one = case["buffers"][0]
        elements = [row * one["stride"] + col for row in range(one["rows"]) for col in range(one["cols"])]
        assert sorted(stored) == [(buffer, element) for element in elements]


def test_two_bytes_an_element_halve_the_addresses(cases):
    sizes = {one["size"]: one for one in cases}
    wide, narrow = sizes["n = 10, BLOCK = 4"], sizes["n = 10, BLOCK = 4, fp16"]
    first = [case["programs"][1][3]["accesses"][0]["bytes"] for case in (wide, narrow)]
    assert first == [[16, 20, 24, 28], [8, 10, 12, 14]]


def test_every_step_shows_lines_of_the_file_as_it_is(cases):
    checked = 0
    for case in cases:
        text = (catalog.ROOT / case["file"]).read_text("utf-8").splitlines()
        shown = {line["number"]: line["text"] for line in case["code"]}
        assert all(text[number - 1] == line for number, line in shown.items())
        for program in case["programs"]:
            for step in program:
                assert set(step["lines"]) <= set(shown)
                checked += 1
    assert checked > 50


def test_the_kernel_computes_what_the_lab_asks_for_while_it_is_watched(cases):
    (case,) = (one for one in cases if one["size"].startswith("2 by 5"))
    x = [float(one) for one in case["buffers"][0]["values"]]
    for row, program in enumerate(case["programs"]):
        (stored,) = (one for step in program for one in step["accesses"] if one["kind"] == "store")
        expected = torch.tensor(x[row * 5 : row * 5 + 5]).softmax(dim=0)
        assert stored["values"][:5] == [program_words.shown(one.item()) for one in expected]


def test_lines_of_one_call_are_one_step():
    known = statements(SOFTMAX, "online_softmax_kernel")
    (load, *_) = (one for one in known if one.phases == ("mask", "load"))
    assert load.last > load.first
    steps = [Step(load.first, (), {}), Step(load.last, (LOADED,), {}), Step(load.first, (), {"x": [1.0]})]
    ((statement, joined),) = by_statement(steps, known)
    assert statement is load
    assert (joined.line, joined.accesses, joined.changed) == (load.first, (LOADED,), {"x": [1.0]})


def test_statements_are_told_by_what_they_do():
    phases = [one.phases for one in statements(ADD, "elementwise_add_kernel")]
    assert phases == [
        ("pointers",), ("pointers",), ("mask",), ("load",), ("load",), ("compute", "store"),
    ]  # fmt: skip
    assert all("TODO" not in text for _, text in lines(ADD, "elementwise_add_kernel"))
    with pytest.raises(ValueError, match="does not define add_kernel"):
        statements(ADD, "add_kernel")


def test_a_load_in_words_names_elements_bytes_and_the_lane_that_is_off():
    (_, _, _, load, *_) = statements(ADD, "elementwise_add_kernel")
    access = {
        "kind": "load", "buffer": "x_ptr", "offsets": (4, 5, 6, 7), "bytes": [16, 20, 24, 28],
        "item_bytes": 4, "mask": (True, True, True, False), "values": ["5", "6", "7", "0"], "other": False,
    }  # fmt: skip
    assert program_words.of_step(load, [access], {}) == (
        f"Line {load.first} loads 3 of 4 lanes: elements 4 to 6, bytes 16 to 27 after x_ptr."
        " Lane 3 is masked off and holds no defined value."
    )
    assert program_words.of_step(load, [{**access, "other": True}], {}).endswith("holds 0.")
    nothing = {**access, "mask": (False,) * 4}
    assert program_words.of_step(load, [nothing], {}).endswith("loads nothing: all 4 lanes are masked off.")


@pytest.mark.slow
def test_a_kernel_that_fails_says_why():
    launch = Launch(program_cases.ADD, "no_such_kernel", 1, {"x_ptr": Buffer((1.0,))})
    with pytest.raises(RuntimeError, match="no_such_kernel"):
        trace([launch])


def test_a_type_that_the_interpreter_computes_wrong_is_refused():
    with pytest.raises(ValueError, match="float32 and float16"):
        Buffer((1.0,), "bfloat16")
