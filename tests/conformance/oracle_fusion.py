#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models of experts on devices that fuse operations, as CUDA's do: writes the models of oracle_fusion.csv, or plans it.

usage: oracle_fusion.py FOLDER                          writes the models, a header and a hole each
       oracle_fusion.py --plan ENGINE FOLDER LIBRARY    rehearses each point with the programs in folder ENGINE; writes CSV
       oracle_fusion.py --compare ENGINE FOLDER LIBRARY the same, and compares with oracle_fusion.csv: speaks TAP

LIBRARY is what `scripts/engine fusion` brings: ggml-cuda's own choice of what is kept for fused operations, of the engine's
source, put in place of the pretended devices'. With `-` for it they choose themselves.
"""
import csv
import itertools
import pathlib
import random
import sys

import oracle_families
import oracle_points
import oracle_shapes

BUILD = 11434
POINTS_OF_SHAPE = 14
POINTS_OF_FAMILY = 6
SHAPES = ('qwen3-30b-a3b', 'qwen3-235b-a22b', 'qwen3-next-80b', 'gpt-oss-20b', 'gpt-oss-120b', 'glm-4.5-air', 'glm-4.7-flash',
          'deepseek-v2-lite', 'deepseek-v3', 'mixtral-8x7b', 'llama4-scout', 'granite4-h-tiny')
FAMILIES = ('gemma4-26b-a4b', 'minimax-m2', 'ernie4.5-21b-a3b', 'granite-3b-a800m', 'dots1-142b', 'lfm2-8b-a1b',
            'deepseek-moe-16b', 'k-exaone-236b', 'llama4-maverick', 'phi-3.5-moe', 'qwen35-35b-a3b', 'qwen2moe-14b',
            'kimi-linear-48b', 'deepseek-v3-groups', 'deepseek-v2-lite-plain', 'ling-mini-2', 'hunyuan-a13b',
            'nemotron-h-30b-a3b', 'jamba-1.5-mini', 'qwen3vl-30b-a3b', 'granite4-h-small', 'kimi-k2', 'glm-5',
            'deepseek-v3.2', 'olmoe-7b', 'qwen3moe-odd')
LARGER_THAN_A_DEVICE = ('kimi-k2',)
COLUMNS = ('shape', 'build', 'tool', 'ctx', 'ub', 'np', 'fa', 'ctk', 'ctv', 'ndev', 'ngl', 'model_mib', 'context_mib', 'compute_mib')


def write_models(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHAPES:
        oracle_shapes.Model(*oracle_shapes.SHAPES[name]).write(folder / f'{name}.gguf')
    oracle_families.main(folder, *FAMILIES)


def settings_of(shape):
    """Settings that differ in all that graphs differ by, the same ones each time."""
    every = list(itertools.product(('server', 'alloc-path'), (2048, 16384), (128, 512, 2048), (1, 4), ('on', 'off'), ('f16', 'q8_0'),
                                   (1, 2, 4), ('all', 'half', '0')))
    possible = [s for s in every if (s[4] == 'on' or s[5] == 'f16') and (s[6] > 1 or shape not in LARGER_THAN_A_DEVICE)]
    random.Random(shape).shuffle(possible)
    # Most users have all layers on devices.
    whole = [s for s in possible if s[7] == 'all']
    # A dry run plans batches only; where the host has layers, batches of single tokens may need more.
    others = [s for s in possible if s[7] != 'all' and s[0] == 'server']
    half = (POINTS_OF_SHAPE if shape in SHAPES else POINTS_OF_FAMILY) // 2
    return whole[:half] + others[:half]


def points():
    for shape in SHAPES + FAMILIES:
        for tool, context, ubatch, sequences, flash, kind, devices, layers in settings_of(shape):
            yield oracle_points.Point(shape, BUILD, tool, context, ubatch, sequences, flash, kind, kind, devices, layers, {})


def row_of(point, plan):
    parts = {part: [plan.get(place, {}).get(part, 0) / oracle_points.MIB for place in point.places()]
             for part in oracle_points.PARTS}
    whole = [' '.join(str(int(size)) for size in parts[part]) for part in ('weights', 'cache')]
    return (point.shape, point.build, point.tool, point.context, point.ubatch, point.sequences, point.flash, point.type_k,
            point.type_v, point.devices, point.layers, *whole, ' '.join(f'{size:.4f}' for size in parts['compute']))


def plans(engine, folder, library, every):
    import oracle_plans  # pylint: disable=import-outside-toplevel
    preload = None if library == '-' else pathlib.Path(library).resolve()
    return oracle_plans.plan_all(every, lambda p: p.command(engine, folder), str(BUILD), preload=preload)


def plan(engine, folder, library):
    every = list(points())
    out = csv.writer(sys.stdout, lineterminator='\n')
    out.writerow(COLUMNS)
    for point, made in zip(every, plans(engine, folder, library, every)):
        if isinstance(made, Exception):
            print(f'{point.name()}: {made}', file=sys.stderr)
        else:
            out.writerow(row_of(point, made))


def compare(engine, folder, library):
    """Whether the engine's own choice gives what is in the file."""
    every = oracle_points.read('oracle_fusion.csv')
    failed = 0
    for number, (point, made) in enumerate(zip(every, plans(engine, folder, library, every)), 1):
        found = [made] if isinstance(made, Exception) else oracle_points.differences(point, made)
        failed += bool(found)
        print(f'{"not " if found else ""}ok {number} - {point.name()}')
        for difference in found:
            print(f'# {difference}')
    print(f'1..{len(every)}')
    return failed > 0


if __name__ == '__main__':
    if sys.argv[1] == '--plan':
        plan(*sys.argv[2:])
    elif sys.argv[1] == '--compare':
        sys.exit(compare(*sys.argv[2:]))
    else:
        write_models(*sys.argv[1:])
