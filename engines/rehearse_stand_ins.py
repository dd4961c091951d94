# SPDX-License-Identifier: MIT
"""What a model that sees or hears needs beside its config.json before an engine loads it: a tokenizer, and what its
repository says of the pictures and sounds that it takes. Where these files are missing, stand-ins are made of what
transformers has by default for such a model, of the config.json, and of processors.tsv, which has what is published
otherwise. A stand-in has as many tokens as the model, and those that stand for pictures have their numbers; it is no use
for reading words."""

import ast
import csv
import inspect
import json
import os
import re
import sys
import textwrap

from rehearse_common import tell

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt")
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
SENSES = ("vision", "audio", "vit", "visual", "speech")
SPOKEN = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")  # how tokens are written that no text has
TOKEN = re.compile(r"(?!add_)\w+_token")
NUMBERED = re.compile(r"((?!add_)\w+_token)_(?:id|index)")
WORDS = r"\n+|\w+|[^\w\s]"
UNKNOWN = "<unknown>"
MADE = (
    "%s has no %s: stand-ins were made of what transformers has by default for %s and of config.json%s; with the files of "
    "the model's repository beside config.json, pictures and sounds are of the size that it takes"
)
LACKING = (
    "%s has no %s: copy %s there from the model's repository; this engine needs more than the config.json, of which no "
    "stand-in could be made (%s)"
)


def read_config(model_dir):
    with open(os.path.join(model_dir, "config.json"), encoding="utf-8") as file:
        return json.load(file)


def senses(model_dir):
    """Whether a model takes more than text: an engine then has to have its tokenizer, too."""
    config = read_config(model_dir)
    if any(config.get(name + "_config") for name in SENSES) or has_one(model_dir, PROCESSORS):
        return True
    try:
        from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
    except ImportError:
        return False
    return config.get("model_type") in PROCESSOR_MAPPING_NAMES


def has_one(folder, names):
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def missing(folder):
    """The files that have to be made."""
    return [names[0] for names in (TOKENIZERS, PROCESSORS) if not has_one(folder, names)]


def with_links(model_dir, made):
    os.makedirs(made)
    for name in os.listdir(model_dir):
        os.symlink(os.path.join(os.path.abspath(model_dir), name), os.path.join(made, name))
    return made


def write(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file)


def published(model_type):
    """What repositories of such models say of their pictures: dictionaries by the file that has them."""
    found = {}
    with open(os.path.join(HERE, "processors.tsv"), encoding="utf-8", newline="") as file:
        for row in csv.reader((line for line in file if not line.startswith("#")), delimiter="\t"):
            if row[0] == model_type:
                found.setdefault(row[1], {})[row[2]] = json.loads(row[3])
    return found


def processor_class(config):
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    return PROCESSOR_MAPPING[type(config)]


def attributes_of_tokenizer(source):
    """{name: how it is written, or None} of the tokens that a processor asks of its tokenizer by name."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and TOKEN.fullmatch(node.attr) and "tokenizer" in ast.unparse(node.value):
            found.setdefault(node.attr, None)
        if isinstance(node, ast.IfExp) and isinstance(node.orelse, ast.Attribute) and isinstance(node.body, ast.Constant):
            if TOKEN.fullmatch(node.orelse.attr):
                found[node.orelse.attr] = node.body.value
    return found


def spoken_tokens(kind):
    """What a processor wants in a vocabulary: names with how they are written, and what has no name."""
    source = textwrap.dedent(inspect.getsource(kind))
    named = attributes_of_tokenizer(source)
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if TOKEN.fullmatch(name) and isinstance(parameter.default, str):
            named[name] = parameter.default
    constants = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    unnamed = [text for text in constants if isinstance(text, str) and SPOKEN.fullmatch(text)]
    return named, unnamed


def numbered_tokens(config):
    """{name: number} of the tokens that a configuration names: of the model before its parts."""
    found, parts = {}, [config]
    while parts:
        part = parts.pop(0)
        for key, value in part.items():
            match = NUMBERED.fullmatch(str(key))
            value = value[0] if isinstance(value, list) and value else value
            if match and isinstance(value, int):
                found.setdefault(match.group(1), value)
        parts += [value for value in part.values() if isinstance(value, dict)]
    return found


def vocabulary(size, named, unnamed, numbers):
    """{text: number} of as many tokens as the model has, each of the given ones once; and how the named ones are written."""
    texts = {name: named.get(name) or f"<{name}>" for name in {*named, *numbers}}
    size = max([size, *(number + 1 for number in numbers.values())])
    by_number = {}
    for name in sorted(numbers):
        texts[name] = by_number.setdefault(numbers[name], texts[name])
    # Newlines are words in themselves: some engines look for runs of them.
    others = [*texts.values(), *unnamed, UNKNOWN, "\n", "\n\n", "\n\n\n", "\n\n\n\n"]
    free = (number for number in range(size - 1, -1, -1) if number not in by_number)
    for text in dict.fromkeys(others):
        if text not in by_number.values():
            by_number[next(free)] = text
    return {by_number.get(number, f"<{number}>"): number for number in range(size)}, texts


def write_tokenizer(folder, config):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    named, unnamed = spoken_tokens(processor_class(config))
    numbers = numbered_tokens(config.to_dict())
    tokens, texts = vocabulary(config.get_text_config().vocab_size, named, unnamed, numbers)
    tokenizer = Tokenizer(models.WordLevel(tokens, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
    tokenizer.add_special_tokens([UNKNOWN, *texts.values(), *unnamed])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    usual = {name: texts.pop(name) for name in ("bos_token", "eos_token", "pad_token") if name in texts}
    usual.setdefault("pad_token", UNKNOWN)
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": UNKNOWN, **usual, "extra_special_tokens": texts})


def edges(size, length):
    """A picture's size with each edge as long as the encoder's, or None: one with a least and a most counts pixels."""
    length = max(length) if isinstance(length, (list, tuple)) else length
    named = {key for key, value in dict(size or {}).items() if value is not None}
    if not length or not named or named == {"shortest_edge", "longest_edge"}:
        return None
    return dict.fromkeys(sorted(named), length)


def of_encoder(part, config):
    """What a part of a processor has by default and the model's encoder otherwise."""
    vision = getattr(config, "vision_config", None)
    said = {}
    for name, key in (("patch_size",) * 2, ("temporal_patch_size",) * 2, ("merge_size", "spatial_merge_size")):
        value = getattr(vision, key, None) or getattr(config, key, None)
        if isinstance(value, int) and isinstance(getattr(part, name, None), int):
            said[name] = value
        elif isinstance(value, int) and isinstance(getattr(part, name, None), dict):
            said[name] = {edge: value for edge in ("height", "width")}
    is_divided = getattr(part, "max_image_size", None)  # into pieces that the encoder takes
    for name in ("size", "crop_size"):
        size = edges(getattr(part, name, None), getattr(vision, "image_size", None))
        if size and not is_divided:
            said[name] = size
    return said


