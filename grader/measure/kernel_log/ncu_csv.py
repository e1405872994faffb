"""Read the raw CSV of Nsight Compute: figures scaled to one unit, each with the name of its metric."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator

from grader.codegen import ptxas
from grader.measure.kernel_log.record import Figure, KernelCounters

STALLS = 8  # how many stall reasons are kept
# Names differ between generations of GPUs and versions of ncu: the first that is reported is taken.
WANTED = {
    "duration": ("us", "gpu__time_duration.sum"),
    "DRAM throughput": (
        "%",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "DRAM bytes read": ("bytes", "dram__bytes_read.sum", "dram__sectors_read.sum"),
    "DRAM bytes written": ("bytes", "dram__bytes_write.sum", "dram__sectors_write.sum"),
    "SM throughput": ("%", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    "tensor pipe": (
        "%",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    ),
    "L2 hit rate": ("%", "lts__t_sector_hit_rate.pct", "lts__average_t_sector_hit_rate.pct"),
    "achieved occupancy": ("%", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    "theoretical occupancy": ("%", "sm__maximum_warps_per_active_cycle_pct"),
    "registers of a thread": ("registers", "launch__registers_per_thread"),
    "static shared memory": ("bytes", "launch__shared_mem_per_block_static"),
    "dynamic shared memory": ("bytes", "launch__shared_mem_per_block_dynamic"),
    "grid": ("blocks", "launch__grid_size"),
    "block": ("threads", "launch__block_size"),
    "local loads": (
        "instructions",
        "sass__inst_executed_local_loads",
        "smsp__sass_inst_executed_op_local_ld.sum",
        "smsp__inst_executed_op_local_ld.sum",
    ),
    "local stores": (
        "instructions",
        "sass__inst_executed_local_stores",
        "smsp__sass_inst_executed_op_local_st.sum",
        "smsp__inst_executed_op_local_st.sum",
    ),
    "bank conflicts of loads": (
        "conflicts",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ),
    "bank conflicts of stores": (
        "conflicts",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
}
STALLED = (
    ("cycles/instruction", re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")),
    ("cycles/instruction", re.compile(r"smsp__average_warp_latency_issue_stalled_(\w+)\.ratio")),
    ("%", re.compile(r"smsp__warp_issue_stalled_(\w+)_per_warp_active\.pct")),
)
PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
US = {f"{key}{word}": factor for key, factor in (("n", 1e-3), ("u", 1.0), ("m", 1e3), ("", 1e6))
      for word in ("s", "second")}  # fmt: skip
BYTES = {f"{key}{word}": factor for key, factor in PREFIXES.items() for word in ("b", "byte")} | {
    "sector": 32.0
}


def kernels_in(text: str) -> Iterator[KernelCounters]:
    """Yield the kernels of ncu's raw CSV: names, units, then one row for each; other lines are skipped."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), len(lines))
    rows = list(csv.reader(line for line in lines[start:] if line.startswith('"')))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return
    header, units = rows[0], dict(zip(rows[0], rows[1], strict=False))
    for row in rows[2:]:
        cells = dict(zip(header, row, strict=False))
        found = {key: _figure(cells, units, *wanted) for key, wanted in WANTED.items()}
        yield KernelCounters(
            name=plain_name(cells["Kernel Name"]),
            grid=_shape(cells.get("Grid Size", "")),
            block=_shape(cells.get("Block Size", "")),
            figures={key: figure for key, figure in found.items() if figure},
            stalls=_stalls(cells, units),
        )


def plain_name(shown: str) -> str:
    """Return `ns::tile_kernel` for `void ns::tile_kernel<128>(float *)` or for a mangled name."""
    name = ptxas.plain_name(shown)
    name = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0].split()
    return re.sub(r"[^A-Za-z0-9_:.$]", "_", name[-1] if name else "unnamed")[:200]


def number(text: str) -> float | None:
    """Parse a number that may have thousands separators; None for `n/a` and other text."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def scaled(value: float, shown: str, unit: str) -> float | None:
    """Convert a value to `unit`; None if the unit that ncu shows is of another kind."""
    word = shown.split("/")[0].strip().lower()
    if unit == "us":
        return value * US[word] if word in US else None
    if unit == "bytes":
        return value * BYTES[word] if word in BYTES else None
    return value


def _figure(cells: dict, units: dict, unit: str, *metrics: str) -> Figure | None:
    for metric in metrics:
        value = number(cells.get(metric, ""))
        value = None if value is None else scaled(value, units.get(metric, ""), unit)
        if value is not None:
            return Figure(value=value, unit=unit, metric=metric)
    return None


def _stalls(cells: dict, units: dict) -> dict[str, Figure]:
    """Return why warps stalled, most first; "selected" is no stall, "_not_issued" is part of another one."""
    for unit, pattern in STALLED:
        found = {
            match[1]: _figure(cells, units, unit, metric)
            for metric in cells
            if (match := pattern.fullmatch(metric))
            and match[1] != "selected"
            and not match[1].endswith("_not_issued")
        }
        known = sorted((figure.value, name) for name, figure in found.items() if figure)
        if known:
            return {name: found[name] for _, name in known[: -STALLS - 1 : -1]}
    return {}


def _shape(text: str) -> str:
    return text if re.fullmatch(r"[0-9 ,()]{1,60}", text) else ""
