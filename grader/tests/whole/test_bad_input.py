"""Submissions that are broken, hostile or wrong in one place: each gets its verdict, the rest is graded."""

import json
import shutil
import struct
from dataclasses import replace
from textwrap import dedent, indent

import pytest

from grader.course import catalog
from grader.course.items import CODEGEN, graded_items
from grader.course.spec import Verdict
from grader.judge import correctness
from grader.judge.run import Run
from grader.report.terminal import explain
from grader.tests.helpers.commands import grade, python
from grader.tests.helpers.course import ROOT, copy_course, solution, swap
from grader.tests.helpers.submission_texts import ADD7, ADD129, function
from grader.worker import submission_worker
from grader.worker.protocol import HEADER, MAGIC, VERSION, Kind

SPIKES, CANCELLING = (f"elementwise_add/n=4099,values={name},fp32" for name in ("spikes", "cancelling"))
KERNEL_ADD = "tl.store(out_ptr + offs, x + y, mask=mask)"
OTHER = ', other=-float("inf")'
FIND_CHANNEL = dedent("""\
    import os, pickle, struct, sys, time, torch
    for fd in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                CHANNEL = fd
        except OSError:
            pass
    def send(kind, block, body):
        os.write(CHANNEL, struct.pack("<4sBBHII", b"TGRD", 1, kind, 0, block, len(body)) + body)
    """)
GO = 3  # the block of the first call: 0 is the set-up, 1 the import, 2 the announcement


def header(length: int, magic: bytes = b"TGRD") -> bytes:
    """Of a frame that claims success for the first call."""
    return struct.pack("<4sBBHII", magic, 1, 16, 0, GO, length)


def forged(body: str) -> str:
    return function(body, FIND_CHANNEL)


def only(outcomes: dict):
    (outcome,) = outcomes.values()
    return outcome


def message(submissions, outcomes: dict) -> str:
    (item,) = submissions.asked.values()
    return "\n".join(explain(item, only(outcomes)))


# -- files that cannot run

