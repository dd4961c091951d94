#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models of families whose graphs memtally knows from templates, and what llama.cpp plans for them.

usage: oracle_templates.py FOLDER                     writes the models of oracle_templates.tsv as GGUF files
       oracle_templates.py --plan DUMP ARCHITECTURE...  has the engine plan them anew: writes .tsv and .csv

Sizes are those of the set that no template was made of. A line of the .tsv is a file's name, its family,
experts or not, head size from the embedding or not; then its tensors, dimensions and layers.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / 'scripts' / 'templates.d'))
sys.dont_write_bytecode = True
import models  # noqa: E402

KEPT_BACK = 3
# context, ubatch, sequences, flash, type_k, type_v
SETTINGS = ((4096, 512, 1, 'on', 'f16', 'f16'), (8192, 256, 1, 'off', 'f16', 'f16'), (16384, 1024, 1, 'on', 'q8_0', 'q8_0'),
            (8192, 512, 4, 'on', 'f16', 'f16'), (6144, 384, 2, 'off', 'f16', 'f16'), (32768, 512, 3, 'on', 'q8_0', 'q4_0'))
MIB = 1 << 20


def tensors_of(words):
    for word in words:
        name, dims, layers = word.split(':')
        dims = [int(x) for x in dims.split('x')]
        if layers:
            first, last = (int(x) for x in layers.split('-'))
            for i in range(first, last + 1):
                yield f'blk.{i}.{name}', dims
        else:
            yield name, dims


def words_of(tensors):
    runs = []
    for name, dims in sorted(tensors, key=lambda t: (t[0].split('.', 2)[2] if t[0].startswith('blk.') else '', int(t[0].split('.')[1]) if t[0].startswith('blk.') else 0, t[0])):
        text = 'x'.join(map(str, dims))
        if not name.startswith('blk.'):
            runs.append([name, text, None, None])
            continue
        _, layer, rest = name.split('.', 2)
        layer = int(layer)
        if runs and runs[-1][0] == rest and runs[-1][1] == text and runs[-1][3] == layer - 1:
            runs[-1][3] = layer
        else:
            runs.append([rest, text, layer, layer])
    return [f'{n}:{d}:' + ('' if a is None else f'{a}-{b}') for n, d, a, b in runs]


def write(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for line in (HERE / 'oracle_templates.tsv').read_text().splitlines():
        name, arch, moe, tied, *words = line.split('\t')
        spec = models.Spec(arch, KEPT_BACK, moe=moe == '1', tied=tied == '1')
        spec.write(folder / f'{name}.gguf', list(tensors_of(words[0].split(' '))))


def sizes(dump, path, layers, devices):
    text = ''.join(f'{k} {c} {u} {n} {n} 0 {int(f == "on")} {tk} {tv}\n' for k, (c, u, n, f, tk, tv) in enumerate(SETTINGS))
    env = {**os.environ, 'SIM_N': str(devices), 'GGML_NO_BACKTRACE': '1'}
    try:
        r = subprocess.run([dump, '--sizes', str(path), str(layers)], input=text, capture_output=True, text=True, env=env, timeout=120)
    except subprocess.TimeoutExpired:
        return {}
    found = {}
    for line in r.stdout.splitlines():
        if line.startswith('B '):
            _, k, place, size = line.split(' ')
            found.setdefault(int(k), {})[place] = int(size)
    return found


def plan(dump, names, out):
    import random
    import maker
    engine = maker.Engine(dump)
    lines, rows = [], []
    for arch in names:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            try:
                ways = maker.ways(engine, arch, folder)
            except ValueError as e:
                print(arch, e, file=sys.stderr)
                continue
            for moe, tied in ways:
                spec = models.Spec(arch, KEPT_BACK, moe=moe, tied=tied)
                v = maker.Variants(engine, spec, folder)
                several = v.several(random.Random(11)) if v.all else []
                for k, (classes, extra) in enumerate(several):
                    if k not in (0, len(several) - 1):
                        continue
                    name = f'{arch}{"-moe" if moe else ""}-{k}'
                    tensors = [(n, v.dims(n)) for c in v.classes if c in classes for n in v.classes[c]] + list(extra)
                    path = folder / f'{name}.gguf'
                    spec.write(path, tensors)
                    count = 0
                    for devices, layers in ((2, 'all'), (1, 'half')) if k else ((1, 'all'), (2, 'half')):
                        for s, found in sorted(sizes(dump, path, 999 if layers == 'all' else spec.s['L'] // 2, devices).items()):
                            c, u, n, f, tk, tv = SETTINGS[s]
                            places = [f'CUDA{i}' for i in range(devices)] + ['CPU']
                            planned = ' '.join(f'{found.get(p, 0) / MIB:.4f}' for p in places)
                            blank = ' '.join('-' for _ in places)
                            rows.append(f'{name},11434,server,{c},{u},{n},{f},{tk},{tv},{devices},{layers},{blank},{blank},{planned}')
                            count += 1
                    print(name, count, file=sys.stderr)
                    if count:
                        lines.append('\t'.join((name, arch, str(int(moe)), str(int(tied)), ' '.join(words_of(tensors)))))
        save(out, lines, rows)


def save(out, lines, rows):
    (out / 'oracle_templates.tsv').write_text('\n'.join(lines) + '\n')
    head = 'shape,build,tool,ctx,ub,np,fa,ctk,ctv,ndev,ngl,model_mib,context_mib,compute_mib'
    (out / 'oracle_templates.csv').write_text('\n'.join([head, *rows]) + '\n')


def main(arguments):
    if arguments[0] != '--plan':
        return write(arguments[0])
    plan(arguments[1], arguments[2:], pathlib.Path(os.environ.get('ORACLE_OUT', HERE)))


if __name__ == '__main__':
    main(sys.argv[1:])
