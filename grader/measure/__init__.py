"""Measure kernels: benchmarks, the GPU survey, the kernel log, sanitizers."""
