# SPDX-License-Identifier: MIT
"""Folds graphs of one architecture, dumped with several sizes and settings, into a template.

The text is a program: a line for each operation, layers alike as one body whose lines are guarded by
what tells when they are there. docs/FORMATS.md has the grammar.
"""
import collections
import itertools

import graph as G

AXES = 'abc'


class Sample:
    """A graph with what is known about the run: `symbols` of the whole, `layers` of each layer, `facts` likewise."""

    def __init__(self, graph, symbols, layers, facts, layer_facts):
        self.graph, self.symbols, self.layers, self.facts, self.layer_facts = graph, symbols, layers, facts, layer_facts
        self.labels, n = G.label_nodes(graph)
        self.n_layers = len(layers)
        if n > self.n_layers:
            raise ValueError(f'{n} layers in the graph of a model of {self.n_layers}')
        seen = False
        for node in graph.nodes:
            seen = seen or G.layer_of_name(node.name) is not None or any(
                graph.tensors[s].is_leaf and G.BLOCK.match(graph.tensors[s].name) for s in node.src.values())
            if not seen:
                self.labels[node.i] = -1
            elif self.labels[node.i] >= n:
                self.labels[node.i] = self.n_layers
        self.roots = set(graph.roots)
        # Inputs that windowed layers alone read.
        readers = collections.defaultdict(set)
        for node in graph.nodes:
            layer = self.labels[node.i]
            for s in node.src.values():
                if graph.tensors[s].is_leaf:
                    readers[s].add(0 <= layer < self.n_layers and 'swa' in layer_facts[layer])
        self.windowed = {s for s, kinds in readers.items() if kinds == {True}}

    def part_of(self, i):
        label = self.labels[i]
        return 'head' if label < 0 else 'tail' if label >= self.n_layers else 'layer'


class Line:
    def __init__(self, key):
        self.key = key
        self.uses = []  # (sample, layer, tensor index)


def short(name):
    return name[:-7] if name.endswith('.weight') else name


def leaf_token(sample, t, layer):
    """How a leaf is called in a template."""
    m = G.BLOCK.match(t.name)
    if m:
        if int(m.group(2)) == layer:
            return '@' + short(t.name[m.end():])
        return f'@{int(m.group(2)) - layer}:' + short(t.name[m.end():]) if layer >= 0 else '@' + t.name
    if t.usage == 2:
        on_device = not t.buffer.endswith('Host') and not t.buffer.startswith('CPU')
        return '@^' + short(t.name) + ('+' if on_device else '')
    m = G.CACHE.match(t.name)
    if m and t.usage == 1:
        return '&' + m.group(1).replace('cache_', '').strip('_')
    if t.usage == 1:
        return '&' + base_name(t)
    return '$'


def key_of(sample, t, layer):
    g = sample.graph.tensors
    sources = []
    for slot in range(max(t.src, default=-1) + 1):
        if slot not in t.src:
            sources.append('0')
        elif t.src[slot] == t.i:
            sources.append('self')
        else:
            s = g[t.src[slot]]
            sources.append(leaf_token(sample, s, layer) if s.is_leaf else 'n')
            if sources[-1] == '$':
                name = 'leaf' if s.name.startswith('leaf_') else s.name.split('-')[0]
                sources[-1] = f'${name}:{s.type}' + (':swa' if s.i in sample.windowed else '')
    of = ''
    if t.view >= 0 and t.op not in G.VIEWS:
        for slot, s in t.src.items():
            if s != t.i and (s == t.view or g[s].view == t.view):
                of = str(slot)
        if not of:
            raise ValueError(f'{t.op} {t.name} views what it does not read')
    axes = ''
    if t.op in ('PERMUTE', 'TRANSPOSE'):
        axes = G.axes_of(t, g[t.src[0]]) or ''
        if 1 in t.ne:  # which of several the engine meant shows in other settings
            axes = 'any'
    source_of = [g[i] for i in t.src.values() if i != t.i]
    is_default_type = bool(source_of) and t.type == type_by_default(t, g, of)
    position = sample.graph.position
    near = tuple(position.get(s, -9) == position[t.i] - 1 for _, s in sorted(t.src.items()))
    pin = '' if t.pin == '-' else 'host' if t.pin.startswith('CPU') else 'pin'
    return (t.op, 'any' if t.op in G.VIEWS or of else '' if is_default_type else t.type, of, t.i in sample.roots, bool(t.flags & 2), bool(t.flags & 1),
            pin, tuple(sources), base_name(t), near)


