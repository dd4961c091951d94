# SPDX-License-Identifier: MIT
"""Kernels of NVIDIA's CuTe DSL are compiled and not called.

What it compiles stands on a runtime of NVIDIA's inside its own library, which talks to the real
driver only. Its kernels compute into tensors of the caller's and return nothing.
"""

from . import hooks

NOTE = "Kernels of the CuTe DSL were compiled and not called: they bring a runtime of their own."

# Module: its methods that call what was compiled.
CALLS = {
    "cutlass.cutlass_dsl.tvm_ffi_provider": [
        "TVMFFIJitCompiledFunction.__call__",
        "TVMFFIJitCompiledFunctionWithKwargs.__call__",
    ],
}


def start(watch, trace):
    def nothing(function):
        def called(*args, **kwargs):
            trace.say(NOTE)

        return called

    for name, methods in CALLS.items():

        def wrap(module, methods=methods):
            for method in methods:
                hooks.replace(module, method, nothing)

        watch.when_imported(name, wrap)
