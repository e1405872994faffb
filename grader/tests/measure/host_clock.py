"""Microseconds of the host, for tensors of a CPU; there is no graph."""

import time


class HostClock:
    """Stands for a clock of CUDA events."""

    graph = None

    def time_us(self, work):
        start = time.perf_counter_ns()
        work()
        return (time.perf_counter_ns() - start) / 1e3
