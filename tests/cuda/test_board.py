#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How the board of published runs on GPUs reads logs and rows of pipelines; no engine is needed."""

import os
import sys

import tap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance", "cuda"))
import board  # noqa: E402

# Lines as vLLM and SGLang write them, of stages that differ: the first has no output, the last samples.
VLLM = """(EngineCore pid=7) INFO 01-02 03:04:05 [core.py:139] Initializing
(Worker_PP0_TP0 pid=8) INFO 01-02 03:04:05 [gpu_model_runner.py:1] Model loading took 7.01 GiB memory and 3 seconds
(Worker_PP1_TP0 pid=9) INFO 01-02 03:04:06 [gpu_model_runner.py:1] Model loading took 8.02 GiB memory and 3 seconds
(Worker_PP0_TP0 pid=8) INFO 01-02 03:04:07 [gpu_worker.py:1] Available KV cache memory: 60.03 GiB
(Worker_PP1_TP0 pid=9) INFO 01-02 03:04:07 [gpu_worker.py:1] Available KV cache memory: 58.04 GiB
(EngineCore pid=7) INFO 01-02 03:04:08 [kv_cache_utils.py:1] GPU KV cache size: 950,800 tokens"""
SGLANG = """[2026-01-02 03:04:05 PP0 TP0] Load weight end. type=A, mem usage=7.01 GB.
[2026-01-02 03:04:05 PP1 TP0] Load weight end. type=A, mem usage=8.02 GB."""


def row(**more):
    import json

    return {"device": "H100-80GB", "tensor_parallel": "2", "more": json.dumps(more) if more else ""}


def test_a_stage_has_its_own_figures_and_those_of_all():
    assert board.words_of(VLLM, 0) == {"weights": 7.01, "kv": 60.03, "tokens": 950800}, board.words_of(VLLM, 0)
    assert board.words_of(VLLM, 1) == {"weights": 8.02, "kv": 58.04, "tokens": 950800}, board.words_of(VLLM, 1)
    assert [board.words_of(SGLANG, stage)["weights"] for stage in (0, 1)] == [7.01, 8.02]


def test_why_there_is_nothing_to_compare_is_told_of_any_document():
    """An error's document has no rehearsal in it."""
    assert board.words_why("its engine could not be fetched") == "its engine could not be fetched"
    assert board.words_why({"error": {"code": "unsupported", "sentence": "no device was taken"}}) == "no device was taken"
    assert board.words_why({"rehearsal": {"last_words": "out of memory"}}) == "out of memory"


def test_a_list_of_an_engine_does_not_take_a_build_of_pytorch_without_cuda():
    """`==2.13.0` is met by 2.13.0+cpu, which comes first where a registry has it; `===` is not."""
    for path in sorted((board.HERE / "engines").glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(("torch==", "torchvision==", "torchaudio==")):
                assert "===" in line or line.endswith("\\"), (path.name, line)  # or its hash says which


def test_a_log_without_stages_is_read_whole():
    text = VLLM.replace("_PP0", "").replace("_PP1_TP0", "_TP1")
    assert board.words_of(text)["weights"] == 7.01 == board.words_of(text, 1)["weights"]


def test_a_pipeline_has_all_its_devices():
    assert board.devices_of(row()) == "H100-80GB,H100-80GB"
    assert board.devices_of(row(pipeline_parallel_size=3)).split(",") == ["H100-80GB"] * 6


if __name__ == "__main__":
    tap.main(globals())
