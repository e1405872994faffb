"""Rounds and checks of a speed test, in the interpreter: the code that times on a GPU, on small sizes."""

import dataclasses
import math
from types import SimpleNamespace

import pytest

from grader.course import catalog
from grader.course.items import SPEED, graded_items
from grader.course.spec import Reason, Verdict
from grader.course.submission import Submission
from grader.judge import speed, statistics, timed_outputs
from grader.judge.run import REFERENCE, Run
from grader.results.outcome import Outcome
from grader.tests.helpers.course import SEED
from grader.tests.helpers.result_fakes import a_timing
from grader.worker import gate
from grader.worker.messages import AuditReport
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import SubmissionWorker

ADD = (1, {"n": 4099})
SOFTMAX = (2, {"rows": 5, "cols": 1001})
DROPOUT = (4, {"n": 8009, "p": 0.5}, "dropout_forward")
KERNEL_ADD = "tl.store(out_ptr + offs, x + y, mask=mask)"
LAUNCH = "        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)"


@pytest.fixture
def short(monkeypatch):
    """Few rounds of small blocks, which an interpreter and a CPU take in a second."""
    monkeypatch.setattr(speed, "LEAST_CALL_US", -math.inf)
    monkeypatch.setattr(speed, "WARM_US", 0.0)
    monkeypatch.setattr(speed, "BLOCK_US", {"memory": 1.0, "arithmetic": 1.0})
    # So small a problem takes no longer than an empty block: what is left after it is noise.
    monkeypatch.setattr(speed.SpeedTest, "_overhead", lambda self, *_: self.empty_us)
    monkeypatch.setattr(speed.SpeedTest, "empty_us", 0.0, raising=False)
    monkeypatch.setattr(statistics, "MOST_ROUNDS", 12)
    monkeypatch.setattr(speed, "ATTEMPTS", 1)  # noise of two busy cores decides nothing twice, too
    monkeypatch.setattr(statistics, "INTERFERENCE", math.inf)  # on two busy cores microseconds are chance


@pytest.fixture
def fight(tmp_path, short, warm):  # noqa: ARG001 - it only changes settings
    """Runs a speed of a changed solution on the CPU: (lab and sizes, old text, new text) to an outcome."""
    arena, workers = Arena.create("cpu", 1 << 26), []

    def run(what, old="", new="", function="", counted=False):
        number, params, *name = what
        entry = next(entry for entry in catalog.find() if entry.number == number)
        exercise = next(one for one in entry.lab.exercises if one.name in name or not name)
        text = entry.submission(catalog.ROOT / "solutions", exercise).read_text("utf-8")
        assert old in text
        file = tmp_path / exercise.file
        file.write_text(text.replace(old, new) if old else text)
        case = dataclasses.replace(exercise.speed.shapes[0], params=params, dtype="fp32")
        files = (entry.lab_file if function else file, entry.lab_file)
        tuning = "chance" if "autotune" in text else "full"  # there is no clock to tune by without a GPU
        student, reference = (
            SubmissionWorker(
                warm,
                Submission.read(f),
                arena,
                interpreted=True,
                tuning=tuning,
                trusted=f == entry.lab_file,
                given=entry.given,
            )
            for f in files
        )
        workers.extend((student, reference))
        test = speed.SpeedTest(entry.lab, exercise, case, student, reference, None, function, counted)
        return test.run()

    yield run
    for worker in workers:
        worker.close()
    arena.close()


@pytest.mark.parametrize("what", [ADD, SOFTMAX], ids=["add", "softmax"])
def test_a_right_answer_is_timed_with_paired_rounds(fight, what):
    outcome = fight(what)
    assert outcome.verdict in (Verdict.PASS, Verdict.SLOW, Verdict.INCONCLUSIVE), outcome.where
    timing = outcome.timing
    assert len(timing.rounds) >= statistics.FEWEST_ROUNDS
    assert all(time > 0 for one in timing.rounds for time in (*one.reference_us, *one.student_us))
    assert timing.calls_per_block == speed.FEWEST_CALLS
    assert timing.student_us > timing.reference_us  # an interpreter against PyTorch
    assert 0 < timing.zero_at_percent < timing.passing_at_percent <= timing.full_at_percent <= 100


