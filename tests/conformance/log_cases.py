#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turns the published runs of ground_truth.csv into cases: the settings of each, and what was measured.

usage: log_cases.py FOLDER. Writes FOLDER/cases.tsv and the models that the cases name. What a log does not
say and only the person who ran it knew is taken from the log itself: how layers were split over devices
from where their cache lay, and that experts were kept on the host from where the weights lay.
"""
import csv
import json
import pathlib
import re
import sys

import log_models

HERE = pathlib.Path(__file__).parent
ENGINES = ('llama.cpp', 'ik_llama.cpp', 'ollama', 'llama-server')
# What a log without a build is taken for, where its thread does not tell: llama.cpp's logs in threads of
# ik_llama.cpp are of the spring of 2025, all others of 2026.
UNKNOWN_BUILD = {('ik_llama.cpp', True): 3772, ('ik_llama.cpp', False): 4650,
                 ('llama.cpp', True): 5192, ('llama.cpp', False): 9760}
OUTPUT_COUNTS_SINCE = 7407  # llama.cpp: the output is the first of the layers that -ngl puts on a device
FIELDS = ('id engine family model trust version context batch ubatch sequences flash type_k type_v mla amb layers '
          'program devices split_of_layers kv_on_host experts_on_host unified weights_d kv_d rs_d compute_d weights_h kv_h rs_h '
          'compute_h output whole draft types_known').split()


def number(text):
    return float(text) if text else None


def total(text):
    """The sum of "a+b"."""
    return sum(float(x) for x in text.split('+')) if text else None


def shape_of(row, shapes):
    for shape in shapes:
        pairs = [('n_layer', 'layers'), ('n_embd', 'embedding'), ('n_vocab', 'vocabulary'), ('n_head', 'heads')]
        if row['arch'] == 'qwen3vlmoe':  # counts its image inputs too
            pairs.remove(('n_embd', 'embedding'))
        if row['arch'] == shape['arch'] and row['n_layer'] and all(row[a] in ('', shape[b]) for a, b in pairs):
            return shape
    for shape in shapes:
        if row['n_layer'] == '' and any(name and name in row['model'] for name in shape['names'].split(';')):
            return shape
    return None


def kind_of(row, shape, parts):
    """The type of most weights, from the name of the mix; ik_llama.cpp's interleaved types are as large as the
    plain ones. Where the name does not go with the size, the type of the size."""
    name = re.split(r' - | ', row['quant'].removeprefix('UD-'))[0].lower()
    name = re.sub(r'_r[48]$', '', name)
    name = name if name in log_models.TYPES else re.sub(r'_(xl|m|s|l)$', '', name)
    size = sum(x or 0 for x in parts['weights_d']) + (parts['weights_h'] or 0)
    bits = size * (1 << 20) * 8 / log_models.parameters(shape)
    if name in log_models.TYPES and (not size or 0.75 < bits / log_models.bits(name) < 1.34):
        return name
    plain = [kind for kind in log_models.TYPES if kind not in ('f32', 'bf16')]
    return min(plain, key=lambda kind: abs(log_models.bits(kind) - bits)) if size else 'q4_k'


def split_by_device(row):
    """Per device and for the host: the four categories in MiB, where the row has them apart."""
    text = row['per_device']
    if text.startswith('{'):
        logged = json.loads(text)
        names = sorted({n for part in logged.values() for n in part if re.fullmatch(r'[A-Za-z]+\d+', n)},
                       key=lambda n: int(re.search(r'\d+', n)[0]))
        parts = {}
        for ours, theirs in (('weights', 'model'), ('kv', 'kv'), ('rs', 'rs'), ('compute', 'compute')):
            parts[ours + '_d'] = [logged[theirs].get(n, 0) for n in names]
            parts[ours + '_h'] = sum(v for n, v in logged[theirs].items() if n not in names and n != '_Split')
        if '_Split' in logged['model']:
            parts['weights_d'][0] += logged['model']['_Split']
        parts['output'] = max(logged['out'].values(), default=None)
        return parts
    if text.startswith('GPU0'):
        devices = [dict(re.findall(r'(\S+)=(\S+)', part)) for part in text.split('|')]
        return {'weights_d': [float(d['model']) for d in devices], 'kv_d': [float(d['kv+rs']) for d in devices],
                'compute_d': [float(d['compute']) for d in devices], 'rs_d': [], 'equal': True,
                'weights_h': number(row['weights_host_mib']), 'kv_h': total(row['kv_host_mib']), 'rs_h': None,
                'compute_h': number(row['compute_host_mib']), 'output': number(row['output_mib'])}
    return {'weights_d': [total(row['weights_gpu_mib'])], 'kv_d': [total(row['kv_gpu_mib'])],
            'rs_d': [total(row['rs_gpu_mib'])], 'compute_d': [total(row['compute_gpu_mib'])],
            'weights_h': total(row['weights_host_mib']), 'kv_h': total(row['kv_host_mib']),
            'rs_h': total(row['rs_host_mib']), 'compute_h': total(row['compute_host_mib']),
            'output': number(row['output_mib'])}


def build_of_thread(source):
    """ik_llama.cpp's build when a thread was opened: its threads and merges are numbered together."""
    number_ = re.search(r'ikawrakow/ik_llama.cpp/\w+/(\d+)', source)
    build = 0
    with open(HERE / 'ik_builds.csv', newline='') as table:
        for row in csv.DictReader(table):
            if number_ and int(row['thread']) <= int(number_[1]):
                build = int(row['build'])
    return build