FILES = {
    "a missing file": (None, "NOT_STARTED", "elementwise_add.py is missing"),
    "an empty file": ("", "NOT_STARTED", "elementwise_add.py is empty"),
    "a file of blanks": ("\n \n", "NOT_STARTED", "elementwise_add.py is empty"),
    "a file in latin-1": (b"# caf\xe9\n", "COMPILE_ERROR", "not UTF-8"),
    "a file with zero bytes": ("x = '\0'\n", "COMPILE_ERROR", "null bytes"),
    "a syntax error": ("x = 1\n\ndef f(:\n", "COMPILE_ERROR", "SyntaxError"),
    "half a merge": ("<<<<<<< HEAD\nx = 1\n", "COMPILE_ERROR", "SyntaxError"),
    "an expression without end": ("-" * 50000 + "1\n", "COMPILE_ERROR", ""),
    "a chain without end": ("a" + ".a" * 100000 + "\n", "COMPILE_ERROR", ""),
    "a missing module": ("import nothing_of_that_name\n", "COMPILE_ERROR", "nothing_of_that_name"),
    "an error at import": ("import torch\n1 / 0\n", "COMPILE_ERROR", "ZeroDivisionError"),
    "a missing function": (
        "def add(x, y, *, out):\n    return x\n",
        "COMPILE_ERROR",
        "no function elementwise_add",
    ),
    "a function that is a number": ("elementwise_add = 3\n", "COMPILE_ERROR", "no function elementwise_add"),
    "no out": ("def elementwise_add(x, y):\n    return x\n", "COMPILE_ERROR", "'out'"),
    "one argument": ("def elementwise_add(x, *, out):\n    return x\n", "COMPILE_ERROR", "positional"),
    "one more argument": ("def elementwise_add(x, y, z, *, out):\n    return x\n", "COMPILE_ERROR", "'z'"),
    "one more keyword": ("def elementwise_add(x, y, *, out, n):\n    return x\n", "COMPILE_ERROR", "'n'"),
    "sys.exit at import": ("import sys\nsys.exit(0)\n", "CRASHED", "sys.exit(0)"),
    "os._exit at import": ("import os\nos._exit(0)\n", "CRASHED", "exit code 0"),
    "a body of pass": ("def elementwise_add(x, y, *, out=None):\n    pass\n", "NOT_STARTED", ""),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_run_gets_one_clear_line(submissions, name):
    text, verdict, words = FILES[name]
    outcomes = submissions.grade(1, text, ADD7)
    outcome = only(outcomes)
    assert (outcome.verdict.value, outcome.share) == (verdict, 0.0)
    assert words in outcome.where
    assert len(outcome.where.splitlines()) <= 1
    assert "Traceback" not in message(submissions, outcomes)


def test_a_syntax_error_names_its_line(submissions):
    outcomes = submissions.grade(1, "x = 1\n\ndef f(:\n", ADD7)
    assert only(outcomes).frames[0].line == 3
    assert "elementwise_add.py:3  def f(:" in message(submissions, outcomes)


def test_a_file_with_bom_and_crlf_is_graded_like_any_other(submissions):
    text = b"\xef\xbb\xbf" + solution(1).replace("\n", "\r\n").encode()
    assert only(submissions.grade(1, text, ADD129)).verdict is Verdict.PASS


@pytest.mark.filterwarnings("error")
def test_a_file_that_python_warns_of_is_graded_where_warnings_are_errors(submissions):
    text = swap(solution(1), '"""Add two vectors', '"""Add \\d two vectors')
    assert only(submissions.grade(1, text, ADD7)).verdict is Verdict.PASS


def test_a_placeholder_that_a_kernel_still_holds_is_not_started_and_named(submissions):
    text = swap(solution(1), KERNEL_ADD, 'tl.static_assert(False, "TODO 2: load both blocks")')
    line = 1 + text.split("\n").index('    tl.static_assert(False, "TODO 2: load both blocks")')
    outcomes = submissions.grade(1, text, ADD7)
    said = message(submissions, outcomes)
    assert only(outcomes).verdict is Verdict.NOT_STARTED
    assert f"elementwise_add.py:{line}" in said
    assert "TODO 2: load both blocks" in said
    assert "AssertionError" not in said


def test_a_function_that_raises_not_implemented_is_not_started(submissions):
    outcome = only(
        submissions.grade(1, function("if x.numel():\n    raise NotImplementedError('later')"), ADD7)
    )
    assert (outcome.verdict, outcome.where) == (Verdict.NOT_STARTED, "later")


# -- calls that do not come back

CALLS = {
    "an exception": ("raise ValueError('no luck')", "CRASHED", "", "ValueError: no luck"),
    "an exception that cannot be shown": (
        "class Sly(Exception):\n    def __str__(self):\n        raise self\nraise Sly",
        "CRASHED",
        "",
        "",
    ),
    "sys.exit": ("sys.exit(0)", "CRASHED", "", "sys.exit(0)"),
    "sys.exit of a bool": ("sys.exit(True)", "CRASHED", "", "sys.exit(True)"),
    "os._exit": ("os._exit(0)", "CRASHED", "", "exit code 0"),
    "os._exit after PASS": ("print('PASS 100/100', flush=True)\nos._exit(0)", "CRASHED", "", "exit code 0"),
    "a segfault": ("ctypes.string_at(0)", "CRASHED", "", "SIGSEGV"),
    "an abort": ("os.abort()", "CRASHED", "", "SIGABRT"),
    "a kill of itself": ("os.kill(os.getpid(), 9)", "CRASHED", "", "SIGKILL"),
    "recursion without end": ("elementwise_add(x, y, out=out)", "CRASHED", "", "RecursionError"),
    "MemoryError": ("raise MemoryError", "OUT_OF_MEMORY", "HOST", "MemoryError"),
    "too much memory": ("bytearray(1 << 60)", "OUT_OF_MEMORY", "HOST", "MemoryError"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "CRASHED", "", "KeyboardInterrupt"),
    "a keyboard that is not there": ("input()", "CRASHED", "", "EOFError"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_does_not_come_back_costs_its_case_alone(submissions, name):
    body, verdict, reason, words = CALLS[name]
    text = function(f"if x.numel() == 7:\n{indent(body, '    ')}\nadd(x, y, out)")
    bad, good = submissions.grade(1, text, ADD7, ADD129).values()
    assert (bad.verdict.value, bad.reason, bad.share) == (verdict, reason, 0.0)
    assert words in bad.where
    assert len(bad.where.splitlines()) <= 1
    assert (good.verdict, good.share) == (Verdict.PASS, 1.0)


RAISING = {
    "in host code": function("if x.numel() == 7:\n    raise ValueError\nadd(x, y, out)"),
    "in a kernel": swap(solution(1), KERNEL_ADD, f"if n == 7:\n        x = x.stoer()\n    {KERNEL_ADD}"),
}


@pytest.mark.parametrize("text", RAISING.values(), ids=RAISING)
def test_a_call_that_raises_leaves_its_process_to_the_next_case_on_the_cpu_tier(
    submissions, monkeypatch, text
):
    parent, begun = submissions.run.session.parent(interpreted=True), []
    fork = parent.fork
    monkeypatch.setattr(parent, "fork", lambda *asked: begun.append(asked) or fork(*asked))
    bad, good = submissions.grade(1, text, ADD7, ADD129).values()
    assert (bad.verdict, good.verdict) == (Verdict.CRASHED, Verdict.PASS)
    assert len(begun) == 1


def test_an_exception_shows_the_line_of_the_file_and_no_frame_of_ours(submissions):
    outcomes = submissions.grade(1, function("raise ValueError('no luck')"), ADD7)
    assert [frame.line for frame in only(outcomes).frames] == [3]
    said = message(submissions, outcomes)
    assert "elementwise_add.py:3  raise ValueError('no luck')" in said
    assert "worker.py" not in said


@pytest.mark.parametrize("body", ["while True:\n    pass", "time.sleep(600)", "os.read(os.pipe()[0], 1)"])
def test_a_call_without_end_is_stopped_at_its_limit(submissions, body):
    text = function(f"if x.numel() == 7:\n{indent(body, '    ')}\nadd(x, y, out)")
    bad, good = submissions.grade(1, text, ADD7, ADD129, limit_s=0.5).values()
    assert (bad.verdict, bad.where) == (Verdict.TIMEOUT, "stopped at the time limit of 0.5 s")
    assert good.verdict is Verdict.PASS


def test_an_import_without_end_is_stopped_once_for_all_cases(submissions, monkeypatch):
    monkeypatch.setattr(submission_worker, "LOAD_LIMIT_S", 0.5)
    outcomes = submissions.grade(1, "while True:\n    pass\n", ADD7, ADD129)
    assert {outcome.verdict for outcome in outcomes.values()} == {Verdict.TIMEOUT}


KERNELS = {
    "a failed static_assert": (
        KERNEL_ADD,
        f'tl.static_assert(BLOCK < 0, "too wide")\n    {KERNEL_ADD}',
        "too wide",
    ),
    "a block of 1000": ("tl.arange(0, BLOCK)", "tl.arange(0, 1000)", "power of 2"),
    "a name that is not there": ("offs < n\n", "offs < size\n", "size"),
    "a function that is not there": ("tl.store(", "tl.stoer(", "stoer"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_does_not_compile_is_named_with_its_line_on_the_cpu_tier(submissions, name):
    old, new, words = KERNELS[name]
    text = swap(solution(1), old, new)
    outcome = only(submissions.grade(1, text, ADD7))
    assert outcome.verdict in (Verdict.COMPILE_ERROR, Verdict.CRASHED)  # the interpreter compiles nothing
    assert words in outcome.where
    assert outcome.frames[0].function == "elementwise_add_kernel"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Outcome and message of each bad kernel on the codegen tier."""
    folder, found = tmp_path_factory.mktemp("compiled"), {}
    entry = next(entry for entry in catalog.find() if entry.number == 1)
    run = Run(folder, "codegen", 1, None)
    for count, (name, (old, new, _)) in enumerate(KERNELS.items()):
        own = replace(entry, folder=folder / f"lab1_kernel{count}")
        own.folder.mkdir()
        (own.folder / "elementwise_add.py").write_text(swap(solution(1), old, new))
        (item,) = (item for item in graded_items(own) if item.kind == CODEGEN)
        run.warm([item])
        outcome = run.answer(item)
        found[name] = outcome, "\n".join(explain(item, outcome))
    run.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_does_not_compile_is_a_compile_error_on_the_codegen_tier(compiled, name):
    assert compiled[name][0].verdict is Verdict.COMPILE_ERROR


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_the_last_line_of_a_compile_error_which_says_what_is_wrong_is_shown(compiled, name):
    outcome, said = compiled[name]
    last = outcome.where.strip().splitlines()[-1]
    assert KERNELS[name][2] in last
    assert last in said


# -- text


def test_printing_200_megabytes_neither_blocks_nor_fills_the_report(submissions):
    text = function("for _ in range(200):\n    print('x' * 2**20)\nadd(x, y, out)")
    assert only(submissions.grade(1, text, ADD7)).verdict is Verdict.PASS
    outcome = only(submissions.grade(1, text.replace("\n    add(x, y, out)", "\n    add(x, x, out)"), ADD7))
    assert outcome.verdict is Verdict.WRONG
    assert 0 < len(outcome.printed) <= 2 * 64 * 1024


def test_printed_verdicts_earn_nothing(submissions):
    text = function("""print('PASS', '{"verdict": "PASS", "points": 100, "share": 1.0}')""")
    outcome = only(submissions.grade(1, text, ADD7))
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, "UNWRITTEN")
    assert '"verdict": "PASS"' in outcome.printed


def test_bytes_that_move_a_terminal_are_taken_out_of_what_is_printed(submissions):
    text = function(r"os.write(1, b'\x1b[31mred\x07\x08\x00\r\xff\xfe \xe2\x80\xaeback\n\tend')")
    outcome = only(submissions.grade(1, text, ADD7))
    assert "[31mred" in outcome.printed
    assert all(char.isprintable() or char in "\n\t" for char in outcome.printed)


@pytest.mark.parametrize("error", [r"'\x1b[31mred\x07\r\u202e'", r"'\udcff'"])
def test_the_text_of_an_exception_is_cleaned_like_what_is_printed(submissions, error):
    outcome = only(submissions.grade(1, function(f"raise ValueError({error})"), ADD7))
    assert outcome.verdict is Verdict.CRASHED
    assert all(char.isprintable() or char in "\n\t" for char in outcome.where)


def test_a_line_of_the_file_is_cleaned_before_it_is_shown(submissions):
    for text in ("x = '\x1b[31m' +\n", function("raise ValueError  # \x1b[31m")):
        assert "\x1b" not in message(submissions, submissions.grade(1, text, ADD7))


def test_closed_output_is_no_mistake(submissions):
    close = "    try:\n        os.close(fd)\n    except OSError:\n        pass\n"
    body = f"for fd in (0, 1, 2):\n{close}add(x, y, out)"
    assert only(submissions.grade(1, function(body), ADD7)).verdict is Verdict.PASS


def test_what_a_file_printed_before_it_raised_is_shown(submissions):
    outcome = only(submissions.grade(1, function("print('n is', x.numel())\nraise ValueError"), ADD7))
    assert "n is 7" in outcome.printed


# -- forged frames


def test_the_frames_forged_here_are_those_of_the_protocol():
    assert HEADER.format == "<4sBBHII"
    assert (MAGIC, VERSION, Kind.DONE, Kind.FAILED) == (b"TGRD", 1, 16, 17)


FRAMES = {
    "garbage": "os.write(CHANNEL, b'PASS' * 100)",
    "a wrong magic": f"os.write(CHANNEL, {header(2, b'XXXX') + b'{}'!r})",
    "an unknown kind": f"send(99, {GO}, b'{{}}')",
    "a frame of the judge": f"send(3, {GO}, b'{{}}')",
    "another block": "send(16, 77, b'{}')",
    "a length beyond 64 KiB": f"os.write(CHANNEL, {header(1 << 31)!r})",
    "two answers": f"os.write(CHANNEL, 2 * {header(2) + b'{}'!r})",
    "half a frame": f"os.write(CHANNEL, {header(100) + b'{'!r})\nos._exit(0)",
    "a list": f"send(16, {GO}, b'[]')",
    "no JSON": f"send(16, {GO}, b'{{')",
    "no UTF-8": f"send(16, {GO}, b'\\xff\\xfe')",
    "NaN": f"""send(16, {GO}, b'{{"claimed_us": NaN}}')""",
    "nesting without end": f"send(16, {GO}, b'[' * 60000)",
    "a number of 5,000 digits": f"""send(16, {GO}, b'{{"claimed_us": ' + b'1' * 5000 + b'}}')\nos._exit(0)""",
    "frames that are a number": f"""send(17, {GO}, b'{{"frames": 3}}')\nos._exit(0)""",
    "frames that are null": f"""send(17, {GO}, b'{{"frames": null}}')\nos._exit(0)""",
    "a failure without a word": f"send(17, {GO}, b'{{}}')\nos._exit(0)",
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_forged_frame_ends_its_worker_and_nothing_else(submissions, name):
    text = forged(f"if x.numel() == 7:\n{indent(FRAMES[name], '    ')}\nadd(x, y, out)")
    bad, good = submissions.grade(1, text, ADD7, ADD129).values()
    assert bad.verdict is Verdict.CRASHED
    assert good.verdict is Verdict.PASS


def test_a_forged_success_earns_nothing(submissions):
    outcome = only(submissions.grade(1, forged(f"send(16, {GO}, b'{{}}')\ntime.sleep(60)"), ADD7, limit_s=5))
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, "UNWRITTEN")


def test_a_hostile_pickle_is_never_loaded(submissions, tmp_path):
    target = tmp_path / "executed"
    head = (
        f"{FIND_CHANNEL}class Evil:\n    def __reduce__(self):\n        return open, ({str(target)!r}, 'w')\n"
    )
    for body in (
        "os.write(CHANNEL, pickle.dumps(Evil()))",
        f"send(16, {GO}, pickle.dumps(Evil()))",
        f"torch.save(Evil(), 'evil')\nsend(17, {GO}, open('evil', 'rb').read())",
    ):
        outcome = only(submissions.grade(1, function(body, head), ADD7))
        assert outcome.verdict is Verdict.CRASHED
        assert "protocol" in outcome.where
    assert not target.exists()


def test_frames_of_a_forged_failure_are_data_of_one_line(submissions):
    frame = {
        "line": "1\n# Heading",
        "function": [[]],
        "code": "x\n# Heading\x1b[31m",
        "more": {"deep": [[1]]},
    }
    claim = json.dumps({"type": "Error", "text": "no", "frames": [frame]}).encode()
    body = f"send(17, {GO}, {claim!r})\nos._exit(0)"
    outcomes = submissions.grade(1, forged(body), ADD7)
    assert only(outcomes).verdict is Verdict.CRASHED
    for shown in only(outcomes).frames:
        assert isinstance(shown.line, int)
        assert all(char.isprintable() for char in shown.code + shown.function)
    assert "\n# Heading" not in message(submissions, outcomes)


# -- wrong answers

ODD, SHORT = "softmax_forward/rows=5,cols=127,fp32", "softmax_forward/rows=29,cols=1001,fp32"
LONG = "softmax_forward/rows=3,cols=16385,fp32"
EDGE = "softmax_forward/rows=7,cols=20011,values={},fp32".format
PADDED_ROWS = "softmax_forward/rows=29,cols=1001,x padded 24,out padded 7,fp32"
TAIL = "matmul/m=33,n=65,k=17,b transposed,fp32"
BIAS = "matmul_bias_relu/m=65,n=40,k=129,a transposed,b padded 8,out padded 5,fp32"
NEW_OUT = ("if out is None:\n        out = torch.empty_like(x)", "out = torch.empty_like(x)")
TWO_SWEEPS = "for start in range(0, n_cols, BLOCK):"
DOT = 'acc = tl.dot(a, b, acc, input_precision="ieee")'
DESCRIBED = "return x.dtype != torch.float32 and"  # without it, every product takes the first kernel
B_PTRS = "offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn"

WRONG = {
    "a new tensor is returned": (1, NEW_OUT, ADD7, "WRONG/UNWRITTEN", "is returned in place of `out`"),
    "the sum goes into x": (
        1,
        ("[grid](x, y, out,", "[grid](x, y, x,"),
        ADD7,
        "MUTATED_INPUT",
        "x is an input",
    ),
    "out and x are written": (
        1,
        (KERNEL_ADD, f"{KERNEL_ADD}\n    tl.store(x_ptr + offs, y, mask=mask)"),
        ADD7,
        "MUTATED_INPUT",
        "x is an input and was changed by the call",
    ),
    "the store has no mask": (1, ("x + y, mask=mask)", "x + y)"), ADD7, "OUT_OF_BOUNDS/WRITE", "no mask"),
    "the mask has <=": (1, ("offs < n", "offs <= n"), ADD7, "OUT_OF_BOUNDS/WRITE", "out_ptr[7] of 7"),
    "the store starts one early": (
        1,
        ("tl.store(out_ptr + offs", "tl.store(out_ptr - 1 + offs"),
        ADD7,
        "OUT_OF_BOUNDS/WRITE",
        "before",
    ),
    "the grid is short": (
        1,
        ("triton.cdiv(n, BLOCK)", "n // BLOCK"),
        "elementwise_add/n=65537,fp16",
        "WRONG/UNWRITTEN",
        "cdiv",
    ),
    "zeros": (
        1,
        ("out_ptr + offs, x + y", "out_ptr + offs, x - x"),
        ADD129,
        "WRONG/MISMATCH",
        "every element is 0",
    ),
    "one side": (
        1,
        ("out_ptr + offs, x + y", "out_ptr + offs, x"),
        ADD129,
        "WRONG/MISMATCH",
        "one of the two loads",
    ),
    "masked lanes load 0": (2, (OTHER, ", other=0.0"), ODD, "WRONG", "-inf, so that exp gives 0"),
    "no other at all": (2, (OTHER, ""), ODD, "WRONG", "-inf, so that exp gives 0"),
    "no loop over the row": (
        2,
        (TWO_SWEEPS, "for start in range(0, 1, BLOCK):"),
        LONG,
        "WRONG/UNWRITTEN",
        "loop",
    ),
    "the sum is not rescaled": (
        2,
        ("d = d * tl.exp(m - shift) +", "d = d +"),
        EDGE("ascending"),
        "WRONG",
        "rescaled|sum",
    ),
    "the maximum starts at 0": (
        2,
        ('m = -float("inf")', "m = 0.0"),
        EDGE("negative"),
        "WRONG/NONFINITE",
        "start it at -inf",
    ),
    "no maximum is subtracted": (
        2,
        ("m_new = tl.maximum(m, tl.max(x, axis=0))", "m_new = 0.0 * tl.max(x, axis=0)"),
        EDGE("huge"),
        "WRONG/NONFINITE",
        "subtract the maximum",
    ),
    "rows of x start at n_cols": (
        2,
        ("row * stride_x", "row * n_cols"),
        PADDED_ROWS,
        "OUT_OF_BOUNDS/READ",
        "row stride was taken to be n_cols",
    ),
    "rows of y start at n_cols": (
        2,
        ("y_row_ptr = y_ptr + row * stride_y\n    m =", "y_row_ptr = y_ptr + row * n_cols\n    m ="),
        PADDED_ROWS,
        "OUT_OF_BOUNDS/WRITE",
        "between two rows",
    ),
    "the gradient lacks its sum": (
        2,
        ("y * (dy - dot)", "y * dy"),
        "softmax_backward/rows=29,cols=1001,fp32",
        "WRONG/MISMATCH",
        "sum of y * dy",
    ),
    "the function is cut off from autograd": (
        2,
        ("return OnlineSoftmax.apply(x)", "return softmax_forward(x.detach())"),
        "softmax/rows=4,cols=129,fp32",
        "CRASHED",
        "without a gradient function",
    ),
    "sums are kept in fp16": (
        3,
        (DOT, f"{DOT}.to(tl.float16).to(tl.float32)", DESCRIBED, "return False and"),
        "matmul/m=24,n=16,k=4096,fp16",
        "WRONG/PRECISION",
        "fp32",
    ),
    "exact sums are kept in fp16": (
        3,
        (DOT, f"{DOT}.to(tl.float16).to(tl.float32)", DESCRIBED, "return False and"),
        "matmul/m=128,n=128,k=128,fp16",
        "WRONG/PRECISION",
        "fp32",
    ),
    "the tail of K is dropped": (
        3,
        ("range(0, K, BLOCK_K)", "range(0, K // BLOCK_K * BLOCK_K, BLOCK_K)"),
        "matmul/m=100,n=300,k=257,fp32",
        "WRONG/MISMATCH",
        "last, partial block of K",
    ),
    "strides of B are swapped": (
        3,
        (
            B_PTRS,
            "offs_k[:, None] * stride_bn + offs_n[None, :] * stride_bk",
            "BLOCK_K * stride_bk",
            "BLOCK_K * stride_bn",
        ),
        "matmul/m=192,n=192,k=192,fp32",
        "WRONG/MISMATCH",
        "transposed matrix",
    ),
    "the tail of K is not masked": (
        3,
        (" & (offs_k[None, :] < K - k)", ""),
        TAIL,
        "OUT_OF_BOUNDS/READ",
        "mask",
    ),
    "pointers stand still": (
        3,
        ("a_ptrs += BLOCK_K * stride_ak", "pass", "b_ptrs += BLOCK_K * stride_bk", "pass"),
        "matmul/m=192,n=192,k=192,fp32",
        "WRONG/MISMATCH",
        "advance both pointers",
    ),
    "no bias": (3, ("acc + bias[None, :]", "acc"), BIAS, "WRONG/MISMATCH", "the bias is missing"),
    "no ReLU": (
        3,
        ("tl.maximum(acc + bias[None, :], 0.0)", "acc + bias[None, :]"),
        BIAS,
        "WRONG/MISMATCH",
        "clamp",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_named(submissions, name):
    number, pairs, case, verdict, words = WRONG[name]
    outcomes = submissions.grade(number, swap(solution(number), *pairs), case)
    outcome = only(outcomes)
    found = f"{outcome.verdict.value}/{outcome.reason}".rstrip("/")
    assert found == verdict or found.startswith(f"{verdict}/")
    assert outcome.share == 0.0
    said = message(submissions, outcomes)
    assert any(part in said for part in words.split("|"))


@pytest.mark.parametrize("case", [ADD7, SHORT, PADDED_ROWS, TAIL, BIAS])
def test_the_solution_passes_where_a_wrong_answer_does_not(submissions, case):
    number = {"elementwise_add": 1, "softmax_forward": 2}.get(case.split("/")[0], 3)
    assert only(submissions.grade(number, solution(number), case)).verdict is Verdict.PASS


def test_a_result_kept_by_shape_is_stale_within_its_case(submissions):
    text = function(
        """\
        key = tuple(x.shape)
        if key not in KEPT:
            KEPT[key] = torch.empty_like(out)
            add(x, y, KEPT[key])
        out.copy_(KEPT[key])
        """
        + "# add(x, y, out)\n"
        + """\
        """,
        "import torch\nKEPT = {}\n",
    )
    (outcome,) = submissions.grade(1, text, SPIKES).values()
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, "STALE")


def test_an_answer_right_once_and_wrong_the_second_time_is_nondeterministic(submissions):
    body = "CALLS.append(1)\nadd(x, y, out)\nif len(CALLS) > 1:\n    out[0] = 7.0"
    outcome = only(submissions.grade(1, function(body, "CALLS = []\n"), ADD7))
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, "NONDETERMINISTIC")
    assert (outcome.error_map.wrong, outcome.error_map.cells) == (1, ["9000000"])


OTHER_DIGITS = """

KEPT, right = [], {0}

def {0}({1}, *, out=None):
    right({1}, out=out)
    if KEPT:
        other_kernel[(1,)](out)
    KEPT.append(1)
    return out

@triton.jit
def other_kernel(out_ptr):
    {2}
"""
IN_LAB_2 = 2, "softmax_forward/rows=5,cols=127,fp32", "softmax_forward", "x"
IN_LAB_3 = 3, "matmul/m=100,n=300,k=257,fp32", "matmul", "a, b"
ATOMIC = "tl.atomic_add(out_ptr, tl.load(out_ptr) * 2.4e-7)"
PLAIN = "tl.store(out_ptr, tl.load(out_ptr) * 1.0000005)"
ADDED = [
    (IN_LAB_3, ATOMIC, "PASS"),
    (IN_LAB_3, PLAIN, "WRONG/NONDETERMINISTIC"),
    (IN_LAB_2, ATOMIC, "WRONG/NONDETERMINISTIC"),  # where programs do not share a sum
]


@pytest.mark.parametrize(("where", "added", "label"), ADDED)
def test_only_a_sum_that_is_split_may_have_other_digits_in_another_run(
    submissions, monkeypatch, where, added, label
):
    monkeypatch.setattr(correctness, "runs", lambda *_: (0, 0, 1))  # as on a GPU
    number, case, name, given = where
    text = solution(number) + OTHER_DIGITS.format(name, given, added)
    assert only(submissions.grade(number, text, case)).label == label


# -- the command line

ZEROS = dedent("""\
    import triton
    import triton.language as tl


    @triton.jit
    def zeros_kernel(out_ptr, n, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        tl.store(out_ptr + offs, 0.0, mask=offs < n)


    def zeros(x, *, out):
        zeros_kernel[(1,)](out, out.numel(), BLOCK=1024)
    """)


def one_line(done) -> str:
    """What went to the error stream; it must be one line and no traceback."""
    assert "Traceback" not in done.stderr + done.stdout
    lines = [line for line in done.stderr.strip().splitlines() if line]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_a_results_folder_that_cannot_be_written_ends_with_3(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    for folder in (blocked, blocked / "results"):
        done = grade("--results", folder)
        assert done.returncode == 3
        assert str(folder) in one_line(done)


def test_a_gpu_that_is_not_there_ends_with_2(tmp_path):
    done = grade("--tier", "gpu", "--results", tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "--tier gpu" in one_line(done)


def test_a_lab_that_does_not_exist_ends_with_2_and_the_list_of_those_that_do(tmp_path):
    numbers = ", ".join(str(entry.number) for entry in catalog.find())
    for labs in ("77", "1,77", "first"):
        done = grade("--lab", labs, "--results", tmp_path)
        assert done.returncode == 2
        assert f"the labs are {numbers}" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_keyword_that_matches_nothing_ends_with_2(tmp_path):
    done = grade("-k", "no_such_case", "--results", tmp_path)
    assert done.returncode == 2
    assert "no_such_case" in one_line(done)


def test_a_source_that_does_not_exist_ends_with_2(tmp_path):
    done = grade("--from", tmp_path / "nowhere", "--results", tmp_path)
    assert done.returncode == 2
    assert "nowhere" in one_line(done)


def test_fewer_points_than_asked_for_end_with_1(tmp_path):
    done = grade("--lab", "1", "--min", "5", "--results", tmp_path)
    assert done.returncode == 1
    assert "below the 5 points" in done.stdout
    assert grade("--lab", "1", "--min", "0", "--results", tmp_path).returncode == 0


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A course with one lab more, whose only case would accept zeros."""
    root = copy_course(tmp_path_factory.mktemp("faulty"))
    for tree in ("labs", "solutions"):
        (root / tree / "lab8_zeros").mkdir()
    (root / "labs" / "lab8_zeros" / "lab.py").write_text(
        dedent("""\
            from grader.course.spec import Case, Exercise, Lab, Tolerance

            LAB = Lab("zeros", (Exercise(
                name="zeros", file="zeros.py", points=10, inputs=lambda rng, case: {"x": rng.normal(100)},
                reference=lambda x: (0 * x,), torch_op=lambda x: (0 * x,),
                tolerance=Tolerance(lambda case, inputs, reference: reference),
                cases=(Case({"n": 100}, bitwise=True),),
            ),))
            """)
    )
    (root / "solutions" / "lab8_zeros" / "zeros.py").write_text(ZEROS)
    return root


@pytest.mark.slow
def test_a_fault_of_the_grader_ends_with_3_and_takes_no_points(faulty):
    done = grade("--lab", "8", "--from", "solutions", "--results", faulty / "results", root=faulty)
    assert done.returncode == 3, done.stdout + done.stderr
    assert (
        "This is a problem in the grader or the machine, not in your file. No points were taken off."
        in done.stdout
    )
    found = json.loads((faulty / "results" / "results.json").read_text())
    assert (found["points"], found["graded_points"], found["not_graded_points"]) == (0, 0, 10)
    assert found["labs"][0]["exercises"][0]["items"][0]["verdict"] == "GRADER_FAULT"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import math\n\nLAB = 1 / 0\n", "lab.py:3: ZeroDivisionError"),
        ("LAB = (\n", "lab.py:1: SyntaxError"),
        ("from grader.course.spec import Lab\n\nLAB = Lab('x')\n", "lab.py:3: TypeError"),
        ("LAB = 3\n", "lab.py: defines no LAB"),
    ],
)
def test_a_lab_file_that_does_not_load_is_named_with_its_line_and_without_a_traceback(faulty, text, said):
    broken = faulty / "labs" / "lab7_broken"
    broken.mkdir(exist_ok=True)
    (broken / "lab.py").write_text(text)
    try:
        done = python("-m", "grader", "list", root=faulty)
    finally:
        shutil.rmtree(broken)
    assert done.returncode == 3
    assert f"labs/lab7_broken/{said}" in one_line(done)


@pytest.mark.nightly
def test_every_command_names_a_lab_file_that_does_not_load(faulty):
    broken = faulty / "labs" / "lab7_broken"
    broken.mkdir()
    (broken / "lab.py").write_text("LAB = 1 / 0\n")
    (faulty / "in").mkdir()
    commands = (
        ["grade", "--lab", "1"], ["todo"], ["doctor"], ["release", "out"], ["autograder", "a.zip"],
        ["class", "in", "--tier", "cpu"], ["synthetic-class", "syn", "--count", "1"], ["rescore", "in"],
    )  # fmt: skip
    try:
        for command in commands:
            done = python("-m", "grader", *command, root=faulty)
            assert "Traceback" not in done.stderr, command
    finally:
        shutil.rmtree(broken)


@pytest.mark.slow
def test_one_bad_file_leaves_the_other_labs_graded(tmp_path):
    tree = tmp_path / "tree"
    for number, text in ((1, "a" + ".a" * 100000 + "\n"), (2, solution(2)), (3, "import os\n")):
        (file,) = ROOT.glob(f"solutions/lab{number}_*/*.py")
        (tree / file.parent.name).mkdir(parents=True)
        (tree / file.parent.name / file.name).write_text(text)
    keyword = "elementwise_add and correctness or softmax_forward and fp32 and cols or matmul and correctness"
    done = grade("--from", tree, "-k", keyword, "--results", tmp_path / "results")
    assert done.returncode == 0, done.stdout + done.stderr
    one, two, three, _ = json.loads((tmp_path / "results" / "results.json").read_text())["labs"]
    verdicts = [{i["verdict"] for e in lab["exercises"] for i in e["items"]} for lab in (one, two, three)]
    assert verdicts[0] == {"COMPILE_ERROR"}
    assert verdicts[1] == {"PASS"}
    assert verdicts[2] == {"POLICY"}


def test_the_list_of_todos_survives_a_missing_and_a_broken_file(tmp_path):
    (tmp_path / "lab1_elementwise_add").mkdir()
    (tmp_path / "lab1_elementwise_add" / "elementwise_add.py").write_bytes(b"\xff\xfe def f(:")
    done = python("-m", "grader", "todo", "--from", tmp_path)
    assert done.returncode == 0
    assert "missing" in done.stdout
    assert "Traceback" not in done.stderr
