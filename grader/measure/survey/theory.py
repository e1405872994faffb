"""Peak rates of a GPU: dense matrix rates by compute capability, DRAM bandwidth by clock and bus width."""

from __future__ import annotations

from dataclasses import dataclass

from grader.measure.survey.record import Attributes, Theory


@dataclass(frozen=True)
class Row:
    """Dense FLOP (int8: operations) per clock and multiprocessor; a missing dtype is not supported."""

    per_clock: dict[str, int]
    source: str


# Without sparsity, and with the fastest accumulator of the architecture. GeForce cards accumulate 16-bit and
# fp8 products in fp32 at half the rate, and TF32 at half, which no attribute shows. An architecture is
# missing if NVIDIA does not publish its figures for every dtype here.
ROWS = {
    75: Row(
        {"fp64": 4, "fp32": 128, "fp16": 1024, "int8": 2048},
        "NVIDIA Turing GPU Architecture (white paper, 2018)",
    ),
    80: Row(
        {"fp64": 128, "fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
        "NVIDIA A100 Tensor Core GPU Architecture (white paper, 2020)",
    ),
    86: Row(
        {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
        "NVIDIA Ampere GA102 GPU Architecture (white paper, 2021)",
    ),
    89: Row(
        {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
        "NVIDIA Ada GPU Architecture (white paper, 2023)",
    ),
    90: Row(
        {"fp64": 256, "fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
        "NVIDIA H100 Tensor Core GPU Architecture (white paper, 2022)",
    ),
    100: Row(
        {"fp64": 128, "fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "int8": 16384},
        "NVIDIA Blackwell Architecture Technical Brief (2024)",
    ),
    120: Row(
        {"fp64": 4, "fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
        "NVIDIA RTX Blackwell GPU Architecture (white paper, 2025)",
    ),
}


def theory(attributes: Attributes) -> Theory:
    """Return the peak rates of one GPU; unknown ones are left out."""
    dram = 2.0 * attributes.memory_mhz * 1e6 * attributes.memory_bus_bits / 8 or None
    row = ROWS.get(attributes.capability)
    if not row or not attributes.sm_mhz:
        return Theory(dram_bytes_per_s=dram)
    clocks = attributes.multiprocessors * attributes.sm_mhz * 1e6
    rates = {dtype: per_clock * clocks for dtype, per_clock in row.per_clock.items()}
    return Theory(
        dram_bytes_per_s=dram,
        flop_per_clock=row.per_clock,
        flops_per_s=rates,
        ridges={dtype: rate / dram for dtype, rate in rates.items()} if dram else {},
        source=row.source,
    )
