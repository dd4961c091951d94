#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same points, planned by many builds of llama.cpp: writes the models of oracle_builds.csv, or plans it.

usage: oracle_builds.py FOLDER                             writes the models, a header and a hole each
       oracle_builds.py --plan MODELS BUILD=ENGINE...      rehearses each point with each build; writes CSV

ENGINE is a folder that scripts/engine libllama BUILD prints. Devices fuse nothing (--no-fusion): what they fuse is not said by
a build's libraries.
"""
import csv
import itertools
import pathlib
import random
import sys

import oracle_families
import oracle_fusion
import oracle_points
import oracle_shapes

POINTS_OF_SHAPE = 4
OUTPUTS_OF_SEQUENCES = 9464  # llama-server reserves rows for sequences from this build on
FAMILIES = tuple(oracle_families.SHAPES) + tuple(oracle_families.ODD)
LARGER_THAN_A_DEVICE = ('kimi-k2',)
PROGRAM = 'llama-plan'


def write_models(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, spec in oracle_shapes.SHAPES.items():
        oracle_shapes.Model(*spec).write(folder / f'{name}.gguf')
    oracle_families.main(folder, *FAMILIES)


def settings_of(shape, build):
    """Settings that differ in all that graphs differ by, the same ones for each build; of further families one, with all
    layers on devices for even builds and not so for odd ones."""
    every = list(itertools.product(('server', 'alloc-path', 'server-unified'), (2048, 16384), (32, 128, 512, 2048), (1, 4), ('on', 'off'),
                                   ('f16', 'q8_0'), (0, 1, 2, 4), ('all', 'half', '0')))
    possible = [s for s in every if (s[4] == 'on' or s[5] == 'f16') and (s[6] > 1 or shape not in LARGER_THAN_A_DEVICE)
                and (s[6] or s[7] == '0') and (s[3] > 1 or s[0] != 'server-unified')]
    random.Random(shape).shuffle(possible)
    # Most users have all layers on devices.
    whole = [s for s in possible if s[7] == 'all']
    # A dry run plans batches only; where the host has layers, batches of single tokens may need more.
    others = [s for s in possible if s[7] != 'all' and s[0] != 'alloc-path']
    if shape not in oracle_shapes.SHAPES:
        return others[:1] if build % 2 else whole[:1]
    return whole[:POINTS_OF_SHAPE // 2] + others[:POINTS_OF_SHAPE // 2]


def points(build):
    for shape in (*oracle_shapes.SHAPES, *FAMILIES):
        for tool, context, ubatch, sequences, flash, kind, devices, layers in settings_of(shape, build):
            yield oracle_points.Point(shape, build, tool, context, ubatch, sequences, flash, kind, kind, devices, layers, {})


def command_of(point, engine, models):
    words = point.command(engine, models, PROGRAM)
    if point.tool.startswith('server') and point.build >= OUTPUTS_OF_SEQUENCES:
        words += ['--outputs', str(point.sequences)]
    return words + (['-kvu', 'on'] if point.tool == 'server-unified' else [])


def plan(models, *engines):
    import oracle_plans  # pylint: disable=import-outside-toplevel
    out = csv.writer(sys.stdout, lineterminator='\n')
    out.writerow(oracle_fusion.COLUMNS)
    for build, engine in (text.split('=') for text in engines):
        every = list(points(int(build)))
        plans = oracle_plans.plan_all(every, lambda p, at=engine: command_of(p, at, models), build, ['--no-fusion'])
        for point, made in zip(every, plans):
            if isinstance(made, Exception):
                print(f'{point.name()}: {made}', file=sys.stderr)
            else:
                out.writerow(oracle_fusion.row_of(point, made))
        sys.stdout.flush()


if __name__ == '__main__':
    if sys.argv[1] == '--plan':
        plan(*sys.argv[2:])
    else:
        write_models(*sys.argv[1:])
