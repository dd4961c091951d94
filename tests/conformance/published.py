#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published runs of llama.cpp rehearsed with a build of their time: the buffers as their logs print them. Speaks TAP.

usage: published.py FOLDER [--table] [--build BUILD] [ID...]. FOLDER gets the models. Builds that the cache of
scripts/engine lacks are skipped. --table writes the table of docs/CONFORMANCE.md, --build rehearses with another build.
"""
import argparse
import csv
import os
import pathlib
import subprocess
import sys

import log_cases
import log_models
import oracle_families
import oracle_plans  # finds tests/support
import oracle_shapes

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1048576
rehearsal = oracle_plans.rehearsal

QWEN36 = dict(L=65, D=5120, FF=17408, H=24, KV=4, HD=256, V=248320, ROT=64, SSM=(4, 6144, 128, 48, 16), DRAFT=1,
              ATT=(*range(3, 64, 4), 64), keys={'nextn_predict_layers': 1})
ATTENDS_IN_PLACE = dict(L=16, V=65536, tied=1, ATT=(2, 5, 8, 10, 12, 14), LC=3)


def of_oracle(name, **other):
    arch, shape = oracle_shapes.SHAPES.get(name) or oracle_families.ODD[name]
    return oracle_shapes.Model, arch, {**shape, **other}


def of_families(name, **other):
    arch, shape = oracle_families.SHAPES[name]
    return oracle_families.Model, arch, {**shape, **other}


def mix(most, more, suffix=''):
    """What llama.cpp's *_K_M mixes give more bits to: in some layers values and down matrices, and the output."""
    return {'ffn_down' + suffix: (most, more), 'attn_v': (most, more), 'output': more}


# Types matter where weights are streamed; where the row's note says so, they were chosen so that it is met.
MODELS = {
    'lfm2-350m': (oracle_shapes.Model, 'lfm2', dict(ATTENDS_IN_PLACE, D=1024, FF=4608, H=16, KV=8, HD=64, type='q8_0')),
    'qwen3-4b': of_oracle('qwen3-4b', type='q5_k', tensor_types={'token_embd': 'q6_k', 'attn_q': 'q6_k'}),
    'gemma-3-27b': of_oracle('gemma3-27b', V=262208, tensor_types=mix('q4_k', 'q6_k')),
    'gemma-4-31b': of_oracle('gemma4-31b'),
    'gemma-4-12b': of_oracle('gemma4-31b', L=48, D=3840, FF=15360, H=16, KVS=8, KV=1),
    'qwen3.6-27b': (oracle_shapes.Model, 'qwen35', dict(QWEN36, type='q5_k', tensor_types=mix('q5_k', 'q6_k'))),
    'qwen3.6-35b-a3b': of_families('qwen35-35b-a3b', type='q8_0', more_bits=(20,),
                                   tensor_types={'ffn_down_exps': ('q6_k', 'q8_0'), 'ffn_up_exps': 'q5_k', 'ffn_gate_exps': 'q5_k'}),
    'qwen2.5-7b': of_families('qwen2-7b'),
    'gpt-oss-120b': of_oracle('gpt-oss-120b'),
    'llama-3.1-8b': of_oracle('llama3-8b', tensor_types=mix('q4_k', 'q6_k')),
    'qwen3.5-9b': of_oracle('qwen35-9b', tensor_types=mix('q4_k', 'q6_k')),
    'qwen3.5-4b': of_oracle('qwen35-4b'),
    'olmoe-1b-7b': of_families('olmoe-7b', tensor_types=mix('q4_k', 'q6_k', '_exps')),
    'granite-3.0-3b-a800m': of_families('granite-3b-a800m', tensor_types=mix('q4_k', 'q6_k', '_exps')),
}


def model_file(folder, name):
    path = pathlib.Path(folder) / (name + '.gguf')
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        maker, arch, shape = MODELS[name]
        maker(arch, shape).write(path)
    return path


def cases():
    """{id: what its log says and with which settings}, as log_cases has it."""
    shapes = log_models.shapes()
    notes = {}
    with open(HERE / 'log_notes.csv', newline='') as table:
        for note in csv.DictReader(table):
            notes.setdefault(note['id'], {})[note['what']] = note['value'] or note['reason']
    with open(HERE / 'ground_truth.csv', newline='') as table:
        return {row['id']: log_cases.case_of(row, log_cases.shape_of(row, shapes), notes.get(row['id'], {}))
                for row in csv.DictReader(table) if row['id'] in ROWS}


def command_of(case, row, engine, model):
    flags = {'-c': case['context'], '-b': case['batch'], '-ub': case['ubatch'], '-np': case['sequences'],
             '-fa': case['flash'], '-ctk': case['type_k'], '-ctv': case['type_v'] or case['type_k'], '-ngl': '999'}
    given = row['flags'].split()
    words = [os.path.join(engine, 'llama-server'), '-m', str(model), '--no-warmup', '-fit', 'off', '--port', '0']
    for flag, value in flags.items():
        if value and str(value) != 'auto' and flag not in given:
            words += [flag, str(value)]
    return words + given


