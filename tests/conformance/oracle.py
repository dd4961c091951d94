#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plans points of the oracle again, by rehearsing the engine, and compares: speaks TAP.

usage: oracle.py --models FOLDER --fusion-models FOLDER [--engine BUILD FOLDER]... [--points slice|sample|all]. Without --engine build 11434
is where MEMTALLY_LLAMA_CPP says. The expected figures were planned before memtally could rehearse, see README.md.
"""
import argparse
import collections
import os
import sys

import oracle_plans
import oracle_points

SHOWN = 20
# One of so many points with fused operations is planned.
STEP_OF_FUSION = {'slice': 24, 'sample': 3, 'all': 1}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--models', required=True)
    parser.add_argument('--fusion-models', required=True)
    parser.add_argument('--engine', nargs=2, action='append', default=[], metavar=('BUILD', 'FOLDER'))
    parser.add_argument('--points', choices=('slice', 'sample', 'all'), default='slice')
    arguments = parser.parse_args()
    if not arguments.engine:
        arguments.engine = [('11434', os.environ['MEMTALLY_LLAMA_CPP'])]
    return arguments


def chosen(how):
    points = oracle_points.read('oracle.csv')
    cpu = [p for p in oracle_points.read('oracle_cpu.csv') if p.shape in oracle_points.oracle_shapes.SHAPES]
    if how == 'slice':
        return oracle_points.slice_of(points) + cpu[::60]
    return oracle_points.sample_of(points) + cpu if how == 'sample' else points + cpu


def fusing(how):
    return oracle_points.read('oracle_fusion.csv')[::STEP_OF_FUSION[how]]


def compared(points, plans):
    """[(point, what is wrong with it or '')]"""
    for point, plan in zip(points, plans):
        if isinstance(plan, Exception):
            yield point, str(plan)
        else:
            yield point, '; '.join(f'{part} of {place} is {now:.4f} MiB, was {then}'
                                   for place, part, now, then in oracle_points.differences(point, plan))


def group_of(point):
    where = 'the CPU alone' if not point.devices else 'layers on devices: ' + point.layers
    return f'build {point.build}, {where}'


def say_each(results):
    print(f'1..{len(results)}')
    for number, (point, wrong) in enumerate(results, 1):
        if wrong:
            print(f'# {wrong}')
        print(f'{"not ok" if wrong else "ok"} {number} - {point.name()}')


def say_groups(results):
    groups = collections.defaultdict(list)
    for point, wrong in results:
        groups[group_of(point)].append((point, wrong))
    print(f'1..{len(groups)}')
    for number, (name, some) in enumerate(sorted(groups.items()), 1):
        off = [(point, wrong) for point, wrong in some if wrong]
        for point, wrong in off[:SHOWN]:
            print(f'# {point.name()}: {wrong}')
        print(f'{"not ok" if off else "ok"} {number} - {name}: {len(some) - len(off)} of {len(some)} points as planned before')


def main():
    arguments = parse()
    results = []
    for build, folder in arguments.engine:
        # The devices that the oracle was planned on kept nothing for operations that CUDA fuses.
        for some, models, flags in ((chosen(arguments.points), arguments.models, ['--no-fusion']),
                                    (fusing(arguments.points), arguments.fusion_models, [])):
            points = [p for p in some if p.build == int(build)]
            results += compared(points, oracle_plans.plan_all(
                points, lambda p, at=folder, of=models: p.command(at, of), build, flags))
    (say_each if arguments.points == 'slice' else say_groups)(results)
    return any(wrong for _, wrong in results)


if __name__ == '__main__':
    sys.exit(main())
