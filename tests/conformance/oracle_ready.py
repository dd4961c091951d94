#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server that is ready, with batches so small that the host computes some: writes the models of oracle_ready.csv, or plans it.

usage: oracle_ready.py FOLDER                      writes the models, a header and a hole each
       oracle_ready.py --plan ENGINE FOLDER        rehearses each point with the llama-server in folder ENGINE; writes CSV
"""
import csv
import dataclasses
import itertools
import pathlib
import random
import sys

import oracle_families
import oracle_fusion
import oracle_points
import oracle_shapes

BUILD = 11434
POINTS_OF_SHAPE = 6
SHAPES = ('qwen35-27b', 'qwen3-next-80b', 'gpt-oss-20b', 'llama3-8b', 'deepseek-v2-lite')
FAMILIES = ('qwen35-35b-a3b', 'gemma4-26b-a4b', 'nemotron-h-30b-a3b', 'jamba-1.5-mini')


def write_models(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in SHAPES:
        oracle_shapes.Model(*oracle_shapes.SHAPES[name]).write(folder / f'{name}.gguf')
    oracle_families.main(folder, *FAMILIES)


def points():
    for shape in SHAPES + FAMILIES:
        every = list(itertools.product((2048, 16384), (16, 32, 64, 96), (1, 2), ('on', 'off'), (1, 2), ('half', '0')))
        random.Random(shape).shuffle(every)
        # First of all what was seen to grow: one sequence, and batches that move to a device.
        every.sort(key=lambda s: s[1] < 32 or s[2] > 1)
        for context, ubatch, sequences, flash, devices, layers in every[:POINTS_OF_SHAPE - 2] + every[-2:]:
            yield oracle_points.Point(shape, BUILD, 'server', context, ubatch, sequences, flash, 'f16', 'f16', devices, layers, {})


def plan(engine, folder):
    import oracle_plans  # pylint: disable=import-outside-toplevel
    every = list(points())
    out = csv.writer(sys.stdout, lineterminator='\n')
    out.writerow(oracle_fusion.COLUMNS)
    made = oracle_plans.plan_all(every, lambda p: p.command(engine, folder), str(BUILD), ('--no-fusion',))
    for point, each in zip(every, made):
        if isinstance(each, Exception):
            print(f'{point.name()}: {each}', file=sys.stderr)
        else:
            out.writerow(oracle_fusion.row_of(dataclasses.replace(point, tool='server-ready'), each))


if __name__ == '__main__':
    if sys.argv[1] == '--plan':
        plan(*sys.argv[2:])
    else:
        write_models(*sys.argv[1:])
