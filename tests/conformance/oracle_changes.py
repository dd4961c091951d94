#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What changed between two builds of llama.cpp: plans the same points with both, and writes a page about it.

usage: oracle_changes.py --from BUILD FOLDER --to BUILD FOLDER --models FOLDER [--points N]. The page goes to standard output.
"""
import argparse
import collections
import sys

import oracle_plans
import oracle_points
import oracle_shapes

MIB = oracle_points.MIB
ROLES = ('the only device', 'the first device', 'a middle device', 'the last device', 'the host')
REGIMES = ('one device', 'several devices', 'half the layers or none on devices')
RARE = 0.04  # of the buffers of a place: amounts that are less common are not named
COLUMNS_MAX = 16  # a change of so many columns beside whole activations is written out
ACTIVATIONS_MAX = 32

Change = collections.namedtuple('Change', 'point place part before after')


def role_of(place, devices):
    if place == 'host':
        return ROLES[4]
    i = int(place.partition(':')[2])
    if devices == 1:
        return ROLES[0]
    return ROLES[1] if i == 0 else ROLES[3] if i == devices - 1 else ROLES[2]


def wanted_points(n):
    """Settings of the oracle, each once, evenly thinned to `n` of each kind of program's points."""
    by_settings = {}
    for point in oracle_points.read('oracle.csv'):
        if point.tool != 'server':
            by_settings.setdefault(point.settings(), point)
    points = sorted(by_settings.values(), key=lambda p: (p.shape, p.layers, p.devices, p.name()))
    step = max(1, len(points) / n)
    return [points[int(i * step)] for i in range(min(n, len(points)))]


def signed(number, unit):
    return f'{"-" if number < 0 else "+"} {abs(number)} {unit}'


def in_symbols(change):
    """The change in activations (n_embd · ubatch · 4 bytes) and columns (ubatch · 4 bytes), None where it is neither."""
    point = change.point
    columns = (change.after - change.before) / (4 * min(point.ubatch, point.context))
    if 0 < abs(columns) <= 1:
        return 'at most one column'
    of_layers = point.number('PLE') * point.number('L')
    for copies in (0, -4, -1, 1, 4) if of_layers else (0,):
        left = columns - copies * of_layers
        activations = round(left / point.number('D'))
        rest = left - activations * point.number('D')
        if abs(activations) <= ACTIVATIONS_MAX and abs(rest) <= COLUMNS_MAX:
            terms = [signed(n, unit) for n, unit in ((copies, 'P'), (activations, 'A'), (round(rest), 'c')) if n]
            return ' '.join(terms) or '0'
    return None


def differences(points, before, after):
    """Every buffer of every point that both builds planned."""
    for point, old, new in zip(points, before, after):
        if isinstance(old, Exception) or isinstance(new, Exception):
            continue
        for part in oracle_points.PARTS:
            for place in point.places():
                yield Change(point, place, part, old[place][part], new[place][part])


def family(point):
    return oracle_shapes.SHAPES[point.shape][0]


def mib(size):
    return f'{size / MIB:,.2f}'


def regime(point):
    if point.layers != 'all':
        return 'half the layers or none on devices'
    return 'one device' if point.devices == 1 else 'several devices'


def names_of(changes, everything):
    """The families of changes, or what they are of all of them."""
    mine, whole = ({family(c.point) for c in some} for some in (changes, everything))
    if mine == whole:
        return 'all'
    missing = whole - mine
    return 'all but ' + ', '.join(sorted(missing)) if len(missing) <= len(mine) // 3 else ', '.join(sorted(mine))


def example(changes):
    worst = max(changes, key=lambda c: abs(c.after - c.before))
    p = worst.point
    cache = '' if p.type_k == 'f16' else f', {p.type_k}'
    sequences = '' if p.sequences == 1 else f', {p.sequences} sequences'
    return (f'{p.shape}, ctx {p.context}, ub {p.ubatch}{sequences}{cache}, FA {p.flash}: {mib(worst.before)} → '
            f'{mib(worst.after)}')


def by_amount(changes):
    """[(what it is in symbols, changes)], most first; rare amounts and those that are none in symbols come last, together."""
    found = collections.defaultdict(list)
    for change in changes:
        found[in_symbols(change) or 'otherwise'].append(change)
    rare = [symbol for symbol in found if len(found[symbol]) < RARE * len(changes) or len(found[symbol]) < 2]
    for symbol in rare:
        if symbol != 'otherwise':
            found['otherwise'] += found.pop(symbol)
    return sorted(found.items(), key=lambda item: (item[0] == 'otherwise', -len(item[1])))


