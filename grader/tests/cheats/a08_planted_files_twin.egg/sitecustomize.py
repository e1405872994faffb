import os
from pathlib import Path

if Path(__file__).resolve().parent.name.startswith("lab"):
    os.environ["PLANTED"] = "1"
