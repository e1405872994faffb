"""Record the table and the events of torch.profiler for three ways to compute one softmax."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from grader.course import catalog
from grader.measure.bench.run import load
from grader.site.notebooks.lessons import Told
from grader.site.notebooks.recorded_apart import tell

ROWS, COLS = 16384, 8192  # 268 MB in bf16: more than any L2 holds
CALLS = 5  # in the table; the events are of one further call
COMMAND = "with torch.profiler.profile() as seen: ...; print(seen.key_averages().table())"


def in_five_steps(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension in five operators: maximum, subtract, exp, sum, divide."""
    e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


def arms() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Return the three implementations by name."""
    ours = load(catalog.ROOT / "solutions" / "lab2_online_softmax" / "online_softmax.py")
    return {
        "five operators": in_five_steps,
        "torch.compile": torch.compile(in_five_steps, dynamic=False),
        "lab 2": ours.softmax_forward,
    }


def measure(device: str = "cuda", rows: int = ROWS, cols: int = COLS) -> Told:
    """Profile every arm on N(0, 1) in bf16; texts are `table, ARM` as printed, and `events, ARM` as JSON."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32  # the interpreter computes bf16 wrong
    x = torch.randn(rows, cols, device=device, dtype=dtype)
    texts = {}
    for name, call in arms().items():
        table, events = look(lambda call=call: call(x), device)
        texts |= {f"table, {name}": table, f"events, {name}": json.dumps(events)}
    figures = {"rows": rows, "cols": cols, "calls": CALLS, "bytes_read": x.numel() * x.element_size()}
    return Told(command=COMMAND, texts=texts, figures=figures)


def look(call: Callable[[], object], device: str) -> tuple[str, list[dict]]:
    """Return the table of CALLS calls and the events of one call, after calls that compile and tune."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    for _ in range(3):
        call()

    def profiled(times: int) -> profile:
        with profile(activities=activities) as seen:
            for _ in range(times):
                call()
            if device == "cuda":
                torch.cuda.synchronize()
        return seen

    by = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    table = profiled(CALLS).key_averages().table(sort_by=by, row_limit=12, max_name_column_width=40)
    return "\n".join(line.rstrip() for line in table.splitlines()), events(profiled(1))


def events(seen: profile) -> list[dict]:
    """Return name, device, start and duration in microseconds of each event, in order of start."""
    found = sorted(seen.events(), key=lambda event: event.time_range.start)
    first = found[0].time_range.start if found else 0
    return [
        {
            "name": event.name,
            "on_gpu": event.device_type == DeviceType.CUDA,
            "start_us": round(event.time_range.start - first, 3),
            "us": round(event.time_range.end - event.time_range.start, 3),
        }
        for event in found
    ]


if __name__ == "__main__":
    tell(lambda _: measure())
