# SPDX-License-Identifier: MIT
"""The maps that accelerate makes by itself, device_map="auto": reads a list of {config, limits} and writes for each the
device of every module that it names, or why there is none."""

import json
import sys

import torch
from accelerate import init_empty_weights
from accelerate.utils import get_balanced_memory, infer_auto_device_map
from transformers import AutoConfig, AutoModelForCausalLM


def maps_of(config, limits):
    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config), dtype=torch.bfloat16)
    model.tie_weights()
    whole = list(model._no_split_modules or [])
    for limit in limits:
        memory = {number: size for number, size in enumerate(limit)} | {"cpu": 0}
        balanced = get_balanced_memory(model, max_memory=memory, dtype=torch.bfloat16, no_split_module_classes=whole)
        balanced["cpu"] = 1 << 50  # what fits nowhere shows as "cpu"
        found = infer_auto_device_map(model, max_memory=balanced, dtype=torch.bfloat16, no_split_module_classes=whole)
        yield {name: str(device) for name, device in found.items()}


asked = json.load(open(sys.argv[1], encoding="utf-8"))
answers = []
for one in asked:
    try:
        answers.append(list(maps_of(one["config"], one["limits"])))
    except Exception as error:  # a family that this version does not know
        answers.append(f"{type(error).__name__}: {error}"[:200])
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(answers, file)