def base_name(t):
    """What the engine calls a result, without its layer: lines of one name are taken for the same."""
    name = t.name.split('~')[0]
    if G.CACHE.match(name):
        return 'cache_' + G.CACHE.match(name).group(1).replace('cache_', '')
    m = G.LABEL.search(name)
    name = name[:m.start()] if m else name
    return '' if name.startswith(('node_', 'leaf_', '-')) else name


def origin(t, g):
    """What the engine calls a result, or else what it is made of."""
    while not base_name(t):
        sources = [g[i] for i in t.src.values() if i != t.i and not g[i].is_leaf]
        if not sources:
            return ''
        t = sources[0]
    return base_name(t)


def type_by_default(t, g, of):
    if of:
        return g[t.src[int(of)]].type
    src = [g[t.src[k]] for k in sorted(t.src) if t.src[k] != t.i]
    return G.default_type(t.op, src)


def alike(a, b, strict=False):
    """How much speaks for two operations being the same line; 0: they cannot be. Strictly, views of what the engine
    calls by different names (queries, values) are not the same."""
    if a[:8] != b[:8] or (strict and a[0] in G.VIEWS and a[10] != b[10]):
        return 0
    anchored = any(t[0] in '@&$' for t in a[7])
    return (6 if anchored else 2) + (3 if a[8] == b[8] and a[8] else 0) + (2 if a[9] == b[9] else 0)


