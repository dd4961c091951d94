#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How honest the bands of compute buffers are: coverage with widths that come from other threads only.

usage: log_bands.py FOLDER ROWS. FOLDER has cases.tsv, ROWS is what conformance_logs wrote with the widths that
the engines' tables have now. A run is judged by the widths that would hold the runs of all other threads of its
group, and by no less than what holds nine tenths of other threads' runs in all groups of its sort: so nothing that
judges a run has seen its thread. A group of one thread is not judged. The last two percents are what the tables
should say. Exit status 1: fewer are held than before.
"""
import csv
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
TABLES = HERE.parent.parent / 'data' / 'engines'
SLACK_MIB = 1
REPLAYED_SINCE = 8881  # llama.cpp: graphs of builds from here on have one band, whatever the family
USUAL = 0.9
FLOOR = 0.93  # of the runs that are judged


def values(engine):
    """The lines of a table as (key, since, value)."""
    lines = (TABLES / engine / 'engine.table').read_text().splitlines()
    return [line.split()[:3] for line in lines if line.startswith('compute.band')]


def width(lines, version, key, fallback):
    found = [float(value) for name, since, value in lines if name == key and int(since) <= version]
    return found[-1] if found else fallback


def is_in_part(case):
    return bool(int(case['devices'])) and (case['layers'] != 'all' or case['experts_on_host'] == '1')


def is_replayed(case):
    return case['engine'] == 'llama.cpp' and int(case['version']) >= REPLAYED_SINCE


def group_of(case, place):
    if is_replayed(case):
        return 'compute.band.part' if is_in_part(case) else 'compute.band'
    family = {'deepseek2': 'latent', 'lfm2': 'unknown', 'granitemoe': 'unknown', 'qwen3next': 'unknown'}.get(case['family'], 'plain')
    return f"compute.band.{family}.{'part' if is_in_part(case) else 'whole'}.{place}"


def ends_of(case, key):
    """The widths below and above that the case's band has, as shares."""
    lines, version = values(case['engine']), int(case['version'])
    if is_replayed(case):
        both = width(lines, version, 'compute.band', 0.3)
        if is_in_part(case):
            both += width(lines, version, 'compute.band.part', 0.01)
        return both, both
    fallback = 10 if 'latent' in key else 1
    return tuple(width(lines, version, f'{key}.{end}', fallback) / 100 for end in ('below', 'above'))


def needed(row, below, above):
    """By which shares the structure's own band would have to be wider, to hold what was measured."""
    measured, low, high = (float(row[i]) for i in (4, 6, 7))
    low, high = low / (1 - below), high / (1 + above)
    return (max(0, 1 - (measured + SLACK_MIB) / low) if low else 0,
            max(0, (measured - SLACK_MIB) / high - 1) if high else 0)


def read_groups(folder, rows):
    """For each engine and group: thread, run, and what it needs below and above."""
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
        if row[3] != 'compute':
            continue
        seen[row[0]] = seen.get(row[0], 0) + 1
        key = group_of(case, 'device' if seen[row[0]] <= int(case['devices']) else 'host')
        groups.setdefault((case['engine'], key), []).append((threads[row[0]], row[0], *needed(row, *ends_of(case, key))))
    return groups


def sort_of(key):
    """Plain models that lie in one place, whose graphs are known best, and others."""
    return 'plain' if 'plain.whole' in key or key == 'compute.band' else 'other'


def usual_need(groups, key, thread):
    """What holds most runs of all other threads in groups of this sort."""
    needs = sorted(max(run[2], run[3]) for (_, other), runs in groups.items() if sort_of(other) == sort_of(key)
                   for run in runs if run[0] != thread)
    return needs[math.ceil(USUAL * len(needs)) - 1] if needs else 0


def is_held(run, runs, least):
    """Whether widths that the other threads need hold this run."""
    others = [other for other in runs if other[0] != run[0]]
    return all(run[i] <= max([least] + [other[i] for other in others]) for i in (2, 3))


def main(folder, rows):
    judged = held = 0
    all_runs, all_missed = set(), set()
    groups = read_groups(folder, rows)
    print(f'# {"engine":13}{"group":36}{"n":>5}{"threads":>8}{"judged":>7}{"held":>6}{"below %":>9}{"above %":>9}  not held')
    for (engine, key), runs in sorted(groups.items()):
        threads = {run[0] for run in runs}
        tried = runs if len(threads) > 1 else []
        missed = [run[1] for run in tried if not is_held(run, runs, usual_need(groups, key, run[0]))]
        below, above = (100 * max(run[i] for run in runs) for i in (2, 3))
        line = (f'# {engine:13}{key:36}{len(runs):5}{len(threads):8}{len(tried):7}{len(tried) - len(missed):6}'
                f'{below:9.1f}{above:9.1f}  {" ".join(sorted(set(missed)))}')
        print(line.rstrip())
        judged += len(tried)
        held += len(tried) - len(missed)
        all_runs |= {run[1] for run in tried}
        all_missed |= set(missed)
    print(f'# held by widths of other threads: {held} of {judged} buffers that are judged, all of '
          f'{len(all_runs) - len(all_missed)} of {len(all_runs)} runs')
    if held < FLOOR * judged:
        print(f'# that is less than {FLOOR:.0%}')
    return int(held < FLOOR * judged)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