def version_of(row):
    """The build by which the engine's table is asked; a fork's own number where it counts as the engine does."""
    engine = 'ik_llama.cpp' if row['engine'].startswith('ik') else 'llama.cpp'
    number_ = re.search(r'\d{4,5}', row['engine_version'])
    build = int(number_[0]) if number_ else 0
    if engine == 'ik_llama.cpp' and build > 4840:
        build = 0  # the number is of the other engine, whose log stands in the same thread
    if '2026-07' in row['engine_version']:
        build = {'ik_llama.cpp': 4650, 'llama.cpp': 9760}[engine]
    if '2026-09' in row['engine']:
        build = 4840
    if engine == 'ik_llama.cpp' and not build:
        build = build_of_thread(row['source'])
    if engine == 'llama.cpp' and not build and row['n_outputs_rule'].startswith('n_ubatch'):
        build = 8500  # the last year in which all rows had logits
    if '2026-10' in row['source']:
        build = 11434
    return engine, build or UNKNOWN_BUILD[engine, 'https://github.com/ikawrakow' in row['source']]


def layers_of(row, parts, shape, build):
    found = re.match(r'(\d+)/(\d+)', row['offload'])
    if found and found[1] != found[2]:
        return found[1]
    named = re.search(r'ngl=(\d+)', row['offload'])
    if named:
        return named[1]
    on_device, on_host = sum(x or 0 for x in parts['kv_d']), parts['kv_h'] or 0
    if on_device and on_host:
        layers = round(on_device / (on_device + on_host) * int(shape['layers']))
        return str(layers + (build >= OUTPUT_COUNTS_SINCE))
    return 'all'


def split_of_layers(parts, shape, layers):
    """Layers of each device by their share of the cache; the output goes with the last."""
    caches = parts['kv_d']
    if parts.get('equal') or len(caches) < 2 or not sum(x or 0 for x in caches):
        return ''
    n = int(shape['layers']) if layers == 'all' else int(layers)
    whole = sum(caches)
    counts = [x / whole * n for x in caches]
    rounded = [round(x) for x in counts]
    rounded[max((i for i, x in enumerate(rounded) if x), default=0)] += layers == 'all'
    return ','.join(str(x) for x in rounded)


def sequences_of(row, shape, parts, engine):
    """Rows of the output buffer tell what the log does not: benchmarks have one, servers one more than sequences."""
    if row['n_seq'] or engine != 'ik_llama.cpp' or not parts['output']:
        return 'server', row['n_seq'] or 1
    rows = round(parts['output'] * (1 << 20) / 4 / int(shape['vocabulary']))
    return ('server', rows - 1) if rows == 2 else ('bench', max(rows, 1))


