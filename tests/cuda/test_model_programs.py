#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The programs that load a model in vLLM, in SGLang and in transformers, as far as they go without these packages: flags made of
settings, how much is sent, a file of weights without values, and what is said of a Python that lacks a package."""

import glob
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types

import tap

ENGINES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "engines")
SERVER = ["--model", "/m", "--load-format", "dummy", "--skip-tokenizer-init"]


def program(name):
    """A program of the folder as a module."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(ENGINES, f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def vllm_flags(**settings):
    flags = program("rehearse_vllm").flags_of("/m", settings)
    assert flags[: len(SERVER)] == SERVER, flags
    return flags[len(SERVER) :]


def test_what_is_left_out_is_vllms_own_default():
    assert vllm_flags() == []
    assert vllm_flags(eager=0) == []


def test_settings_become_the_flags_of_vllms_server():
    """As its documentation of `vllm serve` names them."""
    assert vllm_flags(context_tokens=8192, sequences=4) == ["--max-model-len", "8192", "--max-num-seqs", "4"]
    assert vllm_flags(batched_tokens=2048) == ["--max-num-batched-tokens", "2048"]
    assert vllm_flags(memory_share=0.85) == ["--gpu-memory-utilization", "0.85"]
    assert vllm_flags(tensor_parallel=2, pipeline_parallel=4) == [
        "--tensor-parallel-size", "2", "--pipeline-parallel-size", "4"]
    assert vllm_flags(block_size=32) == ["--block-size", "32"]
    assert vllm_flags(eager=1) == ["--enforce-eager"]


def test_types_have_vllms_names():
    """Eight bits of weights are a quantization there, of a cache a type; half a cache's is the model's own."""
    assert vllm_flags(weight_type="bf16") == ["--dtype", "bfloat16"]
    assert vllm_flags(weight_type="f16") == ["--dtype", "half"]
    assert vllm_flags(weight_type="f32") == ["--dtype", "float"]
    assert vllm_flags(weight_type="fp8") == ["--quantization", "fp8"]
    assert vllm_flags(kv_type="fp8") == ["--kv-cache-dtype", "fp8"]
    assert vllm_flags(kv_type="bf16") == ["--kv-cache-dtype", "auto"]


def test_a_setting_that_is_not_known_is_refused():
    try:
        vllm_flags(colour="red")
    except SystemExit as end:
        assert "colour" in str(end), end
    else:
        raise AssertionError("it was taken")


def sent(longest, at_a_time, most):
    """Lengths of the prompts that an engine with these limits is sent."""
    prompts = []
    vllm, inputs = types.ModuleType("vllm"), types.ModuleType("vllm.inputs")
    vllm.SamplingParams = lambda **how: how
    inputs.TokensPrompt = lambda prompt_token_ids: prompt_token_ids
    config = types.SimpleNamespace(
        model_config=types.SimpleNamespace(max_model_len=longest),
        scheduler_config=types.SimpleNamespace(max_num_batched_tokens=at_a_time, max_num_seqs=most),
    )
    engine = types.SimpleNamespace(
        llm_engine=types.SimpleNamespace(vllm_config=config),
        generate=lambda given, how, use_tqdm: prompts.extend(given),
    )
    before = dict(sys.modules)
    sys.modules.update({"vllm": vllm, "vllm.inputs": inputs})
    try:
        program("rehearse_vllm").send(engine)
    finally:
        sys.modules.clear()
        sys.modules.update(before)
    return [len(prompt) for prompt in prompts]


def test_vllm_is_sent_one_batch_as_large_as_it_takes():
    """Eight tokens of a context are left for what is written."""
    assert sent(131072, 8192, 256) == [8192]
    assert sent(2048, 8192, 256) == [2040] * 4
    assert sent(2048, 8192, 3) == [2040] * 3
    assert sent(8, 512, 2) == [1] * 2


BARE = {"model_path": "/m", "load_format": "dummy", "skip_tokenizer_init": True, "log_level": "info"}


def sglang_arguments(**settings):
    arguments = program("rehearse_sglang").arguments_of("/m", settings)
    assert {name: arguments.pop(name) for name in BARE} == BARE, arguments
    return arguments


def test_settings_become_the_arguments_of_sglangs_engine():
    """As its documentation of server arguments names them, with underscores."""
    assert sglang_arguments() == {} and sglang_arguments(eager=0) == {}
    assert sglang_arguments(context_tokens=8192, sequences=4) == {"context_length": 8192, "max_running_requests": 4}
    assert sglang_arguments(batched_tokens=2048) == {"chunked_prefill_size": 2048}
    assert sglang_arguments(memory_share=0.85) == {"mem_fraction_static": 0.85}
    assert sglang_arguments(tensor_parallel=2, pipeline_parallel=4) == {"tp_size": 2, "pp_size": 4}
    assert sglang_arguments(block_size=64) == {"page_size": 64}
    assert sglang_arguments(eager=1) == {"disable_cuda_graph": True}