def numbers(text):
    return [float(x) if x else None for x in text.split(',')] if text else []


def logged(case):
    """[(place, what, MiB)] of the log."""
    found = []
    for what in ('kv', 'rs', 'compute'):
        for i, value in enumerate(numbers(case[what + '_d'])):
            found.append((f'gpu:{i}', what, value))
        found.append(('host', what, float(case[what + '_h']) if case[what + '_h'] else None))
    found.append(('host', 'output', float(case['output']) if case['output'] != '' else None))
    return [row for row in found if row[2] is not None]


def planned(places, case, place, what):
    row = places.get(place, {})
    if what == 'kv':
        with_state = case['whole'] and str(case['whole']) != '0'
        return row.get('kv_cache', 0) + (row.get('recurrent_state', 0) if with_state else 0)
    return row.get({'rs': 'recurrent_state', 'compute': 'activations'}.get(what, what), 0)


def is_as_logged(size, value):
    """To the printed digit: decimals are rounded, whole MiB are cut off in breakdowns and rounded in posts."""
    mib = size / MIB
    if value == int(value):
        return value - 0.51 <= mib < value + 1
    return abs(mib - value) <= 0.00501 if round(value, 1) != value else abs(mib - value) <= 0.0501


def compared(case, places):
    """[(place, what, logged MiB, planned MiB, is it the same?)]"""
    return [(place, what, value, planned(places, case, place, what) / MIB,
             is_as_logged(planned(places, case, place, what), value)) for place, what, value in logged(case)]


def folder_of_build(build):
    if build == '11434' and os.environ.get('MEMTALLY_LLAMA_CPP'):
        return os.environ['MEMTALLY_LLAMA_CPP']
    root = HERE.parent.parent
    done = subprocess.run([root / 'scripts' / 'engine', '--if-there', 'llama.cpp', build], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def rehearse(case, row, build, engine, folder):
    command = command_of(case, row, engine, model_file(folder, row['model']))
    flags = ['--engine', f'llama.cpp@{build}', '--requests', '0', '--no-suggest', '--device-kind', row['kind']]
    if row['generation']:
        flags += ['--generation', row['generation']]
    return compared(case, rehearsal.places(rehearsal.run(command, int(row['devices']), flags=flags)))


def result_of(case, row, engine, folder):
    try:
        return rehearse(case, row, row['build'], engine, folder)
    except rehearsal.Failed as error:
        return [('the program', str(error).replace('\n', ' '), 0, 0, False)]


def is_bad(row, result):
    return not row['differs'] and not all(same for *_, same in result)


def text_of(comparison):
    return ', '.join(f'{place} {what} {value:g}' + ('' if same else f' (rehearsed {mine:.2f})')
                     for place, what, value, mine, same in comparison)


def say_table(results):
    print('| run | model | build | as its log prints, MiB | assumed, or otherwise |\n|---|---|--:|---|---|')
    for row, result in results:
        same, off = (text_of([one for one in result if one[4] == wanted]) for wanted in (True, False))
        why = '; '.join(text for text in (off, row['differs'], row['assumes']) if text)
        print(f'| {row["id"]} | {row["model"]} | {row["build"]} | {same} | {why} |')


def say_each(results, missing):
    print(f'1..{len(results) + len(missing)}')
    for number, (row, result) in enumerate(results, 1):
        same = sum(one[4] for one in result)
        why = '; ' + row['differs'] if row['differs'] else ''
        print(f'# {text_of(result)}\n{"not ok" if is_bad(row, result) else "ok"} {number} - {row["id"]}, {row["model"]}: '
              f'{same} of {len(result)} buffers as logged{why}')
    for number, build in enumerate(missing, len(results) + 1):
        ids = [row['id'] for row in ROWS.values() if row['build'] == build]
        print(f'ok {number} - {len(ids)} runs of build {build} # SKIP scripts/engine llama.cpp {build} brings it')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folder')
    parser.add_argument('ids', nargs='*')
    parser.add_argument('--table', action='store_true')
    parser.add_argument('--build')
    arguments = parser.parse_intermixed_args()
    known = cases()
    wanted = [row for row in ROWS.values() if not arguments.ids or row['id'] in arguments.ids]
    for row in wanted:
        row['build'] = arguments.build or row['build']
    engines = {build: folder_of_build(build) for build in sorted({row['build'] for row in wanted})}
    results = [(row, result_of(known[row['id']], row, engines[row['build']], arguments.folder))
               for row in wanted if engines[row['build']]]
    if arguments.table:
        say_table(results)
    else:
        say_each(results, [build for build, folder in engines.items() if not folder])
    return any(is_bad(row, result) for row, result in results)


with open(HERE / 'rehearsal_rows.csv', newline='') as rows_of_table:
    ROWS = {row['id']: row for row in csv.DictReader(rows_of_table)}

if __name__ == '__main__':
    sys.exit(main())
