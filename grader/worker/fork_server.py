"""The fork server: it has imported torch and triton, has no CUDA context, and forks a worker in milliseconds.

The judge starts one for each mode (interpreted, compiled), because Triton reads TRITON_INTERPRET at import.
A worker is forked twice, so that it becomes a child of the judge, which alone waits for it and kills it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import struct

from grader.worker.protocol import OPERATORS, encode

# Control socket, stdout, stderr, lent memory on a CPU, and the two pages of a GPU's gate; the control socket
# stands for those that there are not.
FDS_PER_WORKER = 6


def main(control: int, uid: int, operators: bool) -> None:
    """Import, probe and report the confinement of this machine, then fork one worker for each request.

    Returns when the judge closes the socket `control`. The probe runs as the user `uid`. With `operators`
    what files need that register torch operators is imported first, while it runs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge handles Ctrl-C
    gc.disable()  # imports make many objects, and none to collect
    import torch  # noqa: F401 - imported for the children, as are the next two
    import triton
    import triton.language  # noqa: F401

    from grader.sandbox import probe
    from grader.worker import kernel_source, triton_settings, worker

    findings_of = probe.begin(os.getppid(), uid)
    kernel_source.read_from_the_tree()
    if os.environ.get("TRITON_INTERPRET") == "1":
        from grader.worker.interpreted import every_mend

        every_mend.apply()
    else:
        triton_settings.do_once_for_all_workers()
    requests = socket.socket(fileno=control)
    if operators:
        _import_operators()
    findings = json.dumps(encode(findings_of())).encode()
    requests.sendall(struct.pack("<I", len(findings)) + findings)
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1, FDS_PER_WORKER)
        if not message:
            return
        if message == OPERATORS:
            _import_operators()
            continue
        gc.freeze()  # a worker's collections look at its own objects alone, and share these pages
        pid_out, pid_in = os.pipe()
        middle = os.fork()
        if middle == 0:
            child = os.fork()
            if child:
                os.write(pid_in, struct.pack("<i", child))
                os._exit(0)
            requests.close()
            os.close(pid_out)
            os.close(pid_in)
            gc.enable()
            worker.main(*fds)
            os._exit(0)
        os.close(pid_in)
        os.waitpid(middle, 0)
        requests.sendall(os.read(pid_out, 4))
        os.close(pid_out)
        for fd in fds:
            os.close(fd)


def _import_operators() -> None:
    """Import once, for all workers, what torch.library.triton_op would import in each of them."""
    import torch._inductor.utils  # noqa: F401
