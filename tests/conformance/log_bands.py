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
REPLAYED_SINCE = 8739  # llama.cpp: graphs of builds from here on have other bands
# No width is less, however few runs there are: of plain models that lie whole on devices or the host, of others.
LEAST = {True: 0.01, False: 0.1}


def values(engine):
    """The lines of a table as (key, since, value)."""
    lines = (TABLES / f'{engine}.table').read_text().splitlines()
    return [line.split()[:3] for line in lines if line.startswith('compute.band.')]


def width(lines, version, key, fallback):
    found = [float(value) for name, since, value in lines if name == key and int(since) <= version]
    return (found[-1] if found else fallback) / 100


def group_of(case, place):
    in_part = int(case['devices']) and (case['layers'] != 'all' or case['experts_on_host'] == '1')
    family = {'deepseek2': 'latent', 'lfm2': 'unknown', 'granitemoe': 'unknown', 'qwen3next': 'unknown'}.get(case['family'], 'plain')
    return f"compute.band.{family}.{'part' if in_part else 'whole'}.{place}"


def needed(row, below, above):
    """By which shares the structure's own band would have to be wider, to hold what was measured."""
    measured, low, high = (float(row[i]) for i in (4, 6, 7))
    low, high = low / (1 - below), high / (1 + above)
    return (max(0, 1 - (measured + SLACK_MIB) / low) if low else 0,
            max(0, (measured - SLACK_MIB) / high - 1) if high else 0)


def read_groups(folder, rows):
    """Of each engine and group: thread, run, and what it needs below and above."""
    with open(pathlib.Path(folder) / 'cases.tsv', newline='') as table:
        cases = {c['id']: c for c in csv.DictReader(table, delimiter='\t')}
    with open(HERE / 'ground_truth.csv', newline='') as table:
        threads = {r['id']: r['source'] for r in csv.DictReader(table)}
    groups = {}
    seen = {}
    for row in (line.split('\t') for line in pathlib.Path(rows).read_text().splitlines()):
        case = cases[row[0]]
        if row[0] not in threads:
            continue  # the other form of a run's file, which says nothing more
        if row[3] != 'compute' or case['engine'] == 'llama.cpp' and int(case['version']) >= REPLAYED_SINCE:
            continue
        seen[row[0]] = seen.get(row[0], 0) + 1
        key = group_of(case, 'device' if seen[row[0]] <= int(case['devices']) else 'host')
        lines, fallback = values(case['engine']), 10 if 'latent' in key else 1
        ends = [width(lines, int(case['version']), f'{key}.{end}', fallback) for end in ('below', 'above')]
        groups.setdefault((case['engine'], key), []).append((threads[row[0]], row[0], *needed(row, *ends)))
    return groups


def is_held(run, runs, key):
    """Whether widths that the other threads need hold this run."""
    others = [other for other in runs if other[0] != run[0]]
    return all(run[i] <= max([LEAST['plain.whole' in key]] + [other[i] for other in others]) for i in (2, 3))


def main(folder, rows):
    buffers = held = 0
    all_runs, all_missed = set(), set()
    print(f'# {"engine":13}{"group":36}{"n":>5}{"threads":>8}{"held":>6}{"below %":>9}{"above %":>9}  not held')
    for (engine, key), runs in sorted(read_groups(folder, rows).items()):
        missed = [run[1] for run in runs if not is_held(run, runs, key)]
        below, above = (100 * max(run[i] for run in runs) for i in (2, 3))
        line = (f'# {engine:13}{key:36}{len(runs):5}{len({run[0] for run in runs}):8}{len(runs) - len(missed):6}'
                f'{below:9.1f}{above:9.1f}  {" ".join(sorted(set(missed)))}')
        print(line.rstrip())
        buffers += len(runs)
        held += len(runs) - len(missed)
        all_runs |= {run[1] for run in runs}
        all_missed |= set(missed)
    print(f'# held by widths of other threads: {held} of {buffers} buffers, all of '
          f'{len(all_runs) - len(all_missed)} of {len(all_runs)} runs')


if __name__ == '__main__':
    main(*sys.argv[1:])
