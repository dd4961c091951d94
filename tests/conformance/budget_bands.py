#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The board of engines with a budget, and how honest its bands are.

usage: budget_bands.py PROGRAM ROWS.csv CONFIGS. PROGRAM is conformance_budget; it compares with the bands of the
engines' tables, which were set with all runs at hand. Then each run is judged by what follows from the other threads
alone: the factor of the logits in the sampler's peak and the width beside it, and the range of what PyTorch does not
see. What a single thread tells is not judged. Exit status 1: the program's, or fewer are held than before.
"""
import csv
import pathlib
import subprocess
import sys
import tempfile

HIDDEN_FACTOR = 1.35  # of the sampler's peak: kept, since most threads have one batch size only
SEEN = ('logged', 'predicted', 'low', 'high', 'logits', 'hidden')
DIGIT_MIB = 5.2
FLOOR = {'activations, sampler': 6}


def factor_of(runs):
    """The factor of the logits that fits runs best."""
    return sum(r['logits'] * (r['logged'] - HIDDEN_FACTOR * r['hidden']) for r in runs) / sum(r['logits'] ** 2 for r in runs)


def need_of(run, others):
    """By which share the run lies beside the sampler's peak with the factor of others."""
    peak = factor_of(others) * run['logits'] + HIDDEN_FACTOR * run['hidden']
    return abs(run['logged'] / peak - 1)


def without(runs, thread):
    return [r for r in runs if r['thread'] != thread]


def sampler_is_held(run, runs):
    """Whether the width that other threads need, each beside the factor of the rest, holds the run."""
    others = without(runs, run['thread'])
    widths = [need_of(r, without(others, r['thread'])) for r in others if without(others, r['thread'])]
    peak = run['logged'] / (1 + max(widths, default=0))
    return need_of(run, others) <= max(widths, default=0) + DIGIT_MIB / peak


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
            samples = factor_is_tables(run)
            groups['activations, sampler' if samples else 'activations, pass'].append(run)
    for number, row in threads.items():
        engine, _, version = row['engine'].partition('@')
        if engine == 'vllm' and row['other_mib'] and tuple(map(int, version.split('.'))) >= (0, 7):
            cards = 'one card' if row['tensor_parallel'] == '1' else 'two cards'
            groups[f'not PyTorch, {cards}'].append({'id': number, 'thread': row['source'], 'logged': float(row['other_mib'])})
    return groups


def factor_is_tables(run):
    """Whether the prediction is the sampler's, so that it does not change with the pass."""
    factor = (run['predicted'] - HIDDEN_FACTOR * run['hidden']) / run['logits'] if run['logits'] else 0
    return 9.5 < factor < 9.6


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
