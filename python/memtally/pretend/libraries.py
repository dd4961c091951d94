# SPDX-License-Identifier: MIT
"""Programs that look through their own maps for CUDA's runtime find the look-alike.

Wheels bring a runtime of NVIDIA's along for themselves (torchvision.libs/libcudart.….so.12), which on a
machine with GPUs serves as well as any other; in a rehearsal it finds no driver of NVIDIA's under it.
"""

import os

from ..watch import hooks

# Module: its functions from the name of a library to the path of one that is loaded, or None.
FINDERS = {
    "flashinfer.comm.cuda_ipc": ["find_loaded_library"],
    "sglang.srt.distributed.device_communicators.cuda_wrapper": ["find_loaded_library"],
    "vllm.distributed.device_communicators.cuda_wrapper": ["find_loaded_library"],
}


def look_alike(name, folder):
    """The path of a loaded library of that name in a folder, or None."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            _, slash, rest = line.rstrip("\n").partition("/")
            path = slash + rest
            if os.path.dirname(path) == folder and os.path.basename(path).startswith(name):
                return path
    return None


def start(watch, account_path):
    folder = os.path.realpath(os.path.join(os.path.dirname(account_path), "cuda"))

    def make(function):
        def find(name):
            return look_alike(name, folder) or function(name)

        return find

    hooks.replace_when_imported(watch, FINDERS, make)
