#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models of families whose graphs memtally knows from templates, and what llama.cpp plans for them.

usage: oracle_templates.py FOLDER                     writes the models of oracle_templates.tsv as GGUF files
       oracle_templates.py --plan SOURCE BIN [ARCHITECTURE...]  has the engine plan them anew: writes .tsv and .csv

Sizes, contexts, sequences and devices are those that no template was made of nor tried with. A line of the .tsv is
a file's name, its family, set of sizes, experts or not, head size from the embedding or not, how experts are weighed;
then its tensors, dimensions and layers. The points are written as the engine plans them, whatever templates say.
"""
import importlib.machinery
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / 'scripts' / 'templates.d'))
sys.dont_write_bytecode = True
import models  # noqa: E402

# context, ubatch, sequences, flash, type_k, type_v, one cache for all; then devices and layers on them
SETTINGS = ((5120, 640, 1, 'on', 'f16', 'f16', 0), (12288, 192, 1, 'off', 'f16', 'f16', 0), (20480, 2048, 1, 'on', 'q8_0', 'q8_0', 0),
            (16384, 768, 6, 'on', 'f16', 'f16', 0), (10000, 320, 3, 'off', 'f16', 'f16', 0), (49152, 480, 5, 'on', 'q5_1', 'q8_0', 0),
            (2048, 64, 1, 'off', 'q4_0', 'f16', 0), (14336, 704, 4, 'off', 'f16', 'f16', 1), (7168, 576, 7, 'on', 'f16', 'f16', 1))
PLACES = ((1, 'all'), (3, 'half')), ((3, 'all'), (1, 'half')), ((2, 'all'), (2, 'half'))
SEED = 23


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
        name, arch, n, moe, tied, options, words = line.split('\t')
        spec = models.Spec(arch, int(n), moe=moe == '1', tied=tied == '1', options=options.split())
        spec.write(folder / f'{name}.gguf', list(tensors_of(words.split(' '))))


def plan_family(job):
    import gate
    import maker
    dump, memtally, build, arch, place = job
    engine, lines, rows = maker.Engine(dump, memtally), [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            ways = maker.ways(engine, arch, folder)
        except ValueError as e:
            return arch, [], [], str(e)
        for n in models.BOARD:
            for name, spec, tensors in gate.variants(engine, arch, n, ways, folder, SEED, 2):
                path = folder / f'{name}.gguf'
                spec.write(path, tensors)
                found = list(gate.points(engine, build, name, spec, path, SETTINGS, PLACES[place % 3], 4))
                place += 1
                rows += found
                if found:
                    lines.append('\t'.join((name, arch, str(n), str(int(spec.moe)), str(int(spec.tied)), ' '.join(sorted(spec.options)),
                                            ' '.join(words_of(tensors)))))
    return arch, lines, rows, ''


def plan(source, folder, names, out):
    import concurrent.futures
    import gate
    templates = importlib.machinery.SourceFileLoader('templates', str(HERE.parents[1] / 'scripts' / 'templates')).load_module()
    source, folder = pathlib.Path(source).resolve(), pathlib.Path(folder).resolve()
    memtally, build = str(templates.BUILT / 'src/cli/memtally'), templates.build_of(source)
    lines, rows = [], []
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        dump = templates.compile_dump(source, folder, pathlib.Path(work))
        jobs = [(dump, memtally, build, arch, i) for i, arch in enumerate(names or templates.families())]
        for arch, more_lines, more, why in pool.map(plan_family, jobs):
            print(f'{arch}: {len(more)} points {why}', file=sys.stderr, flush=True)
            lines += more_lines
            rows += more
    (out / 'oracle_templates.tsv').write_text('\n'.join(lines) + '\n')
    (out / 'oracle_templates.csv').write_text('\n'.join([gate.HEAD, *rows]) + '\n')


def main(arguments):
    if arguments[0] != '--plan':
        return write(arguments[0])
    plan(arguments[1], arguments[2], arguments[3:], pathlib.Path(os.environ.get('ORACLE_OUT', HERE)))


if __name__ == '__main__':
    main(sys.argv[1:])
