"""EXPECT CRASHED from elementwise_add: F10 a printed verdict at import, then exit code 0."""

import os

print("PASS 100/100", flush=True)
os._exit(0)
