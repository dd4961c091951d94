# SPDX-License-Identifier: MIT
"""Rehearses architectures with several sizes and settings, and folds what their graphs were."""
import os
import random
import re
import subprocess
import tempfile

import emit
import fold
import graph as G
import models

# name context ubatch sequences outputs unified flash type_k type_v
SETTINGS = (
    ('fa', 3072, 96, 1, 7, 0, 1, 'f16', 'f16'), ('plain', 2304, 112, 1, 9, 0, 0, 'f16', 'f16'),
    ('fa-q8', 3840, 88, 1, 5, 0, 1, 'q8_0', 'q8_0'), ('fa-streams', 9216, 135, 3, 11, 0, 1, 'f16', 'f16'),
    ('plain-streams', 7680, 145, 5, 11, 0, 0, 'f16', 'f16'), ('fa-unified', 4352, 93, 3, 7, 1, 1, 'f16', 'f16'),
    ('plain-unified', 5376, 140, 4, 13, 1, 0, 'f16', 'f16'), ('plain-qk', 2560, 104, 1, 3, 0, 0, 'q8_0', 'f16'),
    ('fa-streams-q8', 6144, 117, 2, 13, 0, 1, 'q5_1', 'q4_0'),
)


def padded(n, to=256):
    return -(-n // to) * to


class Engine:
    """A build of llama.cpp on devices that are not there, as `memtally rehearse` gives it."""

    def __init__(self, dump, memtally):
        self.dump, self.memtally = dump, memtally

    def run(self, words, settings, devices=1, timeout=60):
        """What graph_dump wrote, and the last words of the engine."""
        text = ''.join(' '.join(str(x) for x in s) + '\n' for s in settings)
        env = {**os.environ, 'GGML_NO_BACKTRACE': '1', 'GGML_CUDA_DISABLE_FUSION': '1'}
        with tempfile.NamedTemporaryFile('r') as out, tempfile.NamedTemporaryFile('r') as said, tempfile.NamedTemporaryFile('w') as asked:
            asked.write(text)
            asked.flush()
            command = [self.memtally, 'rehearse', '--device', ','.join(['9TiB'] * devices), '--', self.dump, out.name, said.name, asked.name]
            try:
                r = subprocess.run(command + [str(w) for w in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, env=env)
            except subprocess.TimeoutExpired:
                return '', 'timeout'
            if 'could not be loaded' in r.stderr:
                raise ValueError(r.stderr.strip())
            words = [x for x in said.read().split('\n') if x.strip(' .') and 'dummy' not in x]
            return out.read(), ' | '.join(words[-2:])

    def ask(self, path, is_virtual, settings):
        out, error = self.run((['--virtual'] if is_virtual else []) + [path], settings)
        weights, done, _ = G.parse(out)
        return weights, done, error

    def sizes(self, path, settings, layers, devices):
        """{setting: {place: bytes}} of the buffers that it computes in."""
        out, _ = self.run(['--sizes', path, layers], settings, devices, 120)
        found = {}
        for line in out.splitlines():
            if line.startswith('B '):
                _, name, place, size = line.split(' ')
                found.setdefault(name, {})[place] = int(size)
        return found


def rotation(kind, size, grows):
    if kind in ('f16', 'f32', 'bf16') or not size or size % 64:
        return 0
    n = 64
    while grows and size % (2 * n) == 0:
        n *= 2
    return n


def samples_of(spec, weights, setting, graphs, options=()):
    """The graphs for a batch and for single tokens, with what memtally will know of such a run."""
    name, context, ubatch, sequences, outputs, unified, flash, type_k, type_v = setting
    s = spec.s
    out = []
    streams = 1 if unified else sequences
    cells = padded(context) if unified else padded(padded(context) // sequences)
    latent = spec.arch in models.LATENT_FAMILIES
    m = s['latent']
    if latent:
        hk, hv = (m['nope'] + m['rot'], m['vh'])
    else:
        hk = hv = s['HK'] if not spec.tied else s['D'] // s['H']
    for which, graph in (('batch', graphs[-1]), ('one', graphs[-2])):
        if spec.moe:
            G.gather(graph, s['U'])
        tokens = -(-ubatch // sequences) * sequences if which == 'batch' else sequences
        window = padded(min(cells, s['SWA'] * (sequences // streams) + ubatch))
        symbols = {'T': tokens, 'S': sequences, 'N': streams, 'O': min(ubatch, outputs) if which == 'batch' else sequences,
                   'Q': tokens // sequences, 'B': tokens // streams, 'C': cells, 'W': window, 'D': s['D'], 'V': s['V'], 'conv': s['conv'],
                   'inner': s['inner'], 'state': s['state'], 'taps': s['conv'] - 1, 'dt': s['dt'], 'group': s['group'], 'L': s['L'], 'top': 200 + 96 * spec.n}
        if latent:
            symbols.update({'qlora': m['q'], 'kvlora': m['kv'], 'rot': m['rot'], 'nope': m['nope'], 'vh': m['vh']})
        rk, rv = rotation(type_k, hk, True), rotation(type_v, hv, False)
        facts = set()
        for fact, holds in (('normw', 'norm_w' in spec.options), ('scalew', 'scale_w' in spec.options), ('groups', 'groups' in spec.options),
                            ('fa', flash), ('streams', streams > 1), ('seqs', sequences > 1), ('one', tokens == sequences), ('t1', tokens == 1),
                            ('rk', rk), ('rv', rv)):
            if holds:
                facts.add(fact)
        if rk:
            symbols['rk'] = rk
        if rv:
            symbols['rv'] = rv
        layers, layer_facts = [], []
        states = {int(m.group(1)) for m in (re.search(r'(?:cache_[rs]_l|_states?[a-z_]*-)(\d+)', t.name) for t in graph.tensors[:graph.n_leafs]
                                            if t.usage == 1) if m}
        for t_name in weights:
            if not G.BLOCK.match(t_name):
                facts.add('@^' + fold.short(t_name))
        caches = {}
        for t in graph.tensors[:graph.n_leafs]:
            c = G.CACHE.match(t.name)
            if c and t.usage == 1:
                caches.setdefault(int(c.group(2)), {})[c.group(1)] = t
        for i in range(s['L']):
            here = caches.get(i, {})
            k = here.get('cache_k_') or here.get('cache_k')
            windowed = bool(k is not None and k.ne[1] == window and window != cells)
            f = {'last'} if i == s['L'] - 1 else set()
            f |= {'first'} if i == 0 else set()
            f |= {'swa'} if windowed else set()
            f |= {f'mod{n}={i % n}' for n in (2, 3, 4)}
            f |= {'state'} if i in states else set()
            for t_name in weights:
                b = G.BLOCK.match(t_name)
                if b and int(b.group(2)) == i:
                    f.add('@' + fold.short(t_name[b.end():]))
            layer_facts.append(frozenset(f))
            layers.append({'heads': s['H'], 'kv': s['KV'], 'hk': hk, 'hv': hv, 'ff': s['FF'], 'cells': window if windowed else cells})
            if spec.moe:
                layers[-1].update({'E': s['E'], 'U': s['U'], 'eff': s['X'], 'sff': s['Y']})
        symbols['widest'] = hv * s['KV']
        sample = fold.Sample(graph, symbols, layers, frozenset(facts), layer_facts)
        sample.set = spec.n
        sample.weights = {k: ne for k, (_, ne) in weights.items()}
        sample.symbols_text = {'type_k': type_k, 'type_v': type_v}
        sample.label = f'{spec.arch} set {spec.n} {name} {which}'
        out.append(sample)
    return out


def classes_of(weights):
    """Names with every layer's number cut out: what is there or not in a model as a whole."""
    out = {}
    for name in weights:
        m = G.BLOCK.match(name)
        out.setdefault('*' + name[m.end():] if m else name, []).append(name)
    return out


class Variants:
    """Which tensors a model of a family must have and may have, asked of the engine."""

    def __init__(self, engine, spec, folder):
        self.engine, self.spec, self.path = engine, spec, folder / 'variant.gguf'
        spec.write(self.path)
        self.all, self.virtual, self.error = engine.ask(self.path, True, ())
        self.all = {k: ne for k, (_, ne) in self.all.items()}
        self.classes = classes_of(self.all)

    def dims(self, name):
        ne = list(self.all[name])
        while len(ne) > 1 and ne[-1] == 1:
            ne.pop()
        return ne

    def write(self, classes, extra=()):
        tensors = [(n, self.dims(n)) for c in self.classes if c in classes for n in self.classes[c]]
        self.spec.write(self.path, tensors + list(extra))

    def try_load(self, classes, extra=()):
        self.write(classes, extra)
        weights, _, error = self.engine.ask(self.path, False, ())
        return weights, error

    def required(self):
        have = set()
        for _ in range(160):
            _, error = self.try_load(have)
            wrong = re.search(r"tensor '([^']*)' has wrong shape; expected *([0-9, ]+), got", error)
            if wrong:
                self.all[wrong.group(1)] = [int(x) for x in wrong.group(2).split(',') if x.strip()]
                continue
            m = re.search(r"(?:missing )?tensor '([^']*)'(?: not found)?", error)
            if not m:
                return have if 'error' not in error and 'failed' not in error else None
            b = G.BLOCK.match(m.group(1))
            name = '*' + m.group(1)[b.end():] if b else m.group(1)
            if name in have and m.group(1) in self.all:
                return None
            if m.group(1) not in self.all:
                known = self.classes.setdefault(name, [])
                self.all[m.group(1)] = self.all[known[0]] if known else [self.spec.s['D']]
                known.append(m.group(1))
            have.add(name)
        return None

    def fused(self, required):
        """Queries, keys and values as one matrix, as the files of some families have them."""
        if not {'*attn_q.weight', '*attn_k.weight', '*attn_v.weight'} <= required:
            return None
        rest = required - {'*attn_q.weight', '*attn_k.weight', '*attn_v.weight'}
        extra = []
        for name in self.classes['*attn_q.weight']:
            b = G.BLOCK.match(name).group(0)
            rows = sum(self.all.get(f'{b}attn_{x}.weight', [0, 0])[1] for x in 'qkv')
            extra.append((b + 'attn_qkv.weight', [self.all[name][0], rows]))
        _, error = self.try_load(rest, extra)
        return (rest, extra) if not error else None

    def several(self, chance):
        """[(classes, further tensors)]: the least, fused queries, all that may be, and some by chance."""
        required = self.required()
        if required is None:
            return []
        optional = sorted(c for c in set(self.classes) - required if not c.endswith(('.scale', '.input_scale')))
        out = [(required, ())]
        fused = self.fused(required)
        if fused:
            out.append(fused)
            if '*attn_q.bias' in optional:
                rows = [(n.replace('attn_qkv.weight', 'attn_qkv.bias'), [d[1]]) for n, d in fused[1]]
                out.append((fused[0], [*fused[1], *rows]))
        if optional:
            out.append((required | set(optional), ()))
            for share in (0.35, 0.6):
                out.append((required | {o for o in optional if chance.random() < share}, ()))
        good = []
        for classes, extra in out:
            _, error = self.try_load(classes, extra)
            if 'error' not in error and 'failed' not in error:
                good.append((classes, extra))
        return good


def rehearse(engine, arch, moe, tied, folder, options=(), sets=models.MADE_OF, least=False):
    """All samples of a family."""
    samples, names, chosen = [], set(), None
    for n in sets:
        spec = models.Spec(arch, n, moe=moe, tied=tied, options=options)
        v = Variants(engine, spec, folder)
        if not v.all:
            raise ValueError(v.error)
        names |= {c for c in v.classes if not c.endswith(('.scale', '.input_scale'))}
        if chosen is None:
            chosen = v.several(random.Random(7))
        for k, (classes, extra) in enumerate(chosen[:1] if least else chosen):
            if not least and n == sets[-1] and k > 1 + bool(extra):
                continue
            if extra and n:
                fused = v.fused(chosen[0][0])
                if not fused:
                    continue
                rows = [(name.replace('attn_qkv.weight', 'attn_qkv.bias'), [d[1]]) for name, d in fused[1]]
                extra = [*fused[1], *rows] if any(name.endswith('bias') for name, _ in extra) else fused[1]
            v.write(classes, extra)
            settings = SETTINGS[:4] if least else SETTINGS if n == 0 or k < 3 else [s for i, s in enumerate(SETTINGS) if i % 3 == n % 3]
            weights, done, error = engine.ask(v.path, False, settings)
            for s in settings:
                if s[0] in done:
                    samples += samples_of(spec, weights, s, done[s[0]])
    return samples, names


def ways(engine, arch, folder):
    """The kinds of models of a family that the engine plans: (experts, head size from the embedding)."""
    out = []
    for moe in (False, True):
        for tied in (False, True):
            path = folder / 'try.gguf'
            models.Spec(arch, 0, moe=moe, tied=tied).write(path)
            weights, done, error = engine.ask(path, True, SETTINGS[:1])
            if not done and weights:
                v = Variants(engine, models.Spec(arch, 0, moe=moe, tied=tied), folder)
                several = v.several(random.Random(7))
                if several:
                    v.write(*several[0])
                    _, done, error = engine.ask(v.path, False, SETTINGS[:1])
            if done:
                if moe and out and not any('_exps' in name for name in weights):
                    break
                out.append((moe, tied))
                break
    if not out:
        raise ValueError(error)
    return out


def samples_of_family(engine, arch, folder, found_ways):
    """All samples of a family, and the tensors that its models may have."""
    samples, names = [], set()
    for moe, tied in found_ways:
        more, seen = rehearse(engine, arch, moe, tied, folder)
        samples += more
        names |= seen
        for options in (('norm_w',), ('scale_w',), ('norm_w', 'scale_w'), ('groups', 'norm_w', 'scale_w')) if moe else ():
            samples += rehearse(engine, arch, moe, tied, folder, options, (0, 1), least=True)[0]
    if not samples:
        raise ValueError('the engine planned nothing')
    return samples, names


def template_of(samples, names, strict=False):
    """The lines of a family's template; `strict` in what operations are taken for the same line."""
    folded = fold.Fold(samples, strict)
    lines = emit.Emitter(folded).text()
    used = {token[1:].rstrip('+').split(':')[-1] for part in folded.parts.values() for line in part.lines
            for token in line.key[7] if token[0] == '@'}
    unused = sorted({('' if c[0] == '*' else '^') + fold.short(c.lstrip('*')) for c in names} - used)
    return (['unused ' + ' '.join(unused)] if unused else []) + lines