def test_types_have_sglangs_names():
    """A cache of eight bits is one of two formats; E4M3 is that of checkpoints with scales."""
    assert sglang_arguments(weight_type="bf16") == {"dtype": "bfloat16"}
    assert sglang_arguments(weight_type="f16") == {"dtype": "half"}
    assert sglang_arguments(weight_type="f32") == {"dtype": "float32"}
    assert sglang_arguments(weight_type="fp8") == {"quantization": "fp8"}
    assert sglang_arguments(kv_type="fp8") == {"kv_cache_dtype": "fp8_e4m3"}
    assert sglang_arguments(kv_type="fp8_e5m2") == {"kv_cache_dtype": "fp8_e5m2"}
    assert sglang_arguments(kv_type="bf16") == {"kv_cache_dtype": "auto"}


def reduces_by_nccl(program_module, tp_size, has_kernels, has_compiler):
    program_module.importlib = types.SimpleNamespace(
        util=types.SimpleNamespace(find_spec=lambda name: has_kernels or None))
    program_module.shutil = types.SimpleNamespace(which=lambda name: "/usr/bin/nvcc" if has_compiler else None)
    return program_module.without_a_compiler({"tp_size": tp_size}).get("disable_custom_all_reduce", False)


def test_sglang_reduces_by_nccl_where_its_own_way_cannot_be_compiled():
    """Versions of 2025 bring it compiled, and one device needs none."""
    module = program("rehearse_sglang")
    assert reduces_by_nccl(module, 2, True, False)
    assert not reduces_by_nccl(module, 2, True, True)
    assert not reduces_by_nccl(module, 2, False, False)
    assert not reduces_by_nccl(module, 1, True, False)


def sent_to_sglang(**said):
    """The prompts that an SGLang which says this of itself is sent."""
    asked = []

    def get_server_info():
        assert asked, "0.4.9 answers this when it was asked for tokens before"
        return said

    engine = types.SimpleNamespace(
        get_server_info=get_server_info, generate=lambda input_ids, sampling_params: asked.append(input_ids)
    )
    program("rehearse_sglang").send(engine)
    first, prompts = asked
    assert first == [10, 11, 12]
    return prompts


def test_sglang_is_sent_one_batch_as_large_as_it_takes():
    """Eight tokens of a context are left for what is written; without chunks a prompt is not divided."""
    lengths = lambda **said: [len(prompt) for prompt in sent_to_sglang(**said)]
    assert lengths(max_req_input_len=131066, chunked_prefill_size=8192) == [8192]
    assert lengths(max_req_input_len=2048, chunked_prefill_size=8192) == [2040] * 4
    assert lengths(max_req_input_len=2048, chunked_prefill_size=8192, max_running_requests=3) == [2040] * 3
    assert lengths(max_req_input_len=40000, chunked_prefill_size=-1, max_prefill_tokens=16384) == [16384]
    assert lengths(max_req_input_len=2048, chunked_prefill_size=-1, max_prefill_tokens=16384) == [2040] * 8
    assert lengths(max_req_input_len=9, chunked_prefill_size=512, max_running_requests=2) == [1] * 2


def test_no_two_of_sglangs_prompts_begin_alike():
    """It would compute the same beginning once."""
    prompts = sent_to_sglang(max_req_input_len=24, chunked_prefill_size=8192)
    assert len(prompts) == 512 and len({tuple(prompt[:2]) for prompt in prompts}) == 512
    assert all(type(token) is int and 0 <= token < 500 for prompt in prompts for token in prompt)


SHARING_SGLANG = """
import os, subprocess, sys

MAPS = "import mmap, sys, time; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=True); time.sleep(99)"

class Engine:
    def __init__(self, **arguments):
        self.started = []
        for name in os.environ["NAMES"].split():
            with open(name, "ab") as file:
                file.write(bytes(16384))
            if name.endswith("-unknown"):
                continue
            self.started.append(subprocess.Popen([sys.executable, "-c", MAPS, name], stdout=subprocess.PIPE))
            self.started[-1].stdout.readline()
            if name.endswith("-semaphore"):  # the C library maps it before it has its name
                os.link(name, name + "-named")
                os.unlink(name)

    def generate(self, input_ids, sampling_params):
        pass

    def get_server_info(self):
        return {"max_req_input_len": 2048, "chunked_prefill_size": 8192}

    def shutdown(self):
        for one in self.started:
            one.kill()
            one.wait()
"""