def board(changes, out):
    """For each regime and role: how buffers changed, in symbols."""
    for where in REGIMES:
        out += [f'### {where[0].upper()}{where[1:]}', '', '| buffer of | change | of buffers | families | largest, in MiB |',
                '|---|---|--:|---|---|']
        for role in ROLES:
            mine = [c for c in changes if regime(c.point) == where and role_of(c.place, c.point.devices) == role]
            for symbol, some in by_amount(mine):
                share = f'{len(some)} of {len(mine)}'
                shown, symbol = ('–', 'none') if symbol == '0' else (example(some), symbol)
                out.append(f'| {role} | {symbol} | {share} | {names_of(some, mine)} | {shown} |')
        out.append('')


def families_table(changes, out):
    """For each family how many compute buffers changed, and by how much at most."""
    out.append('| family | compute buffers | unchanged | smaller by up to | larger by up to |\n|---|--:|--:|--:|--:|')
    for name in sorted({family(c.point) for c in changes}):
        mine = [c for c in changes if family(c.point) == name]
        steps = [c.after - c.before for c in mine]
        out.append(f'| {name} | {len(mine)} | {sum(s == 0 for s in steps)} | {mib(-min(0, *steps))} | {mib(max(0, *steps))} |')


def page(arguments, points, before, after):
    old, new = arguments.before[0], arguments.after[0]
    changes = list(differences(points, before, after))
    planned = {(c.point) for c in changes}
    out = [f'# llama.cpp: what changed from build {old} to {new}', '',
           f'Both builds planned the same {len(planned)} points of the oracle on the same pretended devices, as memory is '
           'allocated (not as `llama-fit-params` prints it), by their libraries alone: '
           f'{len({p.shape for p in planned})} shapes of {len({family(p) for p in planned})} families. '
           f'Made by `make oracle FROM={old} TO={new}`.', '',
           'A is one activation, n_embd · ubatch · 4 bytes; c is one column, ubatch · 4 bytes; '
           'P is what embeddings of layers take, their width · n_layer · ubatch · 4 bytes.', '']
    for part, title in (('weights', 'Weights'), ('cache', 'Cache and recurrent state')):
        mine = [c for c in changes if c.part == part]
        moved = [c for c in mine if c.before != c.after]
        out.append(f'- {title}: ' + (f'no difference in {len(mine)} buffers.' if not moved else
                   f'{len(moved)} of {len(mine)} buffers differ, by {mib(min(c.after - c.before for c in moved))} to '
                   f'{mib(max(c.after - c.before for c in moved))} MiB ({names_of(moved, mine)}).'))
    compute = [c for c in changes if c.part == 'compute']
    same = sum(c.before == c.after for c in compute)
    named = sum(in_symbols(c) is not None for c in compute if c.before != c.after)
    out.append(f'- Compute: {same} of {len(compute)} buffers are the same; of the other {len(compute) - same}, '
               f'{named} changed by whole activations and a few columns.')
    failed = [(p, a, b) for p, a, b in zip(points, before, after) if isinstance(a, Exception) or isinstance(b, Exception)]
    for which, side in ((old, 1), (new, 2)):
        mine = [row for row in failed if isinstance(row[side], Exception)]
        if mine:
            out.append(f'- {len(mine)} points were not planned by {which}: {", ".join(sorted({row[0].shape for row in mine}))}.')
    out += ['', '## Compute buffers by place', '']
    board(compute, out)
    out += ['## By family', '']
    families_table(compute, out)
    return '\n'.join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--from', dest='before', nargs=2, required=True, metavar=('BUILD', 'FOLDER'))
    parser.add_argument('--to', dest='after', nargs=2, required=True, metavar=('BUILD', 'FOLDER'))
    parser.add_argument('--models', required=True)
    parser.add_argument('--points', type=int, default=800)
    arguments = parser.parse_args()
    points = wanted_points(arguments.points)
    plans = [oracle_plans.plan_all(points, lambda p, at=folder: p.command(at, arguments.models, 'llama-plan'), build)
             for build, folder in (arguments.before, arguments.after)]
    print(page(arguments, points, *plans))
    return 0


if __name__ == '__main__':
    sys.exit(main())
