"""A config that a tl.static_assert refuses is not chosen.

The autotuner of Triton 3.6 to 3.9 passes over a config that does not compile. In the interpreter nothing is
compiled, and an error of a kernel comes as the interpreter's own: a refused config is found when it runs, as
the choice or before.
"""

from __future__ import annotations

from typing import Any

import triton
from triton.runtime.autotuner import Autotuner

from grader.worker.interpreted.launches import is_static_assert

INFINITE = [float("inf")] * 3


def pass_over_refused_configs() -> None:
    """Let a launch choose again without the configs that were refused in it."""
    run, bench = Autotuner.run, Autotuner._bench
    refused: list[triton.Config] = []  # by the launch that is running

    def chosen_again(self: Any, *args: object, **options: object) -> object:
        mark = len(refused)
        try:
            while True:
                known = dict(self.cache)
                try:
                    return run(self, *args, **options)
                except Exception as error:
                    tuned = self.cache.keys() - known.keys()
                    again = any(one is self.best_config for one in refused)
                    if not tuned or again or not is_static_assert(error):
                        raise
                    refused.append(self.best_config)
                    for key in tuned:
                        del self.cache[key]
        finally:
            del refused[mark:]

    def benchmarked(self: Any, *args: object, config: triton.Config, **options: object) -> object:
        if any(one is config for one in refused):
            return INFINITE
        try:
            return bench(self, *args, config=config, **options)
        except Exception as error:
            if not is_static_assert(error):
                raise
            return INFINITE

    Autotuner.run, Autotuner._bench = chosen_again, benchmarked
