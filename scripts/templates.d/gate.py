# SPDX-License-Identifier: MIT
"""Tries a template on models that it was not made of: what the engine plans for them, and what memtally does."""
import math
import random
import re
import subprocess

import maker
import models

# context, ubatch, sequences, flash, type_k, type_v
SETTINGS = ((4096, 512, 1, 'on', 'f16', 'f16'), (8192, 256, 1, 'off', 'f16', 'f16'), (16384, 1024, 1, 'on', 'q8_0', 'q8_0'),
            (8192, 512, 4, 'on', 'f16', 'f16'), (6144, 384, 2, 'off', 'f16', 'f16'), (32768, 512, 3, 'on', 'q8_0', 'q4_0'))
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


def points(engine, build, name, spec, path, settings, places):
    """The engine's plans of one model, as lines of an oracle's file."""
    asked = [(k, c, u, n, n, 0, int(f == 'on'), tk, tv) for k, (c, u, n, f, tk, tv) in enumerate(settings)]
    for devices, layers in places:
        for k, found in sorted(engine.sizes(path, asked, 999 if layers == 'all' else spec.s['L'] // 2, devices).items(), key=lambda x: int(x[0])):
            c, u, n, f, tk, tv = settings[int(k)]
            where = [f'CUDA{i}' for i in range(devices)] + ['CPU']
            planned = ' '.join(f'{found.get(p, 0) / MIB:.4f}' for p in where)
            blank = ' '.join('-' for _ in where)
            yield f'{name},{build},server,{c},{u},{n},{f},{tk},{tv},{devices},{layers},{blank},{blank},{planned}'


def score(scorer, floors, template, folder, oracle):
    """(buffers, percent exact, percent within 1 %, worst percent, points without a template)."""
    r = subprocess.run([scorer, '--file', str(template), str(floors), str(folder), str(oracle)], capture_output=True, text=True)
    m = re.search(r'# family \S+ +(\d+) buffers +([\d.]+)% exact +([\d.]+)% within 1%, worst ([\d.]+)%', r.stdout)
    without = re.search(r'(\d+) of them without', r.stdout)
    if not without:
        raise ValueError(r.stderr[-200:])
    return (*(float(x) for x in (m.groups() if m else (0, 0, 0, 100))), int(without.group(1)))


def tried(engine, build, arch, lines, found_ways, folder, scorer, floors):
    """Returns ('' or a line of doubt or None where it is none, what to say)."""
    rows = [HEAD]
    for i, (name, spec, tensors) in enumerate(variants(engine, arch, models.TRIED_WITH, found_ways, folder, 11, 3)):
        path = folder / f'{name}.gguf'
        spec.write(path, tensors)
        rows += points(engine, build, name, spec, path, SETTINGS, PLACES[i % 2])
    (folder / 'gate.csv').write_text('\n'.join(rows) + '\n')
    (folder / 'gate.templates').write_text('\n'.join([f'graph {arch}', *lines]) + '\n')
    n, exact, within, worst, without = score(scorer, floors, folder / 'gate.templates', folder, folder / 'gate.csv')
    said = f'{n:.0f} buffers, {exact}% exact, {within}% within 1%, worst {worst}%, {without} points without'
    if n and exact == 100 and not without:
        return '', said
    if n and not without and worst <= WORST_PERCENT and within >= LEAST_WITHIN:
        return f'doubt {math.ceil(2 * worst)}', said
    return None, said
