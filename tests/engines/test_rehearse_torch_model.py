#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`memtally rehearse DIR --engine transformers` with the real package: weights and cache against what the config.json
comes to by hand, on one device and divided over two."""

import functools
import json
import os
import subprocess
import tempfile

import engine
import memtally
import tap

LAYERS, WIDTH, INNER, HEADS, KV_HEADS, HEAD, VOCABULARY = 24, 512, 1024, 8, 2, 64, 8000
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER,
          "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
          "vocab_size": VOCABULARY, "max_position_embeddings": 4096, "tie_word_embeddings": False,
          "torch_dtype": "bfloat16"}
SEQUENCES, CONTEXT, WRITTEN = 2, 1032, 8
PROMPT = CONTEXT - WRITTEN

# Projections of queries and output, of keys and values; three of the feed-forward; two norms. Each is a multiple of the
# 512 bytes that PyTorch's allocator rounds to.
LAYER = 2 * (2 * WIDTH * HEADS * HEAD + 2 * WIDTH * KV_HEADS * HEAD + 3 * WIDTH * INNER + 2 * WIDTH)
TABLE = 2 * VOCABULARY * WIDTH
NORM = 2 * WIDTH
FREQUENCIES = 512  # of the rotation: 32 of 4 bytes, rounded


@functools.cache
def frequencies():
    """transformers 5 has a second copy of them (modeling_llama.py, original_inv_freq)."""
    said = subprocess.run([engine.torch(), "-c", "import importlib.metadata as m; print(m.version('transformers'))"],
                          check=True, capture_output=True, text=True).stdout
    return FREQUENCIES * (1 if int(said.split(".")[0]) < 5 else 2)


@functools.cache
def rehearsed(devices):
    """The document of a rehearsal of the config.json alone."""
    python = engine.torch()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        said = memtally.must("rehearse", folder, "--engine", "transformers", "--engine-path", python, "--device", devices,
                             "--context", str(CONTEXT), "--sequences", str(SEQUENCES), "--json")
        return json.loads(said.stdout)


def bytes_of(devices, category):
    """The figures of each device in turn."""
    places = [place for place in rehearsed(devices)["places"] if place["place"] != "host"]
    return [sum(row["allocated_bytes"] for row in place["rows"] if row["category"] == category) for place in places]


def layers_of_cache(layers):
    """What keys and values of some layers can take. At one moment tensors have the tokens of this step or of the last;
    those of the layer that is being extended are there twice, or not yet known as the cache's."""

    def tensor(tokens):
        return 2 * KV_HEADS * HEAD * tokens * SEQUENCES

    return {
        new * tensor(tokens + 1) + (n - new) * tensor(tokens)
        for tokens in range(PROMPT, CONTEXT - 1)
        for n in range(2 * layers - 1, 2 * layers + 3)
        for new in range(n + 1)
    }


def is_cache_of(held, layers):
    """Beside keys and values a cache has a few numbers of its own, each a block of 512 bytes."""
    return any(0 <= held - wanted <= 8 * 512 for wanted in layers_of_cache(layers))


def test_weights_on_one_device_are_the_sum_of_the_shapes():
    assert bytes_of("24GiB", "weights") == [2 * TABLE + LAYERS * LAYER + NORM + frequencies()], bytes_of("24GiB", "weights")


def test_the_cache_has_keys_and_values_of_each_layer_head_and_token():
    (held,) = bytes_of("24GiB", "kv_cache")
    prompted = 2 * LAYERS * KV_HEADS * HEAD * PROMPT * SEQUENCES * 2
    assert 0.97 * prompted < held < 1.03 * prompted and is_cache_of(held, LAYERS), (held, prompted)


def test_layers_are_divided_over_two_devices():
    """The embedding comes first; the output, the last norm and the rotation are beside the last layers."""
    first, second = bytes_of("24GiB,24GiB", "weights")
    on_first, rest = divmod(first - TABLE, LAYER)
    assert rest == 0 and 0 < on_first < LAYERS, (first, second)
    assert second == (LAYERS - on_first) * LAYER + TABLE + NORM + frequencies(), (first, second)
    cache = bytes_of("24GiB,24GiB", "kv_cache")
    assert is_cache_of(cache[0], on_first) and is_cache_of(cache[1], LAYERS - on_first), (on_first, cache)


