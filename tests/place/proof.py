#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Placements beside those that others make by themselves, on real configurations and sets of cards: accelerate's
device_map="auto", llama.cpp's own fit (rehearsed), equal stages, and cards that are filled in their order, as exllamav3
loads. Each set of cards has room for the model, just about. Where ours says that no map fits, CP-SAT looks for one.

    proof.py MEMTALLY TORCH LLAMA_SERVER      prints counts for each, and fails where ours is worse by its own objective;
                                              beside llama.cpp, by more than half a point on the fullest card. CP-SAT
                                              needs OR-tools in this Python (pip install ortools)
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, "..", "conformance", "configs")
sys.path.insert(0, os.path.join(HERE, "..", "support"))
CONTEXT = 4096
# Parts of a set of cards that together have `room` times what the model needs.
SETS = (((1, 1), 1.08), ((1, 1, 1), 1.10), ((2, 1), 1.08), ((3, 2, 1), 1.12), ((1, 1, 1, 1), 1.15))
STEP = 1 << 27  # sizes of cards are multiples of it


def answered(memtally, *arguments):
    done = subprocess.run([memtally, *arguments], capture_output=True, text=True, check=False)
    said = json.loads(done.stdout) if done.stdout.startswith("{") else None
    return said if said and said["kind"] != "error" else None


def size_of(unit):
    return unit["dense_bytes"] + unit["expert_bytes"] + unit["cache_bytes"] + unit["work_bytes"]


def overheads_of(document):
    """What each card has beside its units; of one that is not in use the most of any."""
    found = []
    for number, device in enumerate(document["devices"]):
        work = sum(unit["work_bytes"] for unit in document["units"] if unit["device"] == number)
        found.append(device["overhead_bytes"] - work if device["used_bytes"] else None)
    return [max(size for size in found if size is not None) if one is None else one for one in found]


