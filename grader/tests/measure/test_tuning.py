"""`python -m grader tuning`: the configs it times, what it tells of each, its record and its table.

The autotuner is a stand-in and the clock is the host's: all numbers are synthetic.
"""

import hashlib
import json
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from grader.cli import measure as cli_measure
from grader.cli.main import main
from grader.codegen import ptx
from grader.measure.bench import configs as tuned
from grader.measure.bench import rounds, tuning, tuning_child
from grader.measure.bench.run import load, op_named
from grader.system.gpu import Gpu
from grader.tests.helpers.course import ROOT
from grader.tests.helpers.make_words import handed_on
from grader.tests.measure.host_clock import HostClock

CARD = Gpu("synthetic GPU", "1.0", "tuning-test", 90, 2**30, 4e12, 1e15, 1000)
SIZE = "m=64,n=48,k=32"
BOTH = ("--op", "matmul", "--size", SIZE)
FILE = '''
import torch

class Config:
    def __init__(self, m, n, k, stages, warps):
        self.kwargs = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}
        self.num_stages, self.num_warps, self.pre_hook = stages, warps, None

class Refused(Exception):
    name, required = "shared memory", 262144

class Kernel:
    """A JIT function of one line of PTX."""
    def run(self, a, b, c, BLOCK_M, **options):
        if BLOCK_M == 256:
            raise Refused("out of resource: shared memory")
        c.copy_(torch.mm(a.float(), b.float()).to(c.dtype))
        made = type("Made", (), {"n_regs": BLOCK_M, "n_spills": 2, "asm": {"ptx": PTX}})()
        made.metadata = type("Meta", (), {"shared": 512 * BLOCK_M})()
        return made

class Tuner:
    """Takes the last of its configs, and remembers."""
    def __init__(self, configs):
        self.configs, self.cache, self.fn, self.best_config = configs, {}, Kernel(), None
        self.configs_timings = {}
    def __call__(self, a, b, c):
        if len(self.configs) > 1:
            if "seen" not in self.cache:
                self.configs_timings = {config: [1.0] for config in self.configs[1:]}
                self.cache["seen"] = self.configs[-1]
            config = self.cache["seen"]
        else:
            config = self.configs[0]
        self.best_config = config
        self.fn.run(a, b, c, num_warps=config.num_warps, **config.kwargs)

PTX = "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%f1};\\ncp.async.cg.shared.global [%r1];\\n"
matmul_kernel = Tuner([Config(128, 256, 64, 3, 8), Config(256, 64, 64, 4, 4), Config(64, 64, 32, 4, 4)])
# BONUS 1: another kernel (about 2 lines)
other_kernel = Tuner([Config(64, 128, 64, 3, 4), Config(64, 64, 64, 3, 4)])
# END BONUS 1

def matmul(a, b, *, out=None):
    # BONUS 2: its launch (about 2 lines)
    other_kernel(a, b, out)
    return out
    # END BONUS 2
    matmul_kernel(a, b, out)
    return out
'''


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "lab3_autotuned_matmul"
    folder.mkdir()
    path = folder / "autotuned_matmul.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def tune(monkeypatch, tmp_path, file):
    """Runs the command; its processes run here, on the CPU."""
    plan = rounds.Plan(rounds=3, block_us=1.0, working_set=1)
    monkeypatch.setattr(tuning_child, "PLAN", plan)
    monkeypatch.setattr(rounds, "WARM_US", 1.0)
    monkeypatch.setattr(cli_measure, "find", lambda: (CARD, ""))
    asked = []

    def messages(arguments):
        asked.append(arguments)
        words = dict(zip(arguments[1::2], arguments[2::2], strict=False))
        size = [tuning_child_size(word) for word in arguments if word.startswith("m=")]
        op = tuning.op_beside_library(op_named(words["--op"]))
        source = type(file)(arguments[arguments.index("--file") + 1])
        told = []
        monkeypatch.setattr(tuning_child, "say", lambda one: told.append(json.loads(json.dumps(one))))
        tuning_child.measure(op, source, size, "--wide" in arguments, "cpu", HostClock())
        return told

    monkeypatch.setattr(tuning, "messages", messages)

    def run(*words):
        folder = tmp_path / "results"
        arguments = ["tuning", *map(str, words), "--from", str(tmp_path), "--results", str(folder)]
        monkeypatch.setattr(sys, "argv", ["grader", *arguments])
        done = CliRunner().invoke(main, arguments)
        path = folder / "tuning.json"
        return done, path.is_file() and tuning.TuningRecord.read(path)

    run.asked = asked
    return run


def tuning_child_size(text):
    return {side: int(value) for side, _, value in (word.partition("=") for word in text.split(","))}


def test_each_part_of_a_file_has_its_own_kernel_measured(tune, file):
    done, record = tune(*BOTH)
    assert done.exit_code == 0, done.output
    assert [(one.kernel, one.part) for one in record.kernels] == [
        ("other_kernel", ""), ("matmul_kernel", tuning.NO_BONUS),
    ]  # fmt: skip
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert {(one.file, one.file_sha256) for one in record.kernels} == {
        ("lab3_autotuned_matmul/autotuned_matmul.py", digest)
    }
    assert (
        record.command
        == f"python -m grader tuning --op matmul --size {SIZE} --from {file.parent.parent.name}"
    )