VISION, VISION_INNER, VISION_LAYERS, PLACES = 256, 512, 3, 4  # an image of 28 x 28 in pieces of 14 x 14
SEES = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": VOCABULARY - 1,
        "torch_dtype": "bfloat16", "text_config": dict(CONFIG, num_hidden_layers=4),
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": VISION, "intermediate_size": VISION_INNER,
                          "num_hidden_layers": VISION_LAYERS, "num_attention_heads": 4, "image_size": 28, "patch_size": 14}}


def parameters_of(config):
    """What a rehearsal of a config.json alone holds of them on one device, with its document."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        said = memtally.must("rehearse", folder, "--engine", "transformers", "--engine-path", engine.torch(), "--device", "24GiB",
                             "--context", "264", "--json")
    document = json.loads(said.stdout)
    (place,) = [place for place in document["places"] if place["place"] == "gpu:0"]
    (weights,) = [row for row in place["rows"] if row["category"] == "weights"]
    (parameters,) = [part["allocated_bytes"] for part in weights["detail"] if part["name"] == "parameters"]
    return parameters, document


def test_an_output_of_its_own_is_there_where_the_part_for_text_says_so():
    """transformers 5 takes a Mistral 3 of pictures for tied where its whole says nothing; its checkpoints have both tables."""
    sees = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "torch_dtype": "bfloat16",
            "text_config": dict(CONFIG, architectures=None, model_type="mistral", num_hidden_layers=2, head_dim=HEAD),
            "vision_config": {"model_type": "pixtral", "hidden_size": VISION, "intermediate_size": VISION_INNER, "head_dim": 64,
                              "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 28, "patch_size": 14}}
    tied = dict(sees, text_config=dict(sees["text_config"], tie_word_embeddings=True))
    assert parameters_of(sees)[0] - parameters_of(tied)[0] == TABLE


def test_a_model_that_sees_needs_no_more_than_its_config():
    """CLIP has a table of pieces and places, four projections, two layers of a feed-forward and two norms, all with biases,
    and a norm before and after. Two layers lead from it to the text's width."""
    clip = 3 * 14 * 14 * VISION + VISION + (PLACES + 1) * VISION + 4 * VISION
    clip += VISION_LAYERS * (4 * VISION * VISION + 4 * VISION + 2 * VISION * VISION_INNER + VISION_INNER + VISION + 4 * VISION)
    between = VISION * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH
    parameters, document = parameters_of(SEES)
    assert parameters == 2 * (clip + between) + 2 * TABLE + 4 * LAYER + NORM, parameters
    assert any("text alone" in note for note in document["notes"]), document["notes"]


TOKENS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import rehearse_stand_ins
from transformers import AutoConfig, AutoTokenizer
rehearse_stand_ins.write_tokenizer(sys.argv[2], AutoConfig.from_pretrained(sys.argv[2]))
made = AutoTokenizer.from_pretrained(sys.argv[2])
print(json.dumps([len(made), made(made.image_token * 2 + made.boi_token).input_ids, made("a 0.5 b")["input_ids"], made.eos_token_id]))
"""
ENGINES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "engines")


def test_a_stand_in_of_a_tokenizer_is_one_to_transformers():
    """Gemma 3's numbers (configuration_gemma3.py): 262144 for a piece of a picture, 255999 before one, 1 for an end."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "vocab_size": 262208}}, file)
        said = memtally.run("rehearse", "--device", "24GiB", "--requests", "0", "--no-suggest", "--", engine.torch(), "-c", TOKENS,
                            ENGINES, folder)
    (line,) = [line for line in said.stderr.splitlines() if line.startswith("[262208")]
    length, pictures, words, end = json.loads(line)
    assert (length, pictures, end) == (262208, [262144, 262144, 255999], 1), line
    assert len(words) == 5 and len(set(words)) == 1, line


def test_a_version_that_is_not_there_is_said():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        done = memtally.run("rehearse", folder, "--engine", "transformers@4.0.1", "--engine-path", engine.torch(),
                            "--device", "24GiB")
    assert done.returncode == 3 and "not 4.0.1; name another with --engine-path" in done.stderr, done


if __name__ == "__main__":
    tap.main(globals())
