#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CUDA graphs by the engines' rules against published runs and logs: which there are, and what they took. Speaks TAP.

usage: graphs.py MEMTALLY CONFIGS. Rows of graph_rows.csv say what was published: the graphs, what PyTorch had reserved and
allocated, what the engine itself said of them before, and what they took.
"""
import csv
import functools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'support'))
import tap  # noqa: E402  (stands in tests/support)

MIB = 1 << 20
SEGMENTS_MIB = 42  # two segments of 20 MiB and one of 2: steps in which PyTorch's allocator takes memory
OPTIONS = ('engine', 'device', 'sequences', 'batched_tokens', 'draft_tokens', 'max_concurrency', 'tensor_parallel')


@functools.cache
def rows():
    with open(pathlib.Path(__file__).parent / 'graph_rows.csv', newline='', encoding='utf-8') as table:
        return list(csv.DictReader(table))


def of(number):
    return next(row for row in rows() if row['id'] == number)


def changed(config, change):
    """A config with other numbers, wherever in it their names stand."""
    for name, number in (word.split('=') for word in change.split()):
        for part in (config, config.get('text_config', {})):
            if name in part:
                part[name] = int(number)
                part.pop('layer_types', None)
    return config


@functools.cache
def predicted(number):
    """The object cuda_graphs of a row's estimate."""
    row = of(number)
    with tempfile.TemporaryDirectory() as folder:
        with open(pathlib.Path(sys.argv[2]) / (row['model'] + '.json'), encoding='utf-8') as file:
            config = changed(json.load(file), row['change'])
        with open(os.path.join(folder, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump(config, file)
        words = [sys.argv[1], 'estimate', folder, '--no-rehearse', '--json', '--context', '2048']
        for name in OPTIONS:
            if row[name]:
                times = int(row['tensor_parallel']) if name == 'device' else 1
                words += ['--' + name.replace('_', '-'), f'{times}x{row[name]}' if times > 1 else row[name]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), (number, done.stderr)
    return json.loads(done.stdout)['cuda_graphs']


def named(graphs):
    return '; '.join('%s: %d' % (group['kind'] if group['draft'] is None else f'draft_len_{group["draft"]}', group['count'])
                     for group in graphs['groups'])


def published(pool, concurrency):
    """Rows of TensorRT-LLM by the largest batch."""
    return {int(row['sequences']): row for row in rows()
            if row['id'].startswith('tr') and row['pool'] == pool and row['max_concurrency'] == concurrency}


def beside(row):
    """MiB that PyTorch held and no tensor was in: pools of graphs, and what its allocator rounds."""
    return float(row['reserved_mib']) - float(row['allocated_mib'])


def test_each_published_run_has_as_many_graphs_as_the_rule_says():
    for row in rows():
        assert named(predicted(row['id'])) == row['groups'], (row['id'], named(predicted(row['id'])), row['groups'])
    tap.comment(f'{len(rows())} runs, of which 20 of TensorRT-LLM')


def test_a_pool_that_graphs_share_is_as_large_as_published():
    """Within a fifth, or the steps that PyTorch's allocator takes memory in."""
    for row in published('shared', '').values():
        pool = predicted(row['id'])['pool_bytes'] / MIB
        tap.comment(f'batches to {row["sequences"]}: {pool:.0f} MiB, published {beside(row):.0f}')
        assert abs(pool - beside(row)) <= max(SEGMENTS_MIB, beside(row) / 5), (row['id'], pool)


def test_graphs_without_drafts_find_room_in_the_pool_of_those_with():
    """The rule adds nothing; what was published lies within steps of the allocator."""
    without, with_both = published('shared', ''), published('shared', '16')
    for size, row in with_both.items():
        more = predicted(row['id'])['pool_bytes'] - predicted(without[size]['id'])['pool_bytes']
        took = float(row['reserved_mib']) - float(without[size]['reserved_mib'])
        assert more == 0 and 0 <= took <= SEGMENTS_MIB, (size, more, took)


def test_bytes_of_a_logit_are_those_of_graphs_with_pools_of_their_own():
    """What the pools of the batches above 16 took for each token, less a forward pass: 10 bytes in the table."""
    rows_of = published('own', '')
    tokens = 5 * (sum(range(17, 33)) + 64 + 128)
    of_token = (beside(rows_of[128]) - beside(rows_of[16])) * MIB / tokens
    pass_bytes = predicted(rows_of[128]['id'])['pool_bytes'] / 640 - 10 * 128256
    of_logit = (of_token - pass_bytes) / 128256
    tap.comment(f'{of_logit:.2f} bytes')
    assert abs(of_logit / 10 - 1) < 0.1, of_logit


def test_what_graphs_took_is_nearer_than_what_the_engine_said():
    for row in rows():
        if not row['said_mib']:
            continue
        graphs = predicted(row['id'])
        ours = (graphs['pool_bytes'] + graphs['driver_bytes']) / MIB
        tap.comment(f'{row["id"]}: {ours:.0f} MiB, the engine said {row["said_mib"]}, '
                    f'it took {row["took_mib"] or "at most " + row["at_most_mib"]}')
        if row['took_mib']:
            took = float(row['took_mib'])
            assert abs(math.log(ours / took)) < abs(math.log(float(row['said_mib']) / took)), (row['id'], ours)
        else:
            assert ours <= float(row['at_most_mib']) < float(row['said_mib']), (row['id'], ours)


def test_the_pool_of_another_engine_is_within_steps_of_the_allocator():
    row = of('vb03')
    pool = predicted(row['id'])['pool_bytes'] / MIB
    tap.comment(f'{pool:.0f} MiB, published {beside(row):.0f}')
    assert abs(pool - beside(row)) <= SEGMENTS_MIB, pool


if __name__ == '__main__':
    tap.main(globals(), [name for name in globals() if name.startswith('test_')])