def case_of(row, shape, notes):
    parts = split_by_device(row)
    engine, build = version_of(row)
    program, sequences = sequences_of(row, shape, parts, engine)
    known = [x for key in ('weights_d', 'kv_d', 'compute_d') for x in parts[key]]
    n_devices = max(len(parts['weights_d']) if any(known) else 0, int(row['n_gpu_used'] or 0))
    layers = layers_of(row, parts, shape, build)
    cache_on_host = (parts['kv_h'] or 0) > 0 and not sum(x or 0 for x in parts['kv_d']) and n_devices and layers == 'all'
    weights_h, weights_d = parts['weights_h'] or 0, sum(x or 0 for x in parts['weights_d'])
    experts = bool(int(shape['experts'])) and n_devices and layers != '0' and \
        ('cpu_moe' in row['offload'] or weights_h > 0.1 * (weights_h + weights_d))
    case = dict.fromkeys(FIELDS, '')
    case.update({k: row[k] for k in ('id', 'trust', 'type_k', 'type_v')})
    case.update(
        engine=engine, family=shape['arch'], model=f"{shape['shape']}-{kind_of(row, shape, parts)}{notes.get('form', '')}.gguf", version=build,
        context=row['n_ctx'], batch=row['n_batch'], ubatch=row['n_ubatch'], sequences=sequences, program=program,
        flash={'1': 'on', 'on': 'on', '0': 'off', 'off': 'off'}.get(row['flash_attn'], 'auto'),
        mla=row['mla_mode'], amb=row['attn_max_batch'], layers=layers, devices=n_devices,
        split_of_layers=split_of_layers(parts, shape, layers), kv_on_host=int(bool(cache_on_host)),
        experts_on_host=int(bool(experts)), unified={'1': 'on', '0': 'off'}.get(row['kv_unified'], ''),
        whole=int(row['per_device'].startswith('GPU0')),
        draft=0, types_known=int(not experts and layers == 'all' or row['quant'].lower() == kind_of(row, shape, parts) in ('f16', 'bf16', 'q8_0')), output='' if parts['output'] is None else parts['output'])
    for key, value in notes.items():
        if key in ('mla', 'unified', 'sequences', 'type_k', 'type_v', 'draft', 'whole', 'version', 'flash', 'ubatch'):
            case[key] = value
        elif key == 'no_compute':
            parts['compute_d'] = [None] * len(parts['compute_d'])
        elif key in parts:
            parts[key] = float(value)
    for key in ('weights_d', 'kv_d', 'rs_d', 'compute_d'):
        case[key] = ','.join('' if x is None else repr(float(x)) for x in parts[key])
    for key in ('weights_h', 'kv_h', 'rs_h', 'compute_h'):
        case[key] = '' if parts[key] is None else repr(float(parts[key]))
    return case


def in_heads(case):
    """The same run of a file with attn_kv_b, as all were made before April 2025: ik_llama.cpp has one graph for both."""
    return dict(case, id=case['id'] + 'h', family=case['family'] + '-kv_b',
                model=case['model'].removesuffix('.gguf') + '-heads.gguf')


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shapes = log_models.shapes()
    with open(HERE / 'ground_truth.csv', newline='') as table:
        rows = [r for r in csv.DictReader(table) if r['engine'].startswith(ENGINES)]
    notes = {}
    with open(HERE / 'log_notes.csv', newline='') as table:
        for note in csv.DictReader(table):
            notes.setdefault(note['id'], {})[note['what']] = note['value'] or note['reason']
    cases = []
    for row in rows:
        note = notes.get(row['id'], {})
        named = [s for s in shapes if s['shape'] == note.get('shape')]
        shape = named[0] if named else shape_of(row, shapes)
        if row['trust'] not in 'AB' or not shape or not row['n_ctx'] or 'leave_out' in note:
            continue
        cases.append(case_of(row, shape, note))
        if cases[-1]['engine'] == 'ik_llama.cpp' and shape['kv_lora'] and 'form' not in note:
            cases.append(in_heads(cases[-1]))
        for case in cases[-2:]:
            path = folder / case['model']
            if not path.exists() and case['model'].startswith(shape['shape'] + '-'):
                name = case['model'].removesuffix('.gguf').removeprefix(shape['shape'] + '-')
                log_models.write(shape, name.removesuffix('-heads'), path, name.endswith('-heads'))
    with open(folder / 'cases.tsv', 'w') as out:
        out.write('\t'.join(FIELDS) + '\n')
        for case in cases:
            out.write('\t'.join(str(case[f]) for f in FIELDS) + '\n')
    print(f'# {len(cases)} cases of {len(rows)} rows, {len({c["model"] for c in cases})} models')


if __name__ == '__main__':
    main(sys.argv[1])
