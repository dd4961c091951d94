#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How honest the bands of compute buffers are: coverage with widths taken from other threads only.

usage: log_bands.py FOLDER ROWS. FOLDER has cases.tsv, ROWS is what conformance_logs wrote with the widths that
the engines' tables have now. A run's widths are those that would hold the runs of all other threads of its
group; then it is counted whether they hold this one. The last two columns are what the table should say.
"""
import csv
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
TABLES = HERE.parent.parent / 'data' / 'engines'
SLACK_MIB = 1
SHARE = 0.97  # of the buffers of other threads that a width is to hold


def values(engine):
    """The lines of a table as (key, since, value)."""
    lines = (TABLES / f'{engine}.table').read_text().splitlines()
    return [line.split()[:3] for line in lines if line.startswith('compute.band.')]


def width(lines, version, key, fallback):
    found = [float(value) for name, since, value in lines if name == key and int(since) <= version]
    return (found[-1] if found else fallback) / 100


def group_of(case, place):
    in_part = int(case['devices']) and (case['layers'] != 'all' or case['experts_on_host'] == '1')
    family = {'deepseek2': 'latent', 'lfm2': 'unknown', 'granitemoe': 'unknown'}.get(case['family'], 'plain')
    return f"compute.band.{family}.{'part' if in_part else 'whole'}.{place}"


def needed(row, below, above):
    """By which shares the structure's own band would have to be wider, to hold what was measured."""
    measured, low, high = (float(row[i]) for i in (4, 6, 7))
    low, high = low / (1 - below), high / (1 + above)
    return (max(0, 1 - (measured + SLACK_MIB) / low) if low else 0,
            max(0, (measured - SLACK_MIB) / high - 1) if high else 0)


def largest(numbers, share=SHARE):
    numbers = sorted(numbers)
    return numbers[max(0, -(-len(numbers) * share // 1).__int__() - 1)] if numbers else 0


def main(folder, rows):
    cases = {c['id']: c for c in csv.DictReader(open(pathlib.Path(folder) / 'cases.tsv'), delimiter='\t')}
    truth = {r['id']: r for r in csv.DictReader(open(HERE / 'ground_truth.csv'))}
    groups = {}
    seen = {}
    for row in (line.rstrip('\n').split('\t') for line in open(rows)):
        case = cases[row[0]]
        if row[3] != 'compute' or case['engine'] == 'llama.cpp' and int(case['version']) >= 9000:
            continue
        seen[row[0]] = seen.get(row[0], 0) + 1
        place = 'device' if seen[row[0]] <= int(case['devices']) else 'host'
        key = group_of(case, place)
        lines, fallback = values(case['engine']), 10 if 'latent' in key else 1
        ends = [width(lines, int(case['version']), f'{key}.{end}', fallback) for end in ('below', 'above')]
        groups.setdefault((case['engine'], key), []).append(
            (truth[row[0]]['source'], row[0], needed(row, *ends)))
    print(f'{"engine":13}{"group":36}{"n":>5}{"threads":>8}{"held":>6}{"below %":>9}{"above %":>9}  not held')
    for (engine, key), runs in sorted(groups.items()):
        held, missed = 0, set()
        for thread, id_, (below, above) in runs:
            others = [need for other, _, need in runs if other != thread]
            fits = below <= largest([o[0] for o in others]) + 0.01 and above <= largest([o[1] for o in others]) + 0.01
            held += fits
            missed |= set() if fits else {id_}
        print(f'{engine:13}{key:36}{len(runs):5}{len({t for t, _, _ in runs}):8}{held:6}'
              f'{100 * largest([n[0] for _, _, n in runs], 1):9.1f}{100 * largest([n[1] for _, _, n in runs], 1):9.1f}  '
              f'{" ".join(sorted(missed))}')


if __name__ == '__main__':
    main(*sys.argv[1:])