def test_without_the_screen_a_kernel_of_others_in_a_timed_call_earns_nothing(fight, monkeypatch):
    watch = SubmissionWorker.watch

    def as_on_a_gpu(worker, plan, limit_s, kernels_counted=False, may_call=()):
        if kernels_counted:
            return AuditReport(strangers=["vectorized_elementwise_kernel"])
        return watch(worker, plan, limit_s, may_call=may_call)

    monkeypatch.setattr(SubmissionWorker, "watch", as_on_a_gpu)
    assert fight(ADD).verdict is not Verdict.POLICY
    counted = fight(ADD, counted=True)
    assert (counted.verdict, counted.reason) == (Verdict.POLICY, Reason.FOREIGN_KERNEL)
    assert "vectorized_elementwise_kernel" in counted.where


def test_timed_calls_get_another_seed_in_each_half_of_a_round(fight, monkeypatch):
    """Random choices of an earlier call, kept on the device, are of no use then."""
    seeds, plan = [], speed.SpeedTest._plan

    def noted(test, side, k, arm):
        if side == "student":
            seeds.append(test.buffer_sets.named["seed"])
        return plan(test, side, k, arm)

    monkeypatch.setattr(speed.SpeedTest, "_plan", noted)
    rounds = fight(DROPOUT).timing.rounds
    assert len(set(seeds)) >= 2 * len(rounds)
    assert len({(seed % 16, seed.bit_length()) for seed in seeds}) == 1  # nothing is compiled anew


def test_timed_calls_on_the_same_inputs_must_give_the_same_bits(fight):
    """A file may have another kernel for the timed size, which no case has seen."""
    counted = "    globals().setdefault('calls', []).append(n_rows)\n"
    nudged = "    x = x + 1e-7 * (len(calls) * 7919 % 13)\n"
    launch = "    online_softmax_kernel[(n_rows,)]("
    outcome = fight(SOFTMAX, launch, counted + nudged + launch)
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, Reason.NONDETERMINISTIC), outcome.where
    assert "timed runs" in outcome.where


@pytest.mark.slow
def test_a_slow_answer_gets_fewer_calls_a_block_and_a_compilation_does_not_count(fight, monkeypatch):
    calls = 3 * speed.FEWEST_CALLS
    monkeypatch.setattr(speed, "BLOCK_US", {"memory": 1e9, "arithmetic": 1e9})
    monkeypatch.setattr(speed, "MOST_CALLS", calls)
    waits = "        import time\n        time.sleep({})\n"
    slow = fight(ADD, LAUNCH, waits.format("0.02") + LAUNCH)
    once = "        if not globals().setdefault('compiled', []):\n            compiled.append(1)\n    "
    compiled = fight(ADD, LAUNCH, once + waits.format("0.6").replace("\n    ", "\n        ", 1) + LAUNCH)
    assert speed.FEWEST_CALLS <= slow.timing.calls_per_block <= speed.SLOW_BLOCK_US / 1e6 / 0.02 < calls
    assert compiled.timing.calls_per_block == calls


def test_the_cost_of_an_empty_block_with_few_calls_is_not_taken_for_a_busy_gpu(fight, monkeypatch):
    monkeypatch.setattr(speed, "BLOCK_US", {"memory": 1e9, "arithmetic": 1e9})
    monkeypatch.setattr(speed, "MOST_CALLS", 3 * speed.FEWEST_CALLS)
    monkeypatch.setattr(statistics, "INTERFERENCE", 1.3)
    monkeypatch.setattr(speed.SpeedTest, "empty_us", 500.0)
    take, call_us = speed.SpeedTest._block, {"reference": 100.0, "student": speed.SLOW_BLOCK_US}

    def by_a_clock_of_ours(self, side, plan, limit_s, k=None, rests=False):
        take(self, side, plan, limit_s, k, rests)
        return self.empty_us + call_us[side] * self.buffer_sets.calls

    monkeypatch.setattr(speed.SpeedTest, "_block", by_a_clock_of_ours)
    outcome = fight(ADD)
    assert outcome.verdict is Verdict.SLOW, outcome.where
    assert outcome.timing.calls_per_block == speed.FEWEST_CALLS
    assert outcome.timing.reference_us == pytest.approx(100.0)


