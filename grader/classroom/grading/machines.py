"""Where a class is graded: on this machine, or on a Slurm cluster described by a TOML file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from grader.classroom.run_folder import RunFolder
from grader.course import catalog
from grader.system.files import read_toml

PER_GPU = 2  # gradings: one computes on it, and meanwhile the next one starts and compiles


class SiteError(Exception):
    """The site file cannot be used; the message names the field."""


class Slurm(BaseModel):
    """`[slurm]`: options of each Slurm job; a job grades until its time limit or the end of the work."""

    model_config = ConfigDict(extra="forbid")
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    jobs: int = Field(1, ge=1)  # maximum number at once
    nodes_per_job: int = Field(1, ge=1)
    gpus_per_node: int = Field(0, ge=0)
    cores_per_node: int | None = Field(None, ge=1)
    memory_per_node_gb: int | None = Field(None, ge=1)
    walltime: str = Field("04:00:00", pattern=r"^\d+:\d\d:\d\d$")
    exclusive: bool = False
    options: str = ""  # further lines of the batch script, such as "#SBATCH --gres=gpu:h200:1"
    setup: str = ""  # shell commands on the node before a worker starts, such as "module load cuda"


class Site(BaseModel):
    """A site with `workers_per_node` gradings at once; the default is two per GPU, or one per two cores."""

    model_config = ConfigDict(extra="forbid")
    slurm: Slurm | None = None
    workers_per_node: int | None = Field(None, ge=1)
    address: str | None = None  # of this machine as seen from the nodes; Parsl finds it if not given

    @property
    def tier(self) -> str | None:
        """The tier that its nodes can grade; None for this machine."""
        return None if self.slurm is None else "gpu" if self.slurm.gpus_per_node else "cpu"


def read(path: Path | None) -> Site:
    """Read a site file; None means this machine. Raises SiteError if it cannot be used."""
    if path is None:
        return Site()
    try:
        return read_toml(path, Site)
    except ValueError as error:
        raise SiteError(str(error)) from None


def gpus(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the GPUs of this machine that CUDA would see, as CUDA_VISIBLE_DEVICES names them."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [word.strip() for word in chosen.split(",") if word.strip() not in ("", "-1")]
    try:
        import pynvml

        pynvml.nvmlInit()
        return [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # no driver, no GPU
        return []


def accelerators(site: Site, tier: str, jobs: int | None) -> list[str]:
    """Return the GPU of each worker of one node; empty on the CPU tier.

    Each GPU has PER_GPU workers: what computes on it holds its lock, and the others wait for that.
    """
    if tier != "gpu":
        return []
    found = [str(number) for number in range(site.slurm.gpus_per_node)] if site.slurm else gpus()
    return (found * PER_GPU)[: site.workers_per_node][:jobs]


def workers(site: Site, tier: str, jobs: int | None) -> int:
    """Return how many gradings run at once on one node."""
    if tier == "gpu":
        return len(accelerators(site, tier, jobs))
    cores = (site.slurm.cores_per_node if site.slurm else None) or os.cpu_count() or 1
    return jobs or site.workers_per_node or max(1, cores // 2)


def config(site: Site, tier: str, jobs: int | None, run: RunFolder, token: str):
    """Return Parsl's configuration, without retries: the Engine retries failed tasks itself.

    `token` identifies the command that holds the lock of `run`; workers end with that command.
    """
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.executors.high_throughput.executor import DEFAULT_LAUNCH_CMD

    count = workers(site, tier, jobs)
    module = shlex.join([sys.executable, "-m", "grader.classroom.grading.parsl_pool", str(run.lock), token])
    module = module.replace("{", "{{").replace("}", "}}")  # Parsl fills the line in
    address = site.address or (None if site.slurm else "127.0.0.1")
    executor = HighThroughputExecutor(
        label="class",
        provider=_provider(site),
        max_workers_per_node=count,
        cores_per_worker=1e-6,  # only max_workers_per_node limits the number
        available_accelerators=accelerators(site, tier, jobs),
        prefetch_capacity=0,  # queued tasks stay here, not with a worker that may fail
        # By module, not through PATH: the environment need not be active.
        launch_cmd=DEFAULT_LAUNCH_CMD.replace("process_worker_pool.py", module, 1),
        interchange_launch_cmd=[sys.executable, "-m", "grader.classroom.grading.parsl_interchange"],
        block_error_handler=False,  # replace a failed node instead of ending the run
        heartbeat_period=5,
        heartbeat_threshold=30,
        encrypted=site.slurm is not None,
        **({"address": address} if address else {}),
    )
    return Config(executors=[executor], run_dir=str(run.engine), strategy_period=1)


def _provider(site: Site):
    from parsl.providers import LocalProvider, SlurmProvider

    path = f"export PYTHONPATH={shlex.quote(str(catalog.ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}"
    if site.slurm is None:
        path += "\ntrap '' INT"  # as in the interchange: only the command handles Ctrl-C
        return LocalProvider(worker_init=path, init_blocks=1, min_blocks=1, max_blocks=1)
    asked = site.slurm
    return SlurmProvider(
        partition=asked.partition,
        account=asked.account,
        qos=asked.qos,
        constraint=asked.constraint,
        nodes_per_block=asked.nodes_per_job,
        cores_per_node=asked.cores_per_node,
        mem_per_node=asked.memory_per_node_gb,
        gpus_per_node=asked.gpus_per_node or None,
        init_blocks=1,
        min_blocks=0,
        max_blocks=asked.jobs,
        walltime=asked.walltime,
        exclusive=asked.exclusive,
        scheduler_options=asked.options,
        worker_init="\n".join(filter(None, [asked.setup, path])),
    )
