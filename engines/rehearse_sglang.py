# SPDX-License-Identifier: MIT
"""Loads a model in SGLang as its server would, with weights of the right shapes and no values, and
sends it as much as it takes at a time. `memtally rehearse MODEL --engine sglang` runs it on pretended
devices; what it holds is read off there, and nothing is printed here.

usage: python rehearse_sglang.py MODEL_DIR SETTINGS

SETTINGS is a JSON object with some of: version, context_tokens, sequences, batched_tokens, memory_share,
kv_type, weight_type, tensor_parallel, pipeline_parallel, eager, block_size. What is left out is
SGLang's own default, which is the same for its server and for its class for programs."""

import atexit
import contextlib
import importlib.util
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH keeps it out
from rehearse_common import SPARE_TOKENS, check_version, largest_batch, read_arguments, rehearsal_folder
from rehearse_stand_ins import complete

# SGLang's names of settings by ours.
NAMES = {
    "context_tokens": "context_length",
    "sequences": "max_running_requests",
    "batched_tokens": "chunked_prefill_size",
    "memory_share": "mem_fraction_static",
    "tensor_parallel": "tp_size",
    "pipeline_parallel": "pp_size",
    "block_size": "page_size",
}
DTYPES = {"f16": "half", "fp16": "half", "bf16": "bfloat16", "f32": "float32", "fp32": "float32"}
QUANTIZED = {"fp8": "fp8"}
KV_TYPES = {"f16": "auto", "bf16": "auto", "fp8": "fp8_e4m3"}
SHARED = "/dev/shm"


def arguments_of(model, settings):
    """The arguments of an engine that loads no values, and no tokenizer but what reads pictures."""
    arguments = {"model_path": model, "load_format": "dummy", "skip_tokenizer_init": True, "log_level": "info"}
    for key, value in settings.items():
        if key == "eager":
            arguments.update({"disable_cuda_graph": True} if value else {})
        elif key == "weight_type" and value in QUANTIZED:
            arguments["quantization"] = QUANTIZED[value]
        elif key == "weight_type":
            arguments["dtype"] = DTYPES.get(value, value)
        elif key == "kv_type":
            arguments["kv_cache_dtype"] = KV_TYPES.get(value, value)
        elif key in NAMES:
            arguments[NAMES[key]] = value
        else:
            sys.exit(f"rehearse_sglang: no such setting: {key}")
    return arguments


def without_a_compiler(arguments):
    """Several devices reduce by NCCL where SGLang would have to compile its own way of doing so."""
    compiles = importlib.util.find_spec("sglang.kernels") is not None
    if arguments.get("tp_size", 1) > 1 and compiles and not shutil.which("nvcc"):
        arguments["disable_custom_all_reduce"] = True
    return arguments


def send(engine):
    """A short prompt, as the server sends itself, one batch as large as it may be, then some tokens one by
    one. Before the first request versions of 2025 do not answer what they are asked of themselves."""
    few = {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}
    engine.generate(input_ids=[10, 11, 12], sampling_params=few)
    said = engine.get_server_info()
    longest = said["max_req_input_len"]
    at_a_time = said.get("chunked_prefill_size") or 0
    if at_a_time <= 0:  # it divides no prompt
        at_a_time = said.get("max_prefill_tokens") or longest - SPARE_TOKENS
    most = said.get("max_running_requests") or at_a_time
    n, length = largest_batch(longest, at_a_time, most)
    # No two begin alike: what begins alike is computed once.
    prompts = [[5 + i % 256, 5 + i // 256][:length] + [5] * (length - 2) for i in range(n)]
    engine.generate(input_ids=prompts, sampling_params=few)


def files_in(folder):
    return {os.path.join(folder, name) for name in os.listdir(folder)} if os.path.isdir(folder) else set()


def mapped_inodes(folder):
    """The inodes of what this process and those that it started have mapped from a folder: a semaphore's file has another name there."""
    inodes = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.getpgid(int(pid)) == os.getpgrp():
                with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
                    inodes.update(int(line.split()[4]) for line in maps if f" {folder}/" in line)
    return inodes


def made_since(there, folder):
    """The files that these processes have made in a folder and share, but for those that PyTorch removes when this one ends."""
    inodes = mapped_inodes(folder)
    own = os.path.join(folder, f"torch_{os.getpid()}_")
    made = {file for file in files_in(folder) - there if not file.startswith(own)}
    return {file for file in made if os.path.exists(file) and os.stat(file).st_ino in inodes}


def remove(files):
    for file in files:
        with contextlib.suppress(OSError):
            os.unlink(file)


def shut_down(engine):
    """Ends its processes. That SGLang fails in doing so, as 0.5.23 does after it has ended those of models like Llava, is
    not about memory."""
    try:
        engine.shutdown()
    except Exception as error:
        print(f"rehearse_sglang: {type(error).__name__}: {error}", file=sys.stderr)


def main():
    model, settings, version = read_arguments()
    check_version("sglang", version)
    there, left = files_in(SHARED), set()
    atexit.register(remove, left)  # after what SGLang registers
    model = complete(model, rehearsal_folder())
    import sglang

    engine = sglang.Engine(**without_a_compiler(arguments_of(model, settings)))
    try:
        send(engine)
    finally:
        # It kills its processes, so that nothing removes what they shared.
        left.update(made_since(there, SHARED))
        shut_down(engine)


# SGLang's processes are spawned, and read this file again under another name.
if __name__ == "__main__":
    main()
