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
sys.path.insert(0, ENGINES)
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


def stand_ins():
    return program("rehearse_stand_ins")


ASKS_ITS_TOKENIZER = """
class Processor:
    def __init__(self, image_processor, tokenizer, mark="x", sound_token="<sound>", add_bos_token=True):
        self.video_token = "<|video|>" if not hasattr(tokenizer, "video_token") else tokenizer.video_token
        self.picture = tokenizer.boi_token
        self.end = self.tokenizer.eoi_token
        self.row = "[ROW_END]"
        self.said = "no <such> token" + other.not_this_token
        self.adds = tokenizer.add_bos_token
"""


def test_tokens_are_those_that_a_processor_asks_its_tokenizer_for():
    """By name with how they are written where it says so, and what is written like a token."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "processing_of_a_test.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(ASKS_ITS_TOKENIZER)
        spec = importlib.util.spec_from_file_location("processing_of_a_test", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["processing_of_a_test"] = module
        try:
            spec.loader.exec_module(module)
            named, unnamed = stand_ins().spoken_tokens(module.Processor)
        finally:
            del sys.modules["processing_of_a_test"]
    assert named == {"video_token": "<|video|>", "boi_token": None, "eoi_token": None, "sound_token": "<sound>"}, named
    assert set(unnamed) >= {"<|video|>", "[ROW_END]"} and "no <such> token" not in unnamed, unnamed


def test_a_token_has_the_number_that_the_model_gives_it_before_its_parts_do():
    numbers = stand_ins().numbered_tokens({
        "image_token_index": 10, "eos_token_id": [7, 8], "vocab_size": 99, "id2label": {0: "a"}, "add_bos_token": True,
        "text_config": {"eos_token_id": 3, "bos_token_id": 1, "pad_token_id": None},
        "thinker_config": {"video_token_id": 12, "image_token_id": 11}})
    assert numbers == {"image_token": 10, "eos_token": 7, "bos_token": 1, "video_token": 12}, numbers


def test_a_vocabulary_has_as_many_tokens_as_the_model():
    """Each number once; what has no number of its own comes last, and two names of one number are written alike."""
    tokens, texts = stand_ins().vocabulary(
        64, {"image_token": "[IMG]", "end_token": None}, ["<other>", "[IMG]"], {"image_token": 10, "bos_token": 1, "pad_token": 1})
    assert sorted(tokens.values()) == list(range(64)) and len(tokens) == 64
    assert tokens["[IMG]"] == 10 and tokens["<bos_token>"] == 1 and texts["pad_token"] == "<bos_token>", texts
    assert {tokens["<end_token>"], tokens["<other>"], tokens["\n\n"]} <= set(range(54, 64)), tokens
    assert tokens["<5>"] == 5
    larger, _ = stand_ins().vocabulary(64, {}, [], {"image_token": 70})
    assert len(larger) == 71 and larger["<image_token>"] == 70


def test_pictures_are_as_large_as_the_encoder_takes():
    """Repositories of Mistral-Small-3.1 say a longest edge of 1540 and pieces of 14; transformers' default are 1024 and 16."""
    part = types.SimpleNamespace(size={"longest_edge": 1024, "height": None}, patch_size={"height": 16, "width": 16})
    config = types.SimpleNamespace(vision_config=types.SimpleNamespace(image_size=1540, patch_size=14, spatial_merge_size=2))
    said = stand_ins().of_encoder(part, config)
    assert said == {"size": {"longest_edge": 1540}, "patch_size": {"height": 14, "width": 14}}, said


def test_pictures_that_count_pixels_or_are_divided_keep_their_size():
    config = types.SimpleNamespace(vision_config=types.SimpleNamespace(image_size=364, patch_size=16, spatial_merge_size=2))
    pixels = types.SimpleNamespace(size={"shortest_edge": 3136, "longest_edge": 1003520}, patch_size=14, merge_size=2)
    assert stand_ins().of_encoder(pixels, config) == {"patch_size": 16, "merge_size": 2}
    divided = types.SimpleNamespace(size={"longest_edge": 1456}, max_image_size={"longest_edge": 364})
    assert stand_ins().of_encoder(divided, config) == {}


def test_what_is_published_of_pictures_comes_before_the_default():
    """What Qwen3-VL takes: 16 MiPixel for a picture, 24 for all of a video."""
    known = stand_ins().published("qwen3_vl")
    assert known["preprocessor_config.json"]["size"]["longest_edge"] == 4096 * 4096
    assert known["video_preprocessor_config.json"]["size"]["longest_edge"] == 24 * 1024 * 1024
    assert stand_ins().published("llama") == {}


