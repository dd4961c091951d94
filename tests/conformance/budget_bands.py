#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The board of engines with a budget, and how honest its bands are.

usage: budget_bands.py PROGRAM ROWS.csv CONFIGS. PROGRAM is conformance_budget; it compares with the bands of the
engines' tables, which were set with all runs at hand. Then each run is judged by what follows from the other threads
alone: the width beside the sampler's peak, whose law is read in sources, and the range of what PyTorch does not
see. What a single thread tells is not judged. Exit status 1: the program's, or fewer are held than before.
"""
import csv
import pathlib
import subprocess
import sys
import tempfile

SORTED_ROWS = 9.5  # of 32 bit that PyTorch's sort has for each row of logits
SEEN = ('logged', 'predicted', 'low', 'high', 'logits', 'hidden')
DIGIT_MIB = 5.2
FLOOR = {'activations, sampler': 6}


def need_of(run):
    """By which share the run lies beside the sampler's peak."""
    return abs(run['logged'] / run['predicted'] - 1)


def without(runs, thread):
    return [r for r in runs if r['thread'] != thread]


def sampler_is_held(run, runs):
    """Whether the width that other threads need holds the run."""
    width = max(need_of(r) for r in without(runs, run['thread']))
    return need_of(run) <= width + DIGIT_MIB / run['predicted']


def range_is_held(run, runs):
    """Whether what other threads logged reaches around the run."""
    logged = [r['logged'] for r in without(runs, run['thread'])]
    return min(logged) - DIGIT_MIB <= run['logged'] <= max(logged) + DIGIT_MIB


def read_groups(rows, compared):
    """Runs by what is fitted of them, each with its thread."""
    groups = {'activations, sampler': [], 'activations, pass': [], 'not PyTorch, one card': [], 'not PyTorch, two cards': []}
    with open(rows, newline='') as table:
        threads = {r['id']: r for r in csv.DictReader(table)}
    for line in compared.read_text().splitlines():
        number, quantity, *seen = line.split('\t')
        run = {'id': number, 'thread': threads[number]['source'], **dict(zip(SEEN, map(float, seen)))}
        if quantity == 'activations':
            groups['activations, sampler' if sorts(run, version_of(threads[number])) else 'activations, pass'].append(run)
    for number, row in threads.items():
        if row['engine'].startswith('vllm@') and row['other_mib'] and version_of(row) >= (0, 7):
            cards = 'one card' if row['tensor_parallel'] == '1' else 'two cards'
            groups[f'not PyTorch, {cards}'].append({'id': number, 'thread': row['source'], 'logged': float(row['other_mib'])})
    return groups


def version_of(row):
    return tuple(map(int, row['engine'].partition('@')[2].split('.')))


def sorts(run, version):
    """Whether the prediction is that of the sampler, which sorted logits up to 0.16."""
    return version < (0, 17) and run['predicted'] > SORTED_ROWS * run['logits'] + run['hidden']


def judge(groups):
    missing = 0
    print(f'# {"bands from other threads":26}{"n":>4}{"threads":>8}{"judged":>7}{"held":>6}  not held')
    for name, runs in groups.items():
        threads = {r['thread'] for r in runs}
        judged = runs if len(threads) > 1 else []
        holds = sampler_is_held if name == 'activations, sampler' else range_is_held
        missed = [r['id'] for r in judged if not holds(r, runs)]
        line = f'# {name:26}{len(runs):4}{len(threads):8}{len(judged):7}{len(judged) - len(missed):6}  {" ".join(missed)}'
        print(line.rstrip())
        missing |= len(judged) - len(missed) < FLOOR.get(name, 0)
    return int(missing)


def main(program, rows, configs):
    with tempfile.TemporaryDirectory() as folder:
        compared = pathlib.Path(folder) / 'compared.tsv'
        code = subprocess.run([program, rows, configs, compared], check=False).returncode
        return code or judge(read_groups(rows, compared))


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