def lcs(a, b, strict=False):
    """Pairs of indexes of the heaviest common subsequence."""
    start = 0
    while start < len(a) and start < len(b) and a[start] == b[start]:
        start += 1
    end_a, end_b = len(a), len(b)
    while end_a > start and end_b > start and a[end_a - 1] == b[end_b - 1]:
        end_a, end_b = end_a - 1, end_b - 1
    x, y = a[start:end_a], b[start:end_b]
    table = [[0] * (len(y) + 1) for _ in range(len(x) + 1)]
    weights = {}
    for i in range(len(x) - 1, -1, -1):
        row, below = table[i], table[i + 1]
        for j in range(len(y) - 1, -1, -1):
            best = below[j] if below[j] >= row[j + 1] else row[j + 1]
            if x[i][0] == y[j][0]:
                w = alike(x[i], y[j], strict)
                if w and below[j + 1] + w >= best:
                    best = below[j + 1] + w
                    weights[(i, j)] = w
            row[j] = best
    pairs = [(i, i) for i in range(start)]
    i = j = 0
    while i < len(x) and j < len(y):
        if (i, j) in weights and table[i][j] == table[i + 1][j + 1] + weights[(i, j)]:
            pairs.append((start + i, start + j))
            i, j = i + 1, j + 1
        elif table[i + 1][j] >= table[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs + [(end_a + k, end_b + k) for k in range(len(a) - end_a)]


class Part:
    """Head, layer or tail: the lines of all samples, in one order."""

    def __init__(self, name, samples, strict):
        self.name = name
        runs = []  # (sample, layer, [tensor indexes], keys)
        for number, sample in enumerate(samples):
            nodes = collections.defaultdict(list)
            for t in sample.graph.nodes:
                if sample.part_of(t.i) == name:
                    nodes[sample.labels[t.i] if name == 'layer' else {'head': -1, 'tail': sample.n_layers}[name]].append(t.i)
            layers = range(sample.n_layers) if name == 'layer' else [-1 if name == 'head' else sample.n_layers]
            for layer in layers:
                at = nodes.get(layer, [])
                runs.append((number, layer, at, tuple(key_of(sample, sample.graph.tensors[i], layer) + (
                    (origin(sample.graph.tensors[i], sample.graph.tensors),) if strict else ()) for i in at)))
        distinct = sorted({keys for *_, keys in runs}, key=lambda k: (-len(k), k))
        merged, ids, self.keys = [], {}, []
        for keys in distinct:
            own = [None] * len(keys)
            for i, j in lcs([self.keys[m] for m in merged], list(keys), strict):
                own[j] = merged[i]
            for j, key in enumerate(keys):
                if own[j] is None:
                    self.keys.append(key)
                    own[j] = len(self.keys) - 1
            merged = self.ordered(merged, own)
            ids[keys] = own
        order = {m: p for p, m in enumerate(merged)}
        self.lines = [Line(self.keys[m]) for m in merged]
        self.runs = []
        for number, layer, at, keys in runs:
            mapped = [order[m] for m in ids[keys]]
            self.runs.append((number, layer, dict(zip(mapped, at))))
            for line, tensor in zip(mapped, at):
                self.lines[line].uses.append((number, layer, tensor))

    @staticmethod
    def ordered(merged, own):
        """A supersequence of both: `own` with the rest of `merged` put in where it stood."""
        mine, known = set(own), set(merged)
        out, i = [], 0
        for m in own:
            if m in known:
                while merged[i] != m:
                    if merged[i] not in mine:
                        out.append(merged[i])
                    i += 1
                i += 1
            out.append(m)
        out += [m for m in merged[i:] if m not in mine]
        return out


class Fold:
    def __init__(self, samples, strict=False):
        self.samples = samples
        self.parts = {name: Part(name, samples, strict) for name in ('head', 'layer', 'tail')}
        self.line_of = [{} for _ in samples]  # of each sample: tensor -> (part, line)
        for name, part in self.parts.items():
            for number, layer, mapped in part.runs:
                for line, tensor in mapped.items():
                    self.line_of[number][tensor] = (name, line)
        self.join()
        self.name_all()
        self.solver = Solver(self)
        self.guards()

    # Names ------------------------------------------------------------------------------------
    def find(self, x):
        while self.up.get(x, x) != x:
            x = self.up[x]
        return x

    def unite(self, a, b):
        a, b = self.find(a), self.find(b)
        if a != b:
            self.up[b] = a

    def slots(self, line):
        return len(line.key[7])

    def join(self):
        """What reaches the same source of a line has one name."""
        self.up, self.reached = {}, {}
        for name, part in self.parts.items():
            for index, line in enumerate(part.lines):
                for slot, token in enumerate(line.key[7]):
                    if token != 'n' and not token.startswith('$'):
                        continue
                    for number, layer, tensor in line.uses:
                        g = self.samples[number].graph.tensors
                        source = g[tensor].src[slot]
                        what = ('leaf', number, source) if g[source].is_leaf else self.line_of[number][source]
                        first = self.reached.setdefault((name, index, slot), what)
                        self.unite(first, what)

    def name_all(self):
        """Names of classes: of inputs their own, of results what the engine calls them."""
        self.names, taken = {}, set()
        votes = collections.defaultdict(collections.Counter)
        for number, sample in enumerate(self.samples):
            g = sample.graph.tensors
            for tensor, where in self.line_of[number].items():
                base = base_name(g[tensor])
                if base and not base.startswith(('node_', '-', '(')) and base.replace('_', '').isalnum():
                    votes[self.find(where)][base] += 1
            for t in g[:sample.graph.n_leafs]:
                root = self.find(('leaf', number, t.i))
                if root in self.up or root == ('leaf', number, t.i):
                    base = t.name.split('-')[0].replace('~', '_').replace('(', '').replace(')', '')
                    votes[root][base if base and not base.startswith('leaf_') else f'{t.type}_input'] += 1
        self.inputs = {}
        ordered = []
        for name in ('head', 'layer', 'tail'):
            for index, line in enumerate(self.parts[name].lines):
                ordered.append((name, index))
                for slot, token in enumerate(line.key[7]):
                    if token.startswith('$') or token == 'n':
                        root = self.find(self.reached[(name, index, slot)])
                        if root not in ordered:
                            ordered.append(root)
        for what in ordered:
            root = self.find(what)
            if root in self.names:
                continue
            best = votes[root].most_common(1)
            base = best[0][0] if best else 't'
            name, n = base, 2
            while name in taken:
                name, n = f'{base}_{n}', n + 1
            taken.add(name)
            self.names[root] = name

    def leaf_class(self, number, i):
        return self.names[self.find(('leaf', number, i))]

    # Guards -----------------------------------------------------------------------------------
    def facts_of(self, number, layer):
        sample = self.samples[number]
        if layer < 0 or layer >= sample.n_layers:
            return sample.facts
        return sample.facts | sample.layer_facts[layer]

    def guards(self):
        for part in self.parts.values():
            points = collections.OrderedDict()
            for number, layer, mapped in part.runs:
                points.setdefault(self.facts_of(number, layer), []).append(mapped)
            facts = list(points)
            universe = set().union(*facts) if facts else set()
            literals = {}
            for fact in sorted(universe):
                mask = sum(1 << i for i, f in enumerate(facts) if fact in f)
                literals[fact] = mask
            full = (1 << len(facts)) - 1
            literals = {k: v for k, v in literals.items() if v not in (0, full)}
            cache = {}
            for index, line in enumerate(part.lines):
                mask, half = 0, False
                for i, f in enumerate(facts):
                    there = [index in mapped for mapped in points[f]]
                    if any(there):
                        mask |= 1 << i
                    half |= any(there) != all(there)
                own = [t[1:] for t in line.key[7] if t.startswith('@')]
                line.mask = mask
                if half:
                    raise ValueError(f'{part.name} line {index} {line.key[0]} {line.key[7]}: no fact tells when it is there: ' +
                                     str([ (sorted(f - set.intersection(*map(set, facts)))) for i, f in enumerate(facts) if len({index in m for m in points[f]}) > 1][:2]))
                line.guard = guard_for(mask, full, literals, own, self.near(part, index), cache)
                if line.guard is None:
                    raise ValueError(f'{part.name} line {index} {line.key[0]} {line.key[7:]}: no guard: there in ' + str(sorted(
                        {tuple(sorted(x for x in f if x in literals)) for i, f in enumerate(facts) if mask >> i & 1})[:6]) + ' and not in ' + str(sorted(
                        {tuple(sorted(x for x in f if x in literals)) for i, f in enumerate(facts) if not mask >> i & 1})[:6]))

    def near(self, part, index):
        """Weights by how near they are used: the first guess of what a line depends on."""
        ranks = {}
        for distance in range(0, 12):
            for at in (index + distance, index - distance):
                if 0 <= at < len(part.lines):
                    for token in part.lines[at].key[7]:
                        if token.startswith('@'):
                            ranks.setdefault(token[1:].rstrip('+'), distance)
        return ranks


REGIME = ('fa', 'streams', 'seqs', 'one', 't1', 'rk', 'rv', 'last', 'first', 'swa', 'state', 'attn')


def guard_for(mask, full, literals, own, near, cache):
    if mask == full:
        return ''
    found = cache.get(mask)
    if found and not own:
        return found

    def cost(name):
        plain = name.lstrip('!')
        if plain.startswith('@'):
            return near.get(plain[1:], 40) + (0.5 if name[0] == '!' else 0)
        return (REGIME.index(plain) * 0.1 if plain in REGIME else 9) + (0.05 if name[0] == '!' else 0)

    both = sorted([(k, v) for k, v in literals.items()] + [('!' + k, full & ~v) for k, v in literals.items()], key=lambda x: cost(x[0]))
    unique, seen = [], set()
    for name, m in both:
        if m not in seen:
            seen.add(m)
            unique.append((name, m))
    supersets = [(n, m) for n, m in unique if m & mask == mask]
    best = None
    for size in (1, 2, 3):
        if best and best[0] <= 4 * size:
            break
        for combo in itertools.combinations(supersets if size < 3 else supersets[:30], size):
            m = full
            for _, x in combo:
                m &= x
            if m == mask:
                price = sum(cost(n) for n, _ in combo) + 4 * size
                if best is None or price < best[0]:
                    best = (price, ','.join(n for n, _ in combo))
    if best:
        return best[1] if own else cache.setdefault(mask, best[1])
    # alternatives
    pieces = [(n, m) for n, m in unique if m & ~mask == 0 and m]
    pieces += [(f'{a},{b}', x & y) for (a, x), (b, y) in itertools.combinations(unique, 2) if x & y and x & y & ~mask == 0]
    pieces.sort(key=lambda p: sum(cost(x) for x in p[0].split(',')))
    for size in (2, 3):
        for combo in itertools.combinations(pieces[:160] if size == 2 else pieces[:50], size):
            m = 0
            for _, x in combo:
                m |= x
            if m == mask:
                return cache.setdefault(mask, '|'.join(n for n, _ in combo))
    paths = tree(mask, full, unique, cost)
    return None if paths is None else cache.setdefault(mask, '|'.join(','.join(p) for p in paths))


def tree(mask, among, literals, cost, depth=7):
    """Alternatives of facts that tell the points of `mask` from the rest of `among`."""
    inside = mask & among
    if not inside:
        return []
    if inside == among:
        return [[]]
    if not depth:
        return None

    def mixed(m):
        a, b = m & among, among & ~m
        n = 0
        for part in (a, b):
            there, total = bin(part & mask).count('1'), bin(part).count('1')
            n += there * (total - there) / total if total else 0
        return n

    chosen = sorted(((mixed(m), cost(name), name, m) for name, m in literals if m & among and among & ~m), key=lambda x: x[:3])
    for _, _, name, m in chosen[:3]:
        a, b = tree(mask, among & m, literals, cost, depth - 1), tree(mask, among & ~m, literals, cost, depth - 1)
        if a is not None and b is not None:
            return [[name] + p for p in a] + [['!' + name] + p for p in b]
    return None


class Solver:
    """Expressions of sizes, exact in every sample."""

    def __init__(self, fold):
        self.fold = fold
        self.tables = {}

    def table(self, points):
        key = tuple(points)
        if key in self.tables:
            return self.tables[key]
        fold = self.fold
        rows = []
        for number, layer in points:
            s = fold.samples[number]
            row = dict(s.symbols)
            if 0 <= layer < s.n_layers:
                row.update(s.layers[layer])
                for name in ('widest', 'W', 'C'):
                    row.pop(name, None)
            rows.append(row)
        names = [n for n in rows[0] if all(n in r for r in rows)]
        singles = {}
        for n in sorted(names, key=lambda n: ORDER.index(n) if n in ORDER else len(ORDER)):
            v = tuple(r[n] for r in rows)
            if any(v) and len(set(v)) >= 1:
                singles.setdefault(v, n)
        one = tuple(1 for _ in rows)
        singles = {v: n for v, n in singles.items() if v != one}
        pairs, items = {}, list(singles.items())
        for i, (v, n) in enumerate(items):
            for w, m in items[i:]:
                pairs.setdefault(tuple(a * b for a, b in zip(v, w)), f'{n}*{m}')
            for w, m in items:
                if w != v and all(b and a % b == 0 for a, b in zip(v, w)):
                    pairs.setdefault(tuple(a // b for a, b in zip(v, w)), f'{n}/{m}')
        result = (singles, pairs)
        self.tables[key] = result
        return result

    def solve(self, values, points, operands):
        """`values` at `points`; operands: [(name, values)] preferred over symbols."""
        target = tuple(values)
        sets = {self.fold.samples[p[0]].set for p in points}
        constant = str(target[0]) if len(set(target)) == 1 and (target[0] <= 4 or len(sets) > 1) else None
        if constant and target[0] <= 1:
            return constant
        if target in dict((v, n) for n, v in operands) and constant is None:
            for n, v in operands:
                if v == target:
                    return n
        singles, pairs = self.table(points)
        if target in singles:
            return singles[target]
        for n, v in operands:
            if v == target:
                return n
        if constant:
            return constant
        if target in pairs:
            return pairs[target]
        extended = list(singles.items()) + [(v, n) for n, v in operands if any(x != 1 for x in v)]
        for k in (2, 3, 4, 5, 6, 8, 16, 32, 64):
            for v, n in extended:
                if tuple(x * k for x in v) == target:
                    return f'{n}*{k}'
                if all(x % k == 0 for x in v) and tuple(x // k for x in v) == target:
                    return f'{n}/{k}'
        for v, n in extended:
            for w, m in extended:
                if tuple(a * b for a, b in zip(v, w)) == target:
                    return f'{n}*{m}'
                if all(b and a % b == 0 for a, b in zip(v, w)) and tuple(a // b for a, b in zip(v, w)) == target:
                    return f'{n}/{m}'
        for v, n in extended:  # sums
            rest = tuple(t - a for t, a in zip(target, v))
            for table in (singles, pairs):
                if rest in table:
                    return f'{n}+{table[rest]}'
            if len(set(rest)) == 1:
                return f'{n}{rest[0]:+d}'
            if rest in [w for w, _ in extended]:
                return f'{n}+' + next(m for w, m in extended if w == rest)
            more = tuple(-x for x in rest)
            for table in (singles, pairs):
                if more in table:
                    return f'{n}-{table[more]}'
            for k in (2, 3, 4):
                for w, m in extended:
                    if tuple(x * k for x in w) == rest:
                        return f'{n}+{m}*{k}'
        for v, n in pairs.items():
            rest = tuple(t - a for t, a in zip(target, v))
            for table in (singles, pairs):
                if rest in table:
                    return f'{n}+{table[rest]}'
            if len(set(rest)) == 1 and abs(rest[0]) < 4096:
                return f'{n}{rest[0]:+d}'
            more = tuple(-x for x in rest)
            for table in (singles, pairs):
                if more in table:
                    return f'{n}-{table[more]}'
        for v, n in pairs.items():  # products of three
            for w, m in extended:
                if tuple(a * b for a, b in zip(v, w)) == target:
                    return f'{n}*{m}'
                if all(b and a % b == 0 for a, b in zip(v, w)) and tuple(a // b for a, b in zip(v, w)) == target:
                    return f'{n}/{m}'
            for k in (2, 3, 4, 6, 8):
                if tuple(x * k for x in v) == target:
                    return f'{n}*{k}'
                if all(x % k == 0 for x in v) and tuple(x // k for x in v) == target:
                    return f'{n}/{k}'
        for v, n in list(pairs.items()):  # rounded up
            for k in (2, 4, 8, 16, 32, 64, 128, 256):
                if tuple(-(-x // k) * k for x in v) == target:
                    return f'{n}~{k}'
                if tuple(-(-x // k) for x in v) == target:
                    return f'{n}~{k}/{k}'
        for v, n in extended:
            for k in (2, 4, 8, 16, 32, 64, 128, 256):
                if tuple(-(-x // k) * k for x in v) == target:
                    return f'{n}~{k}'
                if tuple(-(-x // k) for x in v) == target:
                    return f'{n}~{k}/{k}'
        return None


# Where two explain a size alike, the first is meant: tokens per stream before tokens per sequence.
ORDER = ['T', 'N', 'B', 'S', 'O', 'Q', 'C', 'D', 'heads', 'kv', 'hk', 'hv', 'ff', 'V', 'E', 'U', 'eff', 'sff']