@pytest.mark.slow
def test_an_answer_that_is_random_is_held_to_its_own_choice(fight, monkeypatch):
    monkeypatch.setattr(
        timed_outputs, "FP64_EVERY", 2
    )  # both ways to know what is right, within a few rounds
    outcome = fight(DROPOUT)
    assert outcome.verdict in (Verdict.PASS, Verdict.SLOW, Verdict.INCONCLUSIVE), outcome.where


def test_a_random_answer_that_is_not_scaled_is_wrong(fight):
    outcome = fight(DROPOUT, "x * scale", "x * (scale - 1.0)")
    assert outcome.verdict is Verdict.WRONG


def test_the_reference_in_the_students_seat_is_not_held_to_the_students_task(fight):
    outcome = fight(SOFTMAX, function="copy")
    assert outcome.verdict in (Verdict.PASS, Verdict.SLOW, Verdict.INCONCLUSIVE), outcome.where


def test_blocks_of_the_reference_alone_come_in_pairs_after_the_work_of_a_half_round(fight, monkeypatch):
    """They draw once: no code of the student's runs that could remember a result."""
    events, inside = [], []
    alone, draw, write, poison, block = (
        speed.SpeedTest._alone,
        speed.BufferSets.draw,
        speed.BufferSets.write,
        speed.BufferSets.poison,
        speed.SpeedTest._block,
    )

    def noted(name, method):
        def run(self, *arguments, **named):
            if inside:
                events.append(name)
            return method(self, *arguments, **named)

        return run

    def watched(self, plans):
        inside.append(events.append("alone"))
        try:
            return alone(self, plans)
        finally:
            inside.clear()

    monkeypatch.setattr(speed.SpeedTest, "_alone", watched)
    monkeypatch.setattr(speed.SpeedTest, "_block", noted("block", block))
    monkeypatch.setattr(speed.BufferSets, "draw", noted("draw", draw))
    monkeypatch.setattr(speed.BufferSets, "write", noted("write", write))
    monkeypatch.setattr(speed.BufferSets, "poison", noted("poison", poison))
    assert fight(ADD).timing
    pair = ["write", "poison", "block", "poison", "block"]  # `write` poisons one set itself
    assert events == 2 * ["alone", "draw", *speed.ALONE_BLOCKS // 2 * pair]


@pytest.fixture
def events(monkeypatch):
    """What happens in a speed test, in order; of a worker only if it is the student's."""
    seen = []

    def noted(owner, name, event):
        method = getattr(owner, name)

        def run(self, *arguments, **named):
            told = event(self, *arguments)
            if told and seen[-1:] != [told]:
                seen.append(told)
            return method(self, *arguments, **named)

        monkeypatch.setattr(owner, name, run)

    def of_students(event):
        return lambda worker, *_: "" if worker._trusted else event

    noted(SubmissionWorker, "begin", of_students("begin"))
    noted(SubmissionWorker, "set_up", of_students("set up"))
    noted(SubmissionWorker, "start", of_students("start"))
    noted(SubmissionWorker, "kill", of_students("kill"))
    noted(SubmissionWorker, "close", of_students("close"))
    noted(speed.SpeedTest, "_open_block", lambda _, side, *__: f"{side} runs")
    noted(speed.SpeedTest, "_block", lambda _, side, *__: f"{side} is timed")
    noted(speed.SpeedTest, "_alone", lambda *_: "alone")
    return seen


def test_the_students_process_sets_itself_up_while_the_reference_warms_up(fight, events):
    assert fight(ADD).timing
    first = ["begin", "reference runs", "set up", "begin", "reference runs", "reference is timed"]
    # No line of the file before the reference was timed alone; `start` finds the process set up.
    then = ["alone", "reference is timed", "start", "set up", "begin", "student runs", "student is timed"]
    assert events[: len(first + then)] == first + then


def test_the_students_process_ends_while_the_reference_warms_up_and_before_it_is_timed_alone(fight, events):
    assert fight(ADD).timing
    last = events[events.index("kill") :]
    assert last[:5] == ["kill", "reference runs", "close", "reference runs", "alone"]
    assert not any(event.startswith("student") for event in last)


def test_a_process_that_cannot_be_set_up_is_a_fault_of_the_grader_and_nothing_is_timed(
    fight, events, monkeypatch
):
    begin = SubmissionWorker.begin

    def then_killed(self):
        new = not (self._worker and self._worker.alive)
        failed = begin(self)
        if new and not self._trusted:
            self._worker.kill()
        return failed

    monkeypatch.setattr(SubmissionWorker, "begin", then_killed)
    outcome = fight(ADD)
    assert outcome.verdict is Verdict.GRADER_FAULT
    assert outcome.where.startswith("the process for the file could not be set up: ")
    assert outcome.fault == "the process for the file could not be set up"
    assert events == ["begin", "reference runs", "set up", "begin", "close"]


def test_a_failure_meanwhile_ends_the_process_that_sets_itself_up(fight, events, monkeypatch):
    seen = []

    def fails(self, *_):
        seen.append((self.student, self.student._worker, self.student.is_setting_up))
        raise speed.UnfitError(Outcome(Verdict.GRADER_FAULT, where="the reference failed"))

    monkeypatch.setattr(speed.SpeedTest, "_make_warm", fails)
    assert fight(ADD).where == "the reference failed"
    ((student, process, was_setting_up),) = seen
    assert was_setting_up
    assert not process.alive
    assert events == ["begin", "close"]
    assert student.start() is None  # by a new process
    assert student._worker is not process


def test_no_block_is_timed_beside_a_process_that_sets_itself_up(fight, monkeypatch):
    set_up = SubmissionWorker.set_up
    monkeypatch.setattr(SubmissionWorker, "set_up", lambda one: set_up(one) if one._trusted else None)
    with pytest.raises(AssertionError, match="beside a timed block"):
        fight(ADD)


def test_a_block_shorter_than_an_empty_one_is_not_scored(fight, monkeypatch):
    monkeypatch.setattr(speed.SpeedTest, "empty_us", 1e9)
    outcome = fight(ADD)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "an empty one" in outcome.where


def test_an_answer_right_for_the_first_calls_only_is_wrong(fight):
    count = "        calls = globals().setdefault('calls', [])\n        calls.append(1)\n"
    text = count + "        if len(calls) < 30:\n    "
    outcome = fight(ADD, LAUNCH, text + LAUNCH)
    assert (outcome.verdict, outcome.reason) in ((Verdict.WRONG, "UNWRITTEN"), (Verdict.WRONG, "NONFINITE"))
    assert outcome.where.startswith("while timed")


def test_a_result_kept_from_an_earlier_block_is_wrong(fight):
    kept = (
        "        kept = globals().setdefault('kept', {})\n        if not kept:\n    "
        + LAUNCH
        + "\n            kept[0] = out.clone()\n        out.copy_(kept[0])"
    )
    assert fight(ADD, LAUNCH, kept).verdict is Verdict.WRONG


def test_of_the_two_halves_of_a_round_one_is_looked_at_closely(fight, monkeypatch):
    closely, check = [], speed.Verifier.check

    def noted(self, k, values, *close):
        closely.append(all(close))
        return check(self, k, values, *close)

    monkeypatch.setattr(speed.Verifier, "check", noted)
    assert fight(ADD).timing
    first, *halves = closely  # the first one follows the warm-up
    rounds = [*zip(halves[::2], halves[1::2], strict=True)]
    assert first
    assert len(rounds) >= statistics.FEWEST_ROUNDS
    assert set(rounds) == {(True, False), (False, True)}


def test_an_input_that_is_written_to_is_named(fight):
    outcome = fight(ADD, LAUNCH, LAUNCH + "\n        x[5] = 0.0")
    assert outcome.verdict is Verdict.MUTATED_INPUT
    assert outcome.where.startswith("x ")


def test_a_store_past_the_end_is_found_in_a_timed_block(fight):
    outcome = fight(ADD, "mask = offs < n", "mask = offs < n + 3")
    assert (outcome.verdict, outcome.reason) == (Verdict.OUT_OF_BOUNDS, "WRITE")


def test_one_wrong_element_in_a_timed_block_is_found(fight):
    outcome = fight(ADD, LAUNCH, LAUNCH + "\n        out[n // 2] += 1.0")
    assert outcome.verdict is Verdict.WRONG
    assert outcome.error_map.wrong == 1
    assert "out[2049]" in outcome.where


def test_a_crash_in_a_timed_block_ends_the_duel_with_its_reason(fight):
    outcome = fight(ADD, LAUNCH, "        raise RuntimeError('no more')")
    assert outcome.verdict is Verdict.CRASHED
    assert "no more" in outcome.where


def test_a_reference_that_slows_down_once_the_student_runs_decides_nothing(fight, monkeypatch):
    monkeypatch.setattr(statistics, "INTERFERENCE", 1e-9)
    outcome = fight(ADD)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "without the student's process" in outcome.where


def by_a_clock(monkeypatch, time_of):
    """Blocks take the microseconds of `time_of(side, position, running)`, and not what they took.

    `position` is 0 or 1 of a round's blocks of that side, None outside rounds; `running` says whether a
    process exists that has run a line of the student's.
    """
    take, counts = speed.SpeedTest._block, {}
    alone, rounds = speed.SpeedTest._alone, speed.SpeedTest._round
    inside = []

    def within(method, value):
        def run(self, *arguments):
            inside.append(value)
            try:
                return method(self, *arguments)
            finally:
                inside.pop()

        return run

    def block(self, side, plan, limit_s, k=None, rests=False):
        take(self, side, plan, limit_s, k, rests)
        at = None
        if inside and inside[-1]:
            at = counts[side] = 1 - counts.get(side, 1)
        worker = self.student._worker
        return time_of(side, at, worker is not None and worker.alive and self.student._is_loaded)

    monkeypatch.setattr(speed.SpeedTest, "_block", block)
    monkeypatch.setattr(speed.SpeedTest, "_alone", within(alone, False))
    monkeypatch.setattr(speed.SpeedTest, "_round", within(rounds, True))
    monkeypatch.setattr(statistics, "INTERFERENCE", 1.1)


HALF_AS_FAST = {"reference": 1000.0, "student": 2000.0}


@pytest.mark.parametrize(
    ("slowed", "factor"),
    [
        ((1,), 3.0),
        pytest.param((), 1.0, marks=pytest.mark.slow),
        pytest.param((0,), 1.05, marks=pytest.mark.slow),
        pytest.param((1,), 1.05, marks=pytest.mark.slow),
        pytest.param((0,), 3.0, marks=pytest.mark.slow),
    ],
)
def test_one_of_two_slowed_reference_blocks_gains_nothing(fight, monkeypatch, slowed, factor):
    by_a_clock(
        monkeypatch,
        lambda side, at, _: HALF_AS_FAST[side] * (factor if side == "reference" and at in slowed else 1.0),
    )
    outcome = fight(ADD)
    if slowed and factor > statistics.INTERFERENCE:
        assert outcome.verdict is Verdict.INCONCLUSIVE
        assert outcome.undecided
        assert f"the reference's {'last' if 1 in slowed else 'first'} block" in outcome.where
    else:
        assert outcome.verdict is Verdict.SLOW
        assert outcome.timing.percent_of_baseline == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("factor", "percent"),
    [
        (1.05, 50.5),
        pytest.param(1.005, 50.25, marks=pytest.mark.slow),
        pytest.param(1.09, 50.5, marks=pytest.mark.slow),
    ],
)
def test_a_reference_that_is_slow_only_while_the_student_runs_counts_as_without_it(
    fight, monkeypatch, factor, percent
):
    by_a_clock(
        monkeypatch,
        lambda side, _, running: HALF_AS_FAST[side] * (factor if running and side == "reference" else 1.0),
    )
    outcome = fight(ADD)
    assert outcome.timing.percent_of_baseline == pytest.approx(percent)
    assert outcome.timing.alone_us == pytest.approx(1000.0 / speed.FEWEST_CALLS)


