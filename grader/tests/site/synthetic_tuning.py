"""A tuning record that nobody measured: a formula gives its numbers, for tests of what is made of it."""

import hashlib
import json

from grader.measure.bench.record import ArmRecord, SizeRecord
from grader.measure.bench.tuning import NO_BONUS, WHOLE, Compiled, KernelTuning, Tuned, TuningRecord
from grader.results.machine import Machine
from grader.site.figures import ptx_lines

GPU = {
    "name": "synthetic GPU", "driver": "1.0", "bandwidth": 4e12, "peak_flops": 1e15,
    "uuid_hash": "0" * 16, "capability": 90, "memory_bytes": 2**37, "max_sm_mhz": 1980,
}  # fmt: skip
OWN = {
    "matmul_kernel": (
        "128x256x64, 8 warps, 4 stages",
        "128x128x64, 8 warps, 4 stages",
        "64x128x64, 4 warps, 4 stages",
        "64x64x32, 4 warps, 4 stages",
    ),
    "described_kernel": ("128x256x64, 8 warps, 3 stages", "64x128x128, 4 warps, 4 stages"),
}


def arm(us, work, library_us):
    return ArmRecord(
        status="ok", median_us=us, rate=work / us / 1e6, ratio=library_us / us,
        interval=(library_us / us, library_us / us), rounds_us=[[us * 0.99, us, us * 1.02]],
    )  # fmt: skip


def compiled(name, own):
    tile, warps, stages = name.split(", ")
    m, n, k = map(int, tile.split("x"))
    warps, stages = int(warps.split()[0]), int(stages.split()[0])
    shared = 2 * k * (m + n) * stages
    fits, registers = shared <= 232448, m * n // (32 * warps) + 60
    return Compiled(
        name=name, constants={"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8},
        num_warps=warps, num_stages=stages, own=own, shared_bytes=shared,
        error="" if fits else "OutOfResources: out of resource: shared memory",
        registers=min(255, registers) if fits else None,
        spill_bytes=(4 * max(0, registers - 255)) if fits else None,
        ptx={"wgmma": k // 16} if fits else {}, instruction=f"m64n{n}k16" if fits else "",
    )  # fmt: skip


def synthetic() -> TuningRecord:
    """Both kernels with every config that is stored as PTX."""
    stored = json.loads(ptx_lines.STORED.read_text("utf-8"))
    digest = hashlib.sha256(ptx_lines.FILE.read_bytes()).hexdigest()
    kernels = []
    for kernel, entry in stored["kernels"].items():
        configs = [compiled(name, name in OWN[kernel]) for name in entry["configs"]]
        sizes = []
        for side in (1024, 4096):
            cube, work, library_us = dict.fromkeys("mnk", side), 2 * side**3, 2 * side**3 / 7e8
            arms = {
                one.name: arm(
                    work * (1 + (one.spill_bytes or 0) / 100) / (2e8 + 3e6 * (one.registers % 200)),
                    work,
                    library_us,
                )
                for one in configs
                if not one.error
            }
            own = min((one.name for one in configs if one.own), key=lambda name: arms[name].median_us)
            times = SizeRecord(
                size=cube, bytes_moved=6 * side**2, operations=work, method="eager",
                slots=2, working_set_bytes=12 * side**2, rounds_dropped=0, baseline="torch.mm NN",
                arms=arms | {"torch.mm NN": arm(library_us, work, library_us)},
            )  # fmt: skip
            sizes.append(Tuned(picked=own, tried=[one.name for one in configs if one.own], times=times))
        kernels.append(
            KernelTuning(
                op="matmul",
                file="lab3_autotuned_matmul/autotuned_matmul.py",
                file_sha256=digest,
                part=WHOLE if kernel == "described_kernel" else NO_BONUS,
                kernel=kernel,
                configs=configs,
                sizes=sizes,
            )
        )
    machine = Machine(
        gpu=GPU, gpu_missing="", platform="Linux", python="3.12", torch="0", triton="0", numpy="0"
    )
    return TuningRecord(
        date="2000-01-01T00:00:00+00:00", command="none", machine=machine, cuda=None, kernels=kernels
    )