def test_every_config_of_the_list_is_timed_beside_the_library(tune):
    _, record = tune(*BOTH)
    one = record.kernels[1]
    assert [config.name for config in one.configs] == [
        "128x256x64, 8 warps, 3 stages", "256x64x64, 4 warps, 4 stages", "64x64x32, 4 warps, 4 stages",
    ]  # fmt: skip
    (size,) = one.sizes
    assert size.times.size == {"m": 64, "n": 48, "k": 32}
    for name in ("128x256x64, 8 warps, 3 stages", "64x64x32, 4 warps, 4 stages", "torch.mm NN"):
        arm = size.times.arms[name]
        assert arm.status == "ok", arm.reason
        assert min(arm.median_us, arm.rate, *arm.interval) > 0
        assert len(arm.rounds_us[0]) == 3


def test_what_the_autotuner_took_and_tried_is_that_of_an_ordinary_call(tune):
    _, record = tune(*BOTH)
    (size,) = record.kernels[1].sizes
    assert size.picked == "64x64x32, 4 warps, 4 stages"
    assert size.tried == ["256x64x64, 4 warps, 4 stages", "64x64x32, 4 warps, 4 stages"]


def test_a_config_that_cannot_run_says_why_and_is_not_timed(tune):
    _, record = tune(*BOTH)
    one = record.kernels[1]
    refused = one.configs[1]
    assert "out of resource" in refused.error
    assert (refused.shared_bytes, refused.registers) == (262144, None)
    assert refused.name not in one.sizes[0].times.arms


def test_what_a_config_compiled_to_is_recorded(tune):
    _, record = tune(*BOTH)
    first = record.kernels[1].configs[0]
    assert (first.registers, first.spill_bytes, first.shared_bytes) == (128, 8, 65536)
    assert (first.ptx, first.instruction) == ({"wgmma": 1, "cp.async": 1}, "m64n256k16")


def test_a_wider_search_keeps_the_list_and_marks_what_it_adds(tune):
    _, record = tune(*BOTH, "--wide")
    for one, listed in zip(record.kernels, (2, 3), strict=True):
        assert [config.own for config in one.configs][:listed] == [True] * listed
        added = [config for config in one.configs if not config.own]
        assert added
        assert {config.constants["GROUP_M"] for config in added} == {8}
        assert len({config.name for config in one.configs}) == len(one.configs)


def test_the_list_is_whole_again_after_one_config_ran_alone(file):
    kernel = load(file).matmul_kernel
    before = list(kernel.configs)
    with tuned.alone(kernel, before[0]):
        assert kernel.configs == before[:1]
    assert kernel.configs == before


def test_no_config_of_a_wider_search_has_more_sums_than_a_thread_can_hold(file):
    found = tuned.wider(load(file).matmul_kernel.configs)
    sums = [c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"] / (32 * c.num_warps) for c in found]
    assert max(sums) == tuned.MOST_SUMS
    with pytest.raises(ValueError, match="BLOCK_M, BLOCK_N, BLOCK_K"):
        tuned.wider([SimpleNamespace(kwargs={"BLOCK": 64}, num_warps=4, num_stages=3)])


def test_the_table_marks_the_autotuners_choice(tune):
    done, record = tune(*BOTH)
    arms = record.kernels[1].sizes[0].times.arms
    rate = f"{arms['64x64x32, 4 warps, 4 stages'].rate:,.0f}"
    assert f"| 64x64x32, 4 warps, 4 stages | 64 | **{rate}** |" in done.output
    assert "| 256x64x64, 4 warps, 4 stages | - | - |" in done.output


def test_only_products_are_measured_config_by_config(tune):
    done, record = tune("--op", "elementwise_add")
    assert (done.exit_code, record) == (2, False)
    assert "only matrix products" in done.output
    done, _ = tune("--op", "matmul", "--size", "n=64")
    assert (done.exit_code, tune.asked) == (2, [])


def test_a_process_that_dies_leaves_its_words_in_the_record(tune, monkeypatch):
    monkeypatch.setattr(tuning, "messages", lambda _: iter([{"trouble": "exited with code 1: no"}]))
    done, record = tune(*BOTH)
    assert done.exit_code == 3
    assert [one.troubles for one in record.kernels] == [["exited with code 1: no"]] * 2


def test_without_a_gpu_the_command_says_so(tune, monkeypatch):
    monkeypatch.setattr(cli_measure, "find", lambda: (None, "no driver here"))
    done, record = tune(*BOTH)
    assert (done.exit_code, record) == (3, False)
    assert "no driver here" in done.output


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%r1}", "wgmma"),
        ("wgmma.wait_group.sync.aligned 1;", "wgmma wait"),
        (
            "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1]",
            "TMA load",
        ),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1]", "TMA store"),
        ("@%p3 mbarrier.init.shared::cta.b64 [%r1], 1;", "mbarrier"),
        ("cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;", "cp.async"),
        ("cp.async.commit_group;", "cp.async"),
        ("@%p1 st.global.v4.b32 [ %rd5 + 0 ], { %r1 };", "st.global"),
        ("add.s32 %r1, %r2, %r3;", None),
    ],
)
def test_a_line_of_ptx_has_its_family(line, name):
    found = ptx.family(line)
    assert (found and found[0]) == name


def test_a_text_without_tensor_cores_has_no_shape():
    assert ptx.shape("fma.rn.f32 %f1, %f2, %f3, %f4;") == ""


def test_make_hands_operation_sizes_and_width_on():
    given = {"OP": "matmul", "SIZE": "n=1 n=2", "WIDE": "1", "FILE": "a.py", "FROM": "solutions"}
    words, _ = handed_on(ROOT, "tuning", given)
    assert " ".join(words) == (
        "grader tuning --op matmul --size n=1 --size n=2 --wide --file a.py --from solutions"
    )
