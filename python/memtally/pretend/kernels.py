# SPDX-License-Identifier: MIT
"""Kernels that a program compiles while it runs are left out where they do nothing but compute.

What NVIDIA's CuTe DSL compiles stands on a runtime of NVIDIA's inside its own library, which talks to
the real driver only: it is compiled and not called. What SGLang, FlashInfer and DeepGEMM compile wants a
toolkit's nvcc, which a machine without GPUs rarely has, and minutes: it is not compiled either. Such
kernels compute into tensors of the caller's and return nothing.
"""

from ..watch import hooks

NOT_CALLED = "Kernels of the CuTe DSL were compiled and not called: they bring a runtime of their own."
NOT_COMPILED = "Kernels that the program compiles while it runs were left out: they only compute."

# Module: its methods that call what was compiled.
CALLS = {
    "cutlass.cutlass_dsl.tvm_ffi_provider": [
        "TVMFFIJitCompiledFunction.__call__",
        "TVMFFIJitCompiledFunctionWithKwargs.__call__",
    ],
}
# Module: its functions that compile and load.
LOADERS = {
    "sglang.kernels.jit.utils.compile.loader": ["load_jit"],
    "sglang.jit_kernel.utils": ["load_jit"],
    "flashinfer.jit.core": ["JitSpec.build_and_load"],
    "deep_gemm.jit.compiler": ["build"],
}
# Functions of modules that do more than compute: they make classes known, answer, or make the tensor that they return.
ANSWERS = ("register", "get_", "plan_", "all_reduce")


class Nothing:
    """A module of kernels and each function in it; some are reached through another name (.default). What
    plans how they are to run returns something that is only passed on to them."""

    def __init__(self, name=""):
        self._name = name

    def __call__(self, *args, **kwargs):
        return Nothing() if self._name == "plan" else None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self if name == "default" else Nothing(name)


def _came_compiled(spec):
    """FlashInfer describes a module by itself, which knows of a package with what was compiled before."""
    path = getattr(spec, "aot_path", None)
    return getattr(spec, "is_aot", False) or (path is not None and path.exists())


def only_computes(args, kwargs):
    """Whether a module, as it is described to what compiles it, can be left out."""
    if _came_compiled(args[0] if args else None) or kwargs.get("class_name"):
        return False
    exports = [name for name, _ in kwargs.get("cuda_wrappers") or ()]
    is_host = kwargs.get("cpp_files") and not kwargs.get("cuda_files")
    return not is_host and not any(name.startswith(ANSWERS) for name in exports)


def _not_called(trace):
    def make(function):
        def called(*args, **kwargs):
            trace.say(NOT_CALLED)

        return called

    return make


def _not_compiled(trace):
    def make(function):
        def load(*args, **kwargs):
            if not only_computes(args, kwargs):
                return function(*args, **kwargs)
            trace.say(NOT_COMPILED)
            return Nothing()

        return load

    return make


def start(watch, trace):
    hooks.replace_when_imported(watch, CALLS, _not_called(trace))
    hooks.replace_when_imported(watch, LOADERS, _not_compiled(trace))
