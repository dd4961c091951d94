# SPDX-License-Identifier: MIT
"""Autotuners that time kernels are answered the same time for each: the first one that runs wins.

Kernels do nothing in a rehearsal, so that their times say nothing. The tuners' own code runs, with
the memory that it takes; only what it measured is replaced.
"""

from ..watch import hooks

NOTE = "Autotuners were told the same time for all kernels: they choose the first that can run."


def _same(value):
    """A time in place of each time in a result."""
    if isinstance(value, (list, tuple)):
        return type(value)(_same(part) for part in value)
    return 1.0 if isinstance(value, (int, float)) and value == value and value != float("inf") else value


def _even(trace):
    def make(function):
        def timed(*args, **kwargs):
            result = function(*args, **kwargs)
            try:
                trace.say(NOTE)
                return _same(result)
            except Exception as error:
                trace.failed("autotuners", error)
                return result

        return timed

    return make


# Module: its functions that say times.
TIMERS = {
    "triton.testing": ["do_bench", "do_bench_cudagraph"],
    "triton.runtime.autotuner": ["Autotuner._bench"],
    "torch._inductor.runtime.benchmarking": [
        "Benchmarker.benchmark",
        "TritonBenchmarker.benchmark_gpu",
        "InductorBenchmarker.benchmark_gpu",
        "TritonBenchmarker.benchmark_gpu_with_cuda_graph",
    ],
    "torch._inductor.utils": ["do_bench_using_profiling"],
    "flashinfer.autotuner": ["AutoTuner._profile_single_kernel"],
    "flashinfer.testing.utils": ["bench_gpu_time_with_cupti", "bench_gpu_time_with_cuda_event"],
}


def start(watch, trace):
    hooks.replace_when_imported(watch, TIMERS, _even(trace))