@pytest.mark.slow
def test_a_gpu_that_is_slower_once_it_is_warm_costs_no_percent(fight, monkeypatch):
    blocks = []

    def warm(side, *_):
        blocks.append(side)
        return HALF_AS_FAST[side] * (1.0 if "student" not in blocks else 1.08)

    by_a_clock(monkeypatch, warm)
    assert fight(ADD).timing.percent_of_baseline == pytest.approx(50.0)


@pytest.mark.slow
def test_an_inconclusive_shape_is_timed_once_more_on_other_data(fight, monkeypatch):
    monkeypatch.setattr(speed, "ATTEMPTS", 2)
    # Each round's two blocks alike: of two that differ the faster would count.
    noise, drawn = iter([1.0, 1.0, 3.0, 3.0] * (statistics.MOST_ROUNDS // 2) + [1.0] * 1000), []
    by_a_clock(
        monkeypatch,
        lambda side, at, _: (
            HALF_AS_FAST[side] * (next(noise) if side == "student" and at is not None else 1.0)
        ),
    )
    ring = speed.SpeedTest._ring

    def seen(self, calls):
        drawn.append(self._sets.draws if self._sets else 0)
        ring(self, calls)

    monkeypatch.setattr(speed.SpeedTest, "_ring", seen)
    outcome = fight(ADD)
    assert outcome.verdict is Verdict.SLOW
    assert not outcome.undecided
    # Each attempt lays out its buffers anew; no call number is drawn twice.
    assert len(drawn) >= 4
    assert drawn == sorted(drawn)
    assert drawn[-1] > 0


@pytest.mark.slow
def test_a_shape_that_stays_inconclusive_is_left_to_a_person(fight, monkeypatch):
    monkeypatch.setattr(speed, "ATTEMPTS", 2)
    noise = iter([1.0, 1.0, 3.0, 3.0] * 1000)
    by_a_clock(
        monkeypatch,
        lambda side, at, _: (
            HALF_AS_FAST[side] * (next(noise) if side == "student" and at is not None else 1.0)
        ),
    )
    outcome = fight(ADD)
    assert (outcome.verdict, outcome.undecided) == (Verdict.INCONCLUSIVE, True)
    low, high = outcome.timing.interval_percent
    assert low < outcome.timing.percent_of_baseline < high


def test_a_time_below_what_the_memory_allows_is_impossible(fight, monkeypatch):
    monkeypatch.setattr(statistics, "floor_us", lambda *_: 1e12)  # as if the clock had been set back
    real = speed.SpeedTest.__init__

    def with_a_gpu(self, *arguments):
        real(self, *arguments)
        self.gpu = SimpleNamespace(bandwidth=1.0, peak_flops=1.0)

    monkeypatch.setattr(speed.SpeedTest, "__init__", with_a_gpu)
    outcome = fight(ADD)
    assert outcome.verdict is Verdict.IMPOSSIBLE
    assert "is less than the 1000000000000.0 us" in outcome.where


def test_results_that_have_not_come_when_two_runs_are_compared_are_unwritten_and_not_random(
    fight, monkeypatch
):
    take = speed.SpeedTest._block

    def student_writes_later(self, side, plan, limit_s, k=None, rests=False):
        memory = self.buffer_sets.lines
        before = memory.clone()
        elapsed = take(self, side, plan, limit_s, k, rests)
        if side == "student" and k is not None:
            memory.copy_(before)  # its kernels have not begun
            self.sampled = self.sampled[0], memory[self.sampled[0]]
        return elapsed

    monkeypatch.setattr(speed.SpeedTest, "_block", student_writes_later)
    outcome = fight(ADD)
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, Reason.UNWRITTEN), outcome.where


def test_results_that_land_between_the_sample_and_the_check_are_late(fight, monkeypatch):
    take = speed.SpeedTest._block

    def student_writes_later(self, side, plan, limit_s, k=None, rests=False):
        elapsed = take(self, side, plan, limit_s, k, rests)
        if side == "student" and k is not None:
            buffer = self.buffer_sets.sets[k][0][1][0]  # as a kernel would that is still running
            self.arena.view(buffer.tensor).add_(1.0)
        return elapsed

    monkeypatch.setattr(speed.SpeedTest, "_block", student_writes_later)
    outcome = fight(ADD)
    assert (outcome.verdict, outcome.reason) == (Verdict.WRONG, "UNWRITTEN")
    assert outcome.where == "outputs changed after the call had ended"


# -- CUDA C++: the student's arm is a compiled library, the baseline a torch function of lab.py

(CUDA,) = (entry for entry in catalog.capstone() if entry.folder.name == "cuda-kernels")
SIDES = {
    "vector_add": {"n": 4099},
    "reduce_sum": {"n": 4099},
    "matmul_tiled": {"m": 33, "n": 17, "k": 9},
}
# Called as a library is, by the symbol of each exercise and with its sizes: without a GPU none can run.
LIKE_A_LIBRARY = """import torch

def vector_add(x, y, *, sizes, out):
    assert list(sizes) == [len(x)]
    torch.add(x, y, out=out)

def reduce_sum(x, *, sizes, out):
    assert list(sizes) == [len(x)]
    torch.sum(x, dim=0, keepdim=True, out=out)

def matmul(a, b, *, sizes, out):
    assert list(sizes) == [len(a), len(b), a.shape[1]]
    torch.mm(a, b.t(), out=out)
"""


def asked_of(name):
    (item,) = (one for one in graded_items(CUDA) if one.exercise.name == name and one.kind == SPEED)
    return dataclasses.replace(item, case=dataclasses.replace(item.case, params=SIDES[name]))


@pytest.fixture
def runs(short, monkeypatch, warm):  # noqa: ARG001 - it only changes settings
    """Makes runs of the GPU tier whose workers and memory are on the CPU."""
    arena = Arena.create("cpu", 1 << 26)
    monkeypatch.setattr(Run, "_arena", lambda *_: arena)
    monkeypatch.setattr(gate, "missing", lambda _: "")
    made = []

    def make(source):
        made.append(Run(source, "gpu", SEED, None, screened=False, session=warm))
        return made[-1]

    yield make
    for run in made:
        run.close()
    arena.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("source", [REFERENCE, catalog.ROOT / "solutions"], ids=["baseline", "library"])
def test_a_cuda_exercise_is_timed_against_the_torch_function_of_its_lab(
    runs, tmp_path, monkeypatch, name, source
):
    if source != REFERENCE:
        (tmp_path / "library.py").write_text(LIKE_A_LIBRARY)
        library = Submission.read(tmp_path / "library.py")
        monkeypatch.setattr(Run, "submission", lambda *_: library)
    outcome = runs(source).answer(asked_of(name))
    assert outcome.verdict in (Verdict.PASS, Verdict.SLOW, Verdict.INCONCLUSIVE), outcome.where
    assert len(outcome.timing.rounds) >= statistics.FEWEST_ROUNDS


def test_both_arms_of_a_cuda_exercise_keep_their_workers_from_shape_to_shape(runs, monkeypatch):
    taken, closed = [], []

    class Settled:
        def __init__(self, *arguments):
            taken.append(tuple(one for one in arguments if isinstance(one, SubmissionWorker)))

        def run(self):
            return Outcome(Verdict.PASS, timing=a_timing())

    monkeypatch.setattr(speed, "SpeedTest", Settled)
    monkeypatch.setattr(SubmissionWorker, "close", lambda worker: closed.append(worker.folder))
    for name in ("begin", "set_up"):  # no process, which nothing would end
        monkeypatch.setattr(SubmissionWorker, name, lambda _: None)
    run = runs(catalog.ROOT / "solutions")
    for _ in range(2):
        assert run.answer(asked_of("vector_add")).verdict is Verdict.PASS
    assert closed == []
    assert taken[0] == taken[1]
    assert run.answer(asked_of("reduce_sum")).verdict is Verdict.PASS
    assert taken[2][0] is not taken[0][0]
    assert taken[2][1] is taken[0][1]  # one lab.py, one worker
    assert [worker._submission.name for pair in taken for worker in pair] == [
        *("02_vectorised.cu", "lab.py") * 2,
        *("05_deterministic.cu", "lab.py"),
    ]