def of_processor(kind, config):
    """Arguments of a processor that the model's configuration has."""
    names = {"patch_size": "patch_size", "spatial_merge_size": "spatial_merge_size", "image_seq_length": "mm_tokens_per_image",
             "vision_feature_select_strategy": "vision_feature_select_strategy"}
    vision = getattr(config, "vision_config", None)
    found = {}
    for name, key in names.items():
        value = getattr(config, key, None)
        value = getattr(vision, key, None) if value is None else value
        if name in inspect.signature(kind.__init__).parameters and value is not None:
            found[name] = value
    return found


def write_processor(folder, config):
    from transformers import AutoProcessor

    kind = processor_class(config)
    write(folder, "preprocessor_config.json", {})
    write(folder, "processor_config.json", {"processor_class": kind.__name__, **of_processor(kind, config)})
    processor = AutoProcessor.from_pretrained(folder)
    known = published(config.model_type)
    for name, part in (("preprocessor_config.json", "image_processor"), ("video_preprocessor_config.json", "video_processor")):
        if getattr(processor, part, None) is not None:
            write(folder, name, {**of_encoder(getattr(processor, part), config), **known.get(name, {})})
    return bool(known)


def write_tie(folder, config):
    """Whether the output is the embedding a checkpoint decides. Where there is none, the part for text does: the whole of
    transformers' configurations says yes where config.json says nothing, whatever its part for text says."""
    said, text = read_config(folder), config.get_text_config()
    is_tied = getattr(text, "tie_word_embeddings", None)
    if "tie_word_embeddings" in said or has_weights(folder) or text is config or is_tied is None:
        return
    os.unlink(os.path.join(folder, "config.json"))
    write(folder, "config.json", {**said, "tie_word_embeddings": is_tied})


def has_weights(folder):
    return any(name.endswith((".safetensors", ".safetensors.index.json", ".bin")) for name in os.listdir(folder))


def complete(model_dir, folder):
    """The folder of a model with all that an engine wants of it: its own, or one with stand-ins beside its files."""
    lacks = missing(model_dir)
    if not senses(model_dir) or (not lacks and has_weights(model_dir)):
        return model_dir
    made = with_links(model_dir, os.path.join(folder, "model"))
    model_type = read_config(model_dir).get("model_type")
    try:
        from transformers import AutoConfig, AutoProcessor

        config = AutoConfig.from_pretrained(model_dir)
        write_tie(made, config)
        if TOKENIZERS[0] in lacks:
            write_tokenizer(made, config)
        is_published = PROCESSORS[0] in lacks and write_processor(made, config)
        AutoProcessor.from_pretrained(made)
    except Exception as error:
        files = " and ".join(lacks)
        said = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        sys.exit(LACKING % (model_dir, files, "it" if len(lacks) == 1 else "them", said))
    if lacks:
        tell(MADE % (model_dir, " and no ".join(lacks), model_type, ", pictures as published" if is_published else ""))
    return made
