# SPDX-License-Identifier: MIT
"""The points of oracle.csv: the command that plans each again, and whether two plans of it are the same.

A plan is {place: {'weights': bytes, 'cache': bytes, 'compute': bytes}}, places being gpu:0 … and host.
"""
import csv
import dataclasses
import os
import pathlib

import oracle_families
import oracle_shapes

HERE = pathlib.Path(__file__).parent
MIB = 1048576
SHAPES = {**oracle_families.SHAPES, **oracle_families.ODD, **oracle_shapes.SHAPES}
PARTS = ('weights', 'cache', 'compute')


@dataclasses.dataclass(frozen=True)
class Point:
    shape: str
    build: int
    tool: str
    context: int
    ubatch: int
    sequences: int
    flash: str
    type_k: str
    type_v: str
    devices: int
    layers: str
    planned: dict  # {'weights': [text of each device, then of the host], …} in MiB as it was read

    def __hash__(self):
        return hash(self.name())

    def name(self):
        return (f'{self.shape}, {self.tool} of {self.build}: ctx {self.context}, ub {self.ubatch}, np {self.sequences}, '
                f'fa {self.flash}, {self.type_k}, {self.devices} devices, {self.layers} layers')

    def settings(self):
        """What is asked for, whichever build and program is asked."""
        return (self.shape, self.context, self.ubatch, self.sequences, self.flash, self.type_k, self.type_v, self.devices,
                self.layers)

    def regime(self):
        """What plans differ by in kind."""
        return (self.devices, self.layers, self.flash, self.type_k, self.sequences > 1)

    def number(self, key):
        return SHAPES[self.shape][1].get(key, 0)

    def places(self):
        return [f'gpu:{i}' for i in range(self.devices)] + ['host']

    def command(self, engine, models, program=None):
        """The command line, with the programs in folder `engine` and the models in folder `models`."""
        program = program or ('llama-server' if self.tool == 'server' else 'llama-fit-params')
        layers = {'all': 999, 'half': self.number('L') // 2}.get(self.layers, 0)
        flags = {'-m': os.path.join(models, self.shape + '.gguf'), '-c': self.context, '-b': 2048, '-ub': self.ubatch,
                 '-np': self.sequences, '-fa': self.flash, '-ctk': self.type_k, '-ctv': self.type_v, '-ngl': layers}
        words = [os.path.join(engine, program)]
        for flag, value in flags.items():
            words += [flag, str(value)]
        if not self.devices:
            words += ['-dev', 'none']
        if program == 'llama-server':
            return words + ['--no-warmup', '-fit', 'off', '--port', '0']
        return words + (['--fit-print', 'on'] if program == 'llama-fit-params' else [])

    def over_plan(self):
        """What a dry run of llama-fit-params has too much on a device that is not the first: four copies of an
        activation, because it forgets where norms were placed. A rehearsal takes it off."""
        return 4 * self.number('D') * min(self.ubatch, self.context) * 4 if self.tool == 'fit-params' else 0


    def embedding_twice(self):
        """CUDA of before build 10500 or so looks no rows of K-quants up, which the devices of the oracle did: where the
        output is the embedding and on the host, that is there twice."""
        if self.build > 10000 or self.layers != '0' or not self.devices or not self.number('tied') or self.number('type'):
            return 0
        return self.number('D') * self.number('V') * 144 // 256


def read(*names):
    points = []
    for name in names or ('oracle.csv',):
        with open(HERE / name, newline='') as table:
            for row in csv.DictReader(table):
                planned = {'weights': row['model_mib'], 'cache': row['context_mib'], 'compute': row['compute_mib']}
                points.append(Point(row['shape'], int(row['build']), row['tool'], int(row['ctx']), int(row['ub']),
                                    int(row['np']), row['fa'], row['ctk'], row['ctv'], int(row['ndev']), row['ngl'],
                                    {part: text.split() for part, text in planned.items()}))
    return points


def is_printed_as(size, text):
    """Is `size` the number of bytes that `text` stands for, in MiB with the digits that it has?"""
    if '.' not in text:
        return size // MIB == int(text)
    digits = len(text.partition('.')[2])
    return abs(size / MIB - float(text)) <= 0.5 * 10**-digits + 1e-9


def differences(point, plan):
    """[(place, part, planned now in MiB, planned then)] of what is not the same."""
    found = []
    for part in PARTS:
        for i, (place, text) in enumerate(zip(point.places(), point.planned[part])):
            if text == '-':
                continue
            size = plan.get(place, {}).get(part, 0)
            if is_printed_as(size, text):
                continue
            if (part, place) == ('weights', 'host') and is_printed_as(size - point.embedding_twice(), text):
                continue
            then = float(text) * MIB
            later = part == 'compute' and 0 < i < point.devices
            if later and -MIB / 100 <= then - size <= point.over_plan() + MIB / 100:
                continue
            found.append((place, part, size / MIB, text))
    return found


def slice_of(points):
    """For each shape one point, regimes in turn, so that all of both are seen: what `make test` plans."""
    regimes = sorted({point.regime() for point in points if point.build == 11434}, key=str)
    taken, used = [], set()
    for shape in oracle_shapes.SHAPES:
        mine = [p for p in points if p.shape == shape and p.build == 11434 and p.devices]
        if not mine:
            continue
        fresh = [p for p in mine if p.regime() not in used and p.tool != 'fit-params'] or \
                [p for p in mine if p.regime() not in used] or mine
        pick = max(fresh, key=lambda p: (-regimes.index(p.regime()) if len(taken) % 2 else regimes.index(p.regime()), p.name()))
        used.add(pick.regime())
        taken.append(pick)
    return taken


def sample_of(points, share=5):
    """What `make oracle` plans: every point of a plan as it is allocated, each fifth of the other dry runs."""
    others = [p for p in points if p.tool == 'fit-params' and p.build == 11434]
    return [p for p in points if p.tool != 'fit-params' or p.build != 11434] + others[::share]