def model_folder(folder, config, *names):
    model = os.path.join(folder, "given")
    os.makedirs(model)
    for name in names:
        open(os.path.join(model, name), "wb").close()
    with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return model


def test_a_model_of_text_and_a_whole_folder_are_loaded_as_they_are():
    sees = {"model_type": "test_sees", "vision_config": {"hidden_size": 8}}
    for config, names in (({"model_type": "test_reads"}, ()),
                          (sees, ("tokenizer.json", "preprocessor_config.json", "model.safetensors"))):
        with tempfile.TemporaryDirectory() as folder:
            model = model_folder(folder, config, *names)
            assert stand_ins().complete(model, folder) == model


def test_a_model_that_sees_needs_a_tokenizer_of_vllm_and_one_of_text_none():
    flags = program("rehearse_vllm").flags_of("/m", {}, True)
    assert "--skip-tokenizer-init" not in flags, flags
    with tempfile.TemporaryDirectory() as folder:
        assert stand_ins().senses(model_folder(folder, {"model_type": "test_sees", "vision_config": {"hidden_size": 8}}))
    with tempfile.TemporaryDirectory() as folder:
        assert not stand_ins().senses(model_folder(folder, {"model_type": "test_reads"}))


def test_whether_the_output_is_the_embedding_follows_the_part_for_text_without_a_checkpoint():
    """vLLM asks the checkpoint where a configuration's default says yes; a bare config.json has none."""
    text = types.SimpleNamespace(tie_word_embeddings=False)
    config = types.SimpleNamespace(get_text_config=lambda: text)

    def tied(said, *names):
        with tempfile.TemporaryDirectory() as folder:
            model = model_folder(folder, said, *names)
            stand_ins().write_tie(model, config)
            return stand_ins().read_config(model).get("tie_word_embeddings")

    assert tied({"text_config": {}}) is False
    assert tied({"tie_word_embeddings": True, "text_config": {}}) is True
    assert tied({"text_config": {}}, "model.safetensors.index.json") is None


FAKE_AUTO = """
class AutoConfig:
    @staticmethod
    def from_pretrained(folder):
        raise ValueError("model type `test_sees` is not known\\nmore")

class AutoProcessor:
    pass
"""


def test_a_model_without_stand_ins_names_the_files_that_it_lacks():
    """And what to do comes before why, which may be long."""
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder + "/transformers")
        with open(folder + "/transformers/__init__.py", "w", encoding="utf-8") as file:
            file.write(FAKE_AUTO)
        model = model_folder(folder, {"model_type": "test_sees", "vision_config": {"hidden_size": 8}}, "tokenizer.json")
        code = "import sys; sys.path.insert(0, sys.argv[1]); import rehearse_stand_ins as s; s.complete(sys.argv[2], sys.argv[3])"
        done = subprocess.run([sys.executable, "-S", "-c", code, ENGINES, model, folder], env=dict(os.environ, PYTHONPATH=folder),
                              stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1, done
    assert f"{model} has no preprocessor_config.json: copy it there" in done.stderr, done.stderr
    assert done.stderr.strip().endswith("(model type `test_sees` is not known)"), done.stderr


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
import mmap, os, subprocess, sys

MAPS = "import mmap, sys, time; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=True); time.sleep(99)"

class Engine:
    def __init__(self, **arguments):
        self.started = []
        own = open(f"/dev/shm/torch_{os.getpid()}_memtally_0", "w+b")
        own.write(bytes(16384))
        own.flush()
        self.own = mmap.mmap(own.fileno(), 0)
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
        raise AttributeError("as SGLang 0.5.23 does where a model is like Llava")
"""


def test_what_killed_processes_of_sglang_shared_is_removed():
    """What was there before stays, and what was made meanwhile that none of them has mapped: others share, too. What
    PyTorch shares from this very process it removes itself when that ends, and aborts where it is gone."""
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
            model = model_folder(folder, {"model_type": "test_reads"})
            done = subprocess.Popen([sys.executable, os.path.join(ENGINES, "rehearse_sglang.py"), model, "{}"],
                                    env=dict(os.environ, PYTHONPATH=folder, NAMES=" ".join(names)), start_new_session=True)
            assert done.wait() == 0
            own = glob.glob(f"/dev/shm/torch_{done.pid}_memtally_0")
            assert len(own) == 1
            names += own
            assert set(glob.glob(start + "*")) == {start + "older", start + "unknown"}
        finally:
            for name in set(names) & set(glob.glob("/dev/shm/*")) | set(glob.glob(start + "*")):
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