def test_what_killed_processes_of_sglang_shared_is_removed():
    """What was there before stays, and what was made meanwhile that none of them has mapped: others share, too."""
    start = f"/dev/shm/memtally-test-{os.getpid()}-"
    names = [start + what for what in ("own", "older", "unknown", "semaphore")]
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder + "/sglang-9.9.dist-info")
        os.makedirs(folder + "/sglang")
        with open(folder + "/sglang-9.9.dist-info/METADATA", "w", encoding="utf-8") as file:
            file.write("Metadata-Version: 2.1\nName: sglang\nVersion: 9.9\n")
        with open(folder + "/sglang/__init__.py", "w", encoding="utf-8") as file:
            file.write(SHARING_SGLANG)
        try:
            with open(names[1], "wb"):
                pass
            done = subprocess.run([sys.executable, os.path.join(ENGINES, "rehearse_sglang.py"), "/m", "{}"], check=False,
                                  env=dict(os.environ, PYTHONPATH=folder, NAMES=" ".join(names)), start_new_session=True)
            assert done.returncode == 0
            assert set(glob.glob(start + "*")) == {start + "older", start + "unknown"}
        finally:
            for name in glob.glob(start + "*"):
                os.unlink(name)


class Tensor:
    """What a file of weights asks of one."""

    def __init__(self, dtype, size, *shape):
        self.dtype, self.shape, self._size = dtype, shape, size

    def numel(self):
        n = 1
        for length in self.shape:
            n *= length
        return n

    def element_size(self):
        return self._size


class Model:
    """A model whose output is its embedding."""

    _tied_weights_keys = ["output"]

    def __init__(self, is_tied):
        self.config = types.SimpleNamespace(tie_word_embeddings=is_tied)
        self.embedding = Tensor("torch.bfloat16", 2, 32000, 4096)

    def state_dict(self, keep_vars):
        assert keep_vars
        norm = Tensor("torch.float32", 4, 4096)
        output = Tensor("torch.bfloat16", 2, 32000, 4096)
        return {"embedding": self.embedding, "again": self.embedding, "norm": norm, "output": output}


def hole(is_tied):
    """Header, bytes of data and bytes on the disk of a model's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        program("rehearse_transformers").write_hole(Model(is_tied), path)
        with open(path, "rb") as file:
            n = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(n))
        assert n % 8 == 0, n
        status = os.stat(path)
        return header, status.st_size - 8 - n, status.st_blocks * 512


def test_a_file_of_weights_has_their_shapes_and_takes_no_room():
    """As the format wants them: one after another, without gaps, from the end of the header."""
    header, n_bytes, on_disk = hole(is_tied=False)
    table = 32000 * 4096 * 2
    assert header == {
        "embedding": {"dtype": "BF16", "shape": [32000, 4096], "data_offsets": [0, table]},
        "norm": {"dtype": "F32", "shape": [4096], "data_offsets": [table, table + 16384]},
        "output": {"dtype": "BF16", "shape": [32000, 4096], "data_offsets": [table + 16384, 2 * table + 16384]},
    }, header
    assert n_bytes == 2 * table + 16384 and on_disk < 1 << 20, (n_bytes, on_disk)


def test_an_output_that_is_the_embedding_is_there_once():
    header, n_bytes, _ = hole(is_tied=True)
    assert list(header) == ["embedding", "norm"] and n_bytes == 32000 * 4096 * 2 + 16384, header


def test_a_folder_with_weights_is_loaded_as_it_is():
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "model-00001-of-00002.safetensors"), "wb").close()
        assert program("rehearse_transformers").make_model_dir(folder, "/nowhere", None) == folder


def said(engine, settings, **packages):
    """The last words of a program in a Python that has these packages, which are empty."""
    with tempfile.TemporaryDirectory() as folder:
        for name, version in packages.items():
            os.mkdir(os.path.join(folder, f"{name}-{version}.dist-info"))
            with open(os.path.join(folder, f"{name}-{version}.dist-info", "METADATA"), "w", encoding="utf-8") as file:
                file.write(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        done = subprocess.run([sys.executable, "-S", os.path.join(ENGINES, f"rehearse_{engine}.py"), folder,
                               json.dumps(settings)],
                              env=dict(os.environ, PYTHONPATH=folder), stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1, done
        return done.stderr.strip()


def test_a_python_without_the_package_is_told_so():
    for engine in ("vllm", "sglang", "transformers"):
        assert said(engine, {}) == f"this Python has no {engine}; name one that has it with --engine-path"


def test_another_version_than_was_asked_for_is_told_so():
    for engine in ("vllm", "sglang", "transformers"):
        words = said(engine, {"version": "0.9.2"}, **{engine: "0.11.0"})
        assert words == f"this Python has {engine} 0.11.0, not 0.9.2; name another with --engine-path", words


def test_transformers_without_accelerate_has_one_device_only():
    words = said("transformers", {"n_devices": 2}, transformers="4.57.6")
    assert "no accelerate" in words and "name one device" in words, words
    assert "accelerate" not in said("transformers", {"n_devices": 1}, transformers="4.57.6")
    assert "no accelerate" not in said("transformers", {"n_devices": 2}, transformers="4.57.6", accelerate="1.15.0")


if __name__ == "__main__":
    tap.main(globals())
