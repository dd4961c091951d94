# SPDX-License-Identifier: MIT
"""Loads a model by a device_map and generates some tokens: what lies on each device, by PyTorch's own counts."""

import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

folder, mapped, path = sys.argv[1:]
with open(mapped, encoding="utf-8") as file:
    device_map = json.load(file)
config = AutoConfig.from_pretrained(folder)
AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, device_map=device_map, dtype=torch.bfloat16)
held, seen = {}, set()
for _, parameter in model.named_parameters(remove_duplicate=False):
    if parameter.data_ptr() not in seen:
        seen.add(parameter.data_ptr())
        held[str(parameter.device.index)] = held.get(str(parameter.device.index), 0) + parameter.numel() * parameter.element_size()
allocated = {str(i): torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count())}
tensors = {str(i): sum(p.device.index == i for p in model.parameters()) for i in range(torch.cuda.device_count())}
done = model.generate(torch.ones([1, 8], dtype=torch.long, device="cuda:0"), max_new_tokens=4, min_new_tokens=4, do_sample=False)
with open(path, "w", encoding="utf-8") as file:
    json.dump({"held": held, "allocated": allocated, "tensors": tensors, "map": {k: str(v) for k, v in model.hf_device_map.items()},
               "length": done.shape[1]}, file)
