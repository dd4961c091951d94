# SPDX-License-Identifier: MIT
"""Tries a template on models that it was not made of: what the engine plans for them, and what memtally does."""
import math
import random
import re
import subprocess

import maker
import models

# context, ubatch, sequences, flash, type_k, type_v, one cache for all sequences
SETTINGS = ((4096, 512, 1, 'on', 'f16', 'f16', 0), (8192, 256, 1, 'off', 'f16', 'f16', 0), (16384, 1024, 1, 'on', 'q8_0', 'q8_0', 0),
            (8192, 512, 4, 'on', 'f16', 'f16', 0), (6144, 384, 2, 'off', 'f16', 'f16', 0), (32768, 512, 3, 'on', 'q8_0', 'q4_0', 0),
            (8192, 320, 5, 'off', 'f16', 'f16', 1), (6144, 448, 2, 'on', 'f16', 'f16', 1))
PLACES = ((1, 'all'), (2, 'half')), ((2, 'all'), (1, 'half'))
MIB = 1 << 20
HEAD = 'shape,build,tool,ctx,ub,np,fa,ctk,ctv,ndev,ngl,model_mib,context_mib,compute_mib'
# A template that is off by more, or oftener, is none; one that is off at all doubts itself.
WORST_PERCENT, LEAST_WITHIN = 20, 80


def variants(engine, arch, n, found_ways, folder, seed, most):
    """(name, spec, tensors) of some models of a family with the sizes of set `n`."""
    for moe, tied in found_ways:
        for options in ((), ('norm_w', 'scale_w')) if moe else ((),):
            spec = models.Spec(arch, n, moe=moe, tied=tied, options=options)
            v = maker.Variants(engine, spec, folder)
            several = v.several(random.Random(seed)) if v.all else []
            chosen = sorted({0, len(several) - 1, len(several) // 2})[:most] if several and not options else range(len(several))[-1:]
            for k in chosen:
                classes, extra = several[k]
                tensors = [(name, v.dims(name)) for c in v.classes if c in classes for name in v.classes[c]] + list(extra)
                yield f'{arch}{"-moe" if moe else ""}{"-w" if options else ""}-{n}{k}', spec, tensors


def points(engine, build, name, spec, path, settings, places, thin=0):
    """The engine's plans of one model, as lines of an oracle's file; of later places without the first `thin` settings."""
    asked = [(k, c, u, n, n, unified, int(f == 'on'), tk, tv) for k, (c, u, n, f, tk, tv, unified) in enumerate(settings)]
    for i, (devices, layers) in enumerate(places):
        for k, found in sorted(engine.sizes(path, asked[i * thin:] if thin else asked, 999 if layers == 'all' else spec.s['L'] // 2, devices).items(), key=lambda x: int(x[0])):
            c, u, n, f, tk, tv, unified = settings[int(k)]
            where = [f'CUDA{i}' for i in range(devices)] + ['CPU']
            planned = ' '.join(f'{found.get(p, 0) / MIB:.4f}' for p in where)
            blank = ' '.join('-' for _ in where)
            yield f'{name},{build},server{"-unified" if unified else ""},{c},{u},{n},{f},{tk},{tv},{devices},{layers},{blank},{blank},{planned}'


def score(scorer, floors, template, folder, oracle):
    """(buffers, percent exact, percent within 1 %, worst percent, points without a template)."""
    r = subprocess.run([scorer, '--file', str(template), str(floors), str(folder), str(oracle)], capture_output=True, text=True)
    m = re.search(r'# family \S+ +(\d+) buffers +([\d.]+)% exact +([\d.]+)% within 1%, worst ([\d.]+)%', r.stdout)
    without = re.search(r'(\d+) of them without', r.stdout)
    if not without:
        raise ValueError(r.stderr[-200:])
    return (*(float(x) for x in (m.groups() if m else (0, 0, 0, 100))), int(without.group(1)))


def plan(engine, build, arch, found_ways, folder):
    """Models of a family in `folder`, and the file of what the engine plans for them."""
    rows = [HEAD]
    for i, (name, spec, tensors) in enumerate(variants(engine, arch, models.TRIED_WITH, found_ways, folder, 11, 3)):
        path = folder / f'{name}.gguf'
        spec.write(path, tensors)
        rows += points(engine, build, name, spec, path, SETTINGS, PLACES[i % 2])
    board = folder / 'gate.csv'
    board.write_text('\n'.join(rows) + '\n')
    return board


def tried(arch, lines, board, folder, scorer, floors):
    """Returns (percent that a template may be off, None where it is none; what to say)."""
    (folder / 'gate.templates').write_text('\n'.join([f'graph {arch}', *lines]) + '\n')
    n, exact, within, worst, without = score(scorer, floors, folder / 'gate.templates', folder, board)
    said = f'{n:.0f} buffers, {exact}% exact, {within}% within 1%, worst {worst}%, {without} points without'
    if n and exact == 100 and not without:
        return 0, said
    if n and not without and worst <= WORST_PERCENT and within >= LEAST_WITHIN:
        return math.ceil(2 * worst), said
    return None, said
