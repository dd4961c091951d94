#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Weights in the layouts of processors: estimates for llama.cpp against what it planned itself, which layouts.csv has.

usage: layouts.py MEMTALLY                       each row of layouts.csv, to the byte
       layouts.py MEMTALLY --plan ENGINE [LIBRARY]  plans them anew; see README.md

Models are those of oracle_shapes.py with all matrices of one type, as headers with a hole.
"""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from oracle_shapes import Model, SHAPES

TABLE = pathlib.Path(__file__).parent / 'layouts.csv'
TYPES = {'amx': ['f16', 'bf16', 'q4_0', 'q4_1', 'q5_0', 'q8_0', 'q2_k', 'q4_k', 'q5_k', 'q6_k', 'iq4_xs', 'iq4_nl', 'mxfp4'],
         'avx512': ['q4_0', 'q8_0', 'q2_k', 'q4_k', 'iq4_nl', 'mxfp4']}
COLUMNS = ('amx', 'repacked', 'plain')
RULES = {'weights for AMX': 'amx', 'repacked weights': 'repacked', 'model buffer': 'plain', 'embedding read on demand': 'plain'}
BUFFERS = {'AMX': 'amx', 'CPU_REPACK': 'repacked', 'CPU': 'plain'}
ENDS = 'ends'  # the engine ends with a failed assertion


def write(shape, kind, folder):
    arch, sizes = SHAPES[shape]
    path = f'{folder}/{shape}-{kind}.gguf'
    Model(arch, {**sizes, 'type': kind}).write(path)
    return path


def read(text):
    return json.loads(text)


def weights(document, names):
    """Bytes of the parts of the host's weights, summed as `names` says."""
    (host,) = [place for place in document['places'] if place['place'] == 'host']
    (row,) = [row for row in host['rows'] if row['category'] == 'weights']
    sums = dict.fromkeys(COLUMNS, 0)
    for part in row['detail']:
        sums[names[part['name'].split(':')[0]]] += part['allocated_bytes']
    return sums


def asked(memtally, command, path, *more, library=None):
    environment = {**os.environ, **({'LD_PRELOAD': library} if library else {})}
    done = subprocess.run([memtally, command, path, '--program', 'fit-params', '--context', '512', '--json', *more],
                          env=environment, capture_output=True, text=True, check=False)
    return done, read(done.stdout) if done.stdout.startswith('{') else None


def plan(memtally, engine, library=None):
    """The rows of one kind of processor: with the library that grants AMX those of amx, else those of this one."""
    kind_of_cpu = 'amx' if library else 'avx512'
    for shape in SHAPES:
        for kind in TYPES[kind_of_cpu]:
            with tempfile.TemporaryDirectory() as folder:
                done, document = asked(memtally, 'rehearse', write(shape, kind, folder), '--engine-path', engine, library=library)
            if 'GGML_ASSERT(*cur_backend_id != -1)' in done.stderr:
                sums = dict.fromkeys(COLUMNS, ENDS)
            else:
                assert document and 'places' in document, (shape, kind, done.stderr)
                sums = weights(document, BUFFERS)
            print(','.join(map(str, (kind_of_cpu, shape, kind, *sums.values()))), flush=True)


def judge(memtally, row):
    """What is wrong with the estimate of a row, or ''."""
    with tempfile.TemporaryDirectory() as folder:
        done, document = asked(memtally, 'estimate', write(row['shape'], row['type'], folder), '--no-rehearse', '--cpu', row['cpu'])
    assert document, done.stderr
    if row['amx'] == ENDS:
        said = any(re.search('failed assertion', note) for note in document['notes'])
        return '' if said else 'the engine ends, and the estimate does not say so'
    sums = weights(document, RULES)
    return '' if all(sums[key] == int(row[key]) for key in COLUMNS) else f'{sums}'


def main(memtally):
    with open(TABLE, newline='', encoding='utf-8') as table:
        rows = list(csv.DictReader(table))
    kinds = sorted({(row['cpu'], row['type']) for row in rows})
    print(f'1..{len(kinds)}')
    bad = 0
    for number, (cpu, kind) in enumerate(kinds, 1):
        of_kind = [row for row in rows if (row['cpu'], row['type']) == (cpu, kind)]
        wrong = [(row, why) for row in of_kind if (why := judge(memtally, row))]
        for row, why in wrong:
            print(f'# {row}: {why}')
        ends = sum(row['amx'] == ENDS for row in of_kind)
        print(f"# {len(of_kind) - ends} judged, {len(of_kind) - ends - len(wrong)} exact, {ends} where the engine ends")
        print(f"{'not ok' if wrong else 'ok'} {number} - {kind} on a processor of kind {cpu}", flush=True)
        bad += bool(wrong)
    return 1 if bad else 0


if __name__ == '__main__':
    if len(sys.argv) > 2 and sys.argv[2] == '--plan':
        plan(sys.argv[1], *sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1]))
