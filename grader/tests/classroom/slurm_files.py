"""The files of a small Slurm cluster on one machine, and how its daemons are started."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from pathlib import Path

PARTITION = "labs"

# Plain choices, which need no rights: processes are found by their parents, nothing is limited by cgroups,
# nothing is written into a database. Two jobs share the node.
SETTINGS = """\
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName={partition} Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def write(folder: Path) -> None:
    """Settings, a key for munge, and the folders that the daemons need."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(1024))
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        ports = first.getsockname()[1], second.getsockname()[1]
    host = socket.gethostname().partition(".")[0]
    text = SETTINGS.format(
        host=host, user=getpass.getuser(), folder=folder, partition=PARTITION,
        controller_port=ports[0], node_port=ports[1], cores=os.cpu_count(),
    )  # fmt: skip
    (folder / "slurm.conf").write_text(text)


def commands(folder: Path) -> dict[str, list[str]]:
    """How each daemon is started in the foreground; the force is for a folder that others could list."""
    files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid"}
    files |= {"log-file": "munged.log", "seed-file": "munge.seed"}
    munge = [
        "munged",
        "--foreground",
        "--force",
        *(f"--{name}={folder}/{file}" for name, file in files.items()),
    ]
    configured = ["-D", "-f", f"{folder}/slurm.conf"]
    return {"munged": munge, "slurmctld": ["slurmctld", *configured, "-c"], "slurmd": ["slurmd", *configured]}
