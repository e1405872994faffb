"""Limits on a worker: Landlock, seccomp, users, memory and processes."""
