"""A file of a run as text without what differs from run to run by time and place alone."""

import json

TIMES = {"date", "seconds", "began", "finished", "accelerator", "machines", "lost", "results_sha256", "seal"}
PLACES = {"command", "source"}  # name the run folder


def without_times(text):
    return json.dumps(stripped(json.loads(text)), indent=1, sort_keys=True)


def stripped(value):
    if isinstance(value, dict):
        return {key: stripped(one) for key, one in value.items() if key not in TIMES | PLACES}
    return [stripped(one) for one in value] if isinstance(value, list) else value