def cards_of(alone, parts, room):
    """Sizes that hold the model's units with each card's own overhead and a gigabyte free."""
    units = sum(size_of(unit) for unit in alone["units"])
    overhead = alone["devices"][0]["overhead_bytes"] + (1 << 30)
    return [-(-int(units * room * part / sum(parts) + overhead) // STEP) * STEP for part in parts]


def tokens_of(document, where, limits, used):
    """Further tokens of context until a card is at its limit, each layer's cache growing as it is at this context."""
    each = [0] * len(limits)
    for unit, device in zip(document["units"], where, strict=True):
        if device is not None:
            each[device] += unit["cache_bytes"] / CONTEXT
    return min((limit - size) / grown for limit, size, grown in zip(limits, used, each) if grown)


def came_to(document, where):
    """Fits, crossings, the fullest card and tokens of a way to place the units of a document; `where` has the device of each."""
    limits = [device["limit_bytes"] for device in document["devices"]]
    capacities = [device["capacity_bytes"] for device in document["devices"]]
    used = [0] * len(limits)
    for unit, device in zip(document["units"], where, strict=True):
        if device is not None:
            used[device] += size_of(unit)
    used = [size + overhead if size else 0 for size, overhead in zip(used, overheads_of(document))]
    crossings = sum(a != b for a, b in zip(where, where[1:]))
    fits = None not in where and all(size <= limit for size, limit in zip(used, limits))
    tokens = tokens_of(document, where, limits, used) if fits and any(unit["cache_bytes"] for unit in document["units"]) else 0
    return fits, crossings, max(size / capacity for size, capacity in zip(used, capacities)), tokens


def module_device(found, name):
    """The device of a module: its own, or that of the nearest one above it; of one that was divided the first part's."""
    while name:
        if name in found:
            return found[name]
        name = name.rpartition(".")[0]
    return None


def where_by_map(document, found):
    """The device of each unit by a device_map; None: not on a card."""
    layers = {}
    for name, device in found.items():
        match = re.search(r"\.(?:layers|h|blocks)\.(\d+)(?:\.|$)", name)
        if match:
            layers.setdefault(int(match[1]), device)
    where = []
    for unit in document["units"]:
        number = re.fullmatch(r"layer (\d+)", unit["name"])
        if number:
            device = layers.get(int(number[1]), found.get(""))
        elif unit["name"] == "embedding":
            device = next((d for n, d in found.items() if re.search(r"embed_tokens|wte|word_embeddings|embeddings$", n)), None)
        elif unit["name"] == "output":
            device = found.get("lm_head")
        else:
            device = next((d for n, d in found.items() if re.fullmatch(r".*\b(norm|norm_f|ln_f|final_layernorm)", n)), None)
        device = module_device(found, "") if device is None and "" in found else device
        where.append(int(device) if device is not None and device.isdigit() else None)
    return where


def equal_stages(document):
    """As many layers in each stage; what is left over goes to those before the last, as vLLM has it."""
    n = len(document["devices"])
    layers = sum(unit["name"].startswith("layer ") for unit in document["units"])
    sizes = [layers // n] * n
    for i in range(2, layers % n + 2):
        sizes[-i] += 1
    stages = [stage for stage, size in enumerate(sizes) for _ in range(size)]
    before = next(i for i, unit in enumerate(document["units"]) if unit["name"] == "layer 0")
    return [0] * before + stages + [n - 1] * (len(document["units"]) - before - layers)


def filled_in_order(document):
    """Each card in its turn takes modules while it has room, as exllamav3's loader does."""
    limits = [device["limit_bytes"] for device in document["devices"]]
    overheads = [*overheads_of(document), 0]
    where, device, used = [], 0, overheads[0]
    for unit in document["units"]:
        size = size_of(unit)
        while device < len(limits) and used + size > limits[device]:
            device, used = device + 1, overheads[device + 1]
        used += size
        where.append(device if device < len(limits) else None)
    return where


def cpsat_finds_a_map(units, limits, overheads):
    """Whether any map of the units to cards keeps to their limits, by an exact solver."""
    from ortools.sat.python import cp_model

    problem = cp_model.CpModel()
    on = [[problem.new_bool_var("") for _ in limits] for _ in units]
    for row in on:
        problem.add_exactly_one(row)
    for card, limit in enumerate(limits):
        problem.add(sum(size * row[card] for size, row in zip(units, on)) <= max(0, limit - overheads[card]))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = 20
    status = solver.solve(problem)
    return {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}.get(status)


class Refusals:
    """Sets of cards of which as much is kept free as makes ours say that nothing fits: an exact solver must say so too."""

    def __init__(self):
        self.asked, self.wrong, self.open = 0, [], 0

    def add(self, name, units, limits, overheads):
        found = cpsat_finds_a_map(units, limits, overheads)
        self.asked += 1
        self.open += found is None
        if found:
            self.wrong.append(name)

    def print(self):
        print(f"sets of cards on which ours fits nothing: {self.asked}; CP-SAT finds a map for {len(self.wrong)}, "
              f"and came to no end for {self.open}: {', '.join(self.wrong) or 'none'}", flush=True)
        return self.asked > 0 and not self.wrong


def just_too_small(memtally, config, best):
    """Units, and the limits of these cards when so much of each is kept free, in steps of 16 MiB, that ours fits nothing, with what
    a card has beside its units."""
    capacities = [device["capacity_bytes"] for device in best["devices"]]
    asked = ",".join(f"{size}B" for size in capacities)
    fits, fails, nearest = 1 << 30, max(capacities), best
    while fails - fits > 1 << 24:
        middle = (fails + fits) // 2
        done = answered(memtally, "place", config, "--device", asked, "--buffer", f"{middle}B", "--context", str(CONTEXT), "--json",
                        "--no-host", "--engine", "transformers@4.57.6")
        if done:
            fits, nearest = middle, done
        else:
            fails = middle
    limits = [max(0, size - fails) for size in capacities]
    return [size_of(unit) for unit in nearest["units"]], limits, overheads_of(nearest)


class Table:
    def __init__(self, title):
        self.title, self.rows = title, []

    def add(self, name, ours, theirs):
        self.rows.append((name, ours, theirs))

    def worse_by(self, points):
        """Where theirs fits and ours does not, has more crossings, or with as many is fuller by so many points."""
        return [name for name, o, t in self.rows
                if t[0] and (not o[0] or o[1] > t[1] or (o[1] == t[1] and 100 * (o[2] - t[2]) > points))]

    def print(self, allowed_points):
        both = [(o, t) for _, o, t in self.rows if o[0] and t[0]]
        only = sum(o[0] and not t[0] for _, o, t in self.rows)
        worse = self.worse_by(1e-7)
        print(f"{self.title}: {len(self.rows)} pairs")
        print(f"  ours fits {sum(o[0] for _, o, _ in self.rows)}, theirs {sum(t[0] for _, _, t in self.rows)}, only ours {only}, "
              f"neither {sum(not o[0] and not t[0] for _, o, t in self.rows)}")
        gained = sorted(o[3] - t[3] for o, t in both if len(o) > 3)
        if gained:
            print(f"  tokens of context that ours has more: median {gained[len(gained) // 2]:.0f}, from {gained[0]:.0f} to {gained[-1]:.0f}")
        if both:
            print(f"  where both fit: crossings {sum(o[1] for o, _ in both) / len(both):.2f} and "
                  f"{sum(t[1] for _, t in both) / len(both):.2f}, fullest card {100 * sum(o[2] for o, _ in both) / len(both):.1f} and "
                  f"{100 * sum(t[2] for _, t in both) / len(both):.1f} %")
        print(f"  ours is worse by its own objective in {len(worse)}: {', '.join(worse) or 'none'}", flush=True)
        return not self.worse_by(allowed_points)


def pairs_of(memtally, config, *options):
    """A document for each set of cards; of a model that no card of any size can be asked for, none."""
    alone = answered(memtally, "place", config, "--device", "9TiB", "--context", str(CONTEXT), "--json", *options)
    for parts, room in SETS if alone else ():
        cards = cards_of(alone, parts, room)
        asked = ",".join(str(size) + "B" for size in cards)
        best = answered(memtally, "place", config, "--device", asked, "--context", str(CONTEXT), "--json", "--no-host", *options)
        yield parts, asked, best


def against_maps(memtally, torch, environment, folder):
    auto, equal, in_order = Table('accelerate, device_map="auto"'), Table("equal stages"), Table("filled in order, as exllamav3 loads")
    refusals = Refusals()
    asked, kept = [], []
    for name in sorted(os.listdir(CONFIGS)):
        found = [(parts, best) for parts, _, best in
                 pairs_of(memtally, os.path.join(CONFIGS, name), "--engine", "transformers@4.57.6")] if name.endswith(".json") else []
        if not found or not all(best and best.get("kind") == "placement" for _, best in found):
            continue
        here = os.path.join(folder, name.removesuffix(".json"))
        os.mkdir(here)
        os.symlink(os.path.join(CONFIGS, name), os.path.join(here, "config.json"))
        asked.append({"config": here, "limits": [[device["limit_bytes"] for device in best["devices"]] for _, best in found]})
        kept.append((name, found))
    given, made = os.path.join(folder, "asked.json"), os.path.join(folder, "made.json")
    with open(given, "w", encoding="utf-8") as file:
        json.dump(asked, file)
    subprocess.run([torch, os.path.join(HERE, "auto_maps.py"), given, made], env=environment, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(made, encoding="utf-8") as file:
        answers = json.load(file)
    for (name, found), maps in zip(kept, answers, strict=True):
        for number, (parts, best) in enumerate(found):
            ours = came_to(best, [unit["device"] if unit["device"] != "host" else None for unit in best["units"]])
            label = f"{name.removesuffix('.json')} on {':'.join(map(str, parts))}"
            equal.add(label, ours, came_to(best, equal_stages(best)))
            in_order.add(label, ours, came_to(best, filled_in_order(best)))
            refusals.add(label, *just_too_small(memtally, os.path.join(CONFIGS, name), best))
            if not isinstance(maps, str):
                auto.add(label, ours, came_to(best, where_by_map(best, maps[number])))
    return [auto, equal, in_order], refusals


def held_by_llama_cpp(memtally, server, model, cards, flags):
    """Weights on the host, cards that have some, and the share of the fullest, as llama.cpp asks for them; None where it does not start."""
    done = answered(memtally, "rehearse", "--json", "--no-suggest", "--requests", "0", "--device", cards, "--", server, "-m", model, "-c", str(CONTEXT), *flags)
    if not done or done.get("verdict") == "CANNOT" or not done.get("places"):
        return None
    host = next(place for place in done["places"] if place["place"] == "host")
    weights = sum(row["allocated_bytes"] for row in host["rows"] if row["category"] == "weights")
    devices = [place for place in done["places"] if place["place"].startswith("gpu:")]
    shares = [place["total_allocated_bytes"] / place["capacity_bytes"] for place in devices]
    used = sum(any(row["category"] == "weights" for row in place["rows"]) for place in devices)
    return weights, used, max(shares)


def held_as_placed(memtally, server, model, cards, best):
    """The same with a placement's flags, on the cards that it lets llama.cpp see."""
    seen = best["environment"].removeprefix("CUDA_VISIBLE_DEVICES=")
    every = cards.split(",")
    shown = ",".join(every[int(i)] for i in seen.split(",")) if seen else cards
    return held_by_llama_cpp(memtally, server, model, shown, shlex.split(best["flags"]))


def against_fit(memtally, server, folder):
    """llama.cpp leaves 1 GiB free, as ours does; a layer on the host is what neither wants."""
    table = Table("llama.cpp's own fit")
    for name in sorted(os.listdir(CONFIGS)):
        model = os.path.join(folder, name + ".gguf")
        made = subprocess.run([memtally, "sample-model", "--from", os.path.join(CONFIGS, name), model, "--sparse", "--quiet",
                               "--drop-vocabulary", "--type", "q4_k"], capture_output=True, check=False)
        for parts, cards, best in pairs_of(memtally, model) if made.returncode == 0 else ():
            theirs = held_by_llama_cpp(memtally, server, model, cards, [])
            ours = held_as_placed(memtally, server, model, cards, best) if best else None
            if not theirs:
                continue
            # Where tensors are placed by hand, as its own fit does, llama.cpp keeps no copies for devices that work at once.
            if ours and ours[1] == theirs[1] and ours[2] > theirs[2] and "-ot" not in best["flags"]:
                alone = answered(memtally, "place", model, "--device", cards, "--context", str(CONTEXT), "--json", "--no-host", "--no-copies")
                without = held_as_placed(memtally, server, model, cards, alone)
                print(f"  {name} on {parts}: {100 * ours[2]:.2f} %, theirs {100 * theirs[2]:.2f} %, "
                      f"ours without copies {100 * without[2]:.2f} %")
                ours = without
            least = min(ours[0], theirs[0]) if ours else theirs[0]
            layers = [size_of(unit) for unit in best["units"] if unit["name"].startswith("layer ")] if best else [2]
            table.add(f"{name.removesuffix('.json')} on {':'.join(map(str, parts))}",
                      (True, ours[1] - 1, ours[2]) if ours else (False, 0, 0),
                      (theirs[0] < least + min(layers) // 2, theirs[1] - 1, theirs[2]))
        if os.path.exists(model):
            os.remove(model)
    return [table]


def main():
    import on_host

    memtally, torch, server = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        environment = on_host.stage(os.path.join(folder, "stage"))
        tables, refusals = against_maps(memtally, torch, environment, folder)
        tables += against_fit(memtally, server, folder)
    # Ours makes the high ends of bands small; beside llama.cpp what was measured counts.
    results = [table.print(allowed) for table, allowed in zip(tables, (1e-7, 1e-7, 1e-7, 0.5), strict=True)]
    sys.exit(0 if all([*results, refusals.print()]) else 1)


main()
