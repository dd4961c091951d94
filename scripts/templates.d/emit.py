# SPDX-License-Identifier: MIT
"""A fold as text."""
import fold
import graph as G

ENV_POINTS = 16


class Unsolved(Exception):
    pass


def points_of(uses):
    """Some uses, as different as they come: every sample first, then other layers."""
    chosen, samples = [], set()
    for use in uses:
        if use[0] not in samples:
            samples.add(use[0])
            chosen.append(use)
    step = max(1, len(chosen) // ENV_POINTS)
    chosen = chosen[::step]
    rest = [u for u in uses if u not in chosen]
    return chosen + rest[::max(1, len(rest) // 8)]


class Emitter:
    def __init__(self, fold):
        self.fold, self.solver = fold, fold.solver

    def tensor(self, use):
        return self.fold.samples[use[0]].graph.tensors[use[2]]

    def sources(self, use):
        g = self.fold.samples[use[0]].graph.tensors
        t = g[use[2]]
        return [g[t.src[k]] for k in sorted(t.src) if t.src[k] != t.i]

    def weights_at(self, points):
        """Sizes of weights that every point has: the last resort of an expression."""
        names = None
        values = {}
        for number, layer, *_ in points:
            s = self.fold.samples[number]
            here = {}
            for name, ne in s.weights.items():
                m = G.BLOCK.match(name)
                if m and int(m.group(2)) == layer:
                    key = '@' + name[m.end():].removesuffix('.weight')
                elif not m:
                    key = '@^' + name.removesuffix('.weight')
                else:
                    continue
                for d in range(4):
                    if ne[d] > 1:
                        here[f'{key}[{d}]'] = ne[d]
            names = set(here) if names is None else names & set(here)
            for k, v in here.items():
                values.setdefault(k, []).append(v)
        return [(k, tuple(values[k])) for k in sorted(names) if len(values[k]) == len(points)]

    def solve(self, values, points, operands, what):
        at = [(p[0], p[1]) for p in points]
        expression = self.solver.solve(values, at, operands)
        if expression is None:
            expression = self.solver.solve(values, at, operands + self.weights_at(points))
        if expression is None:
            raise Unsolved(f'{what}: {list(zip(values, at))[:6]} ({[(n, v[:3]) for n, v in operands]})')
        return expression

    def dims(self, tensors, points, operands, what):
        out = []
        cheap = self.cheap(tensors, points, operands) if what.startswith(('RESHAPE', 'CONT')) else None
        if cheap:
            return cheap
        for d in range(4):
            try:
                out.append(self.solve(tuple(t.ne[d] for t in tensors), points, operands, f'{what} dimension {d}'))
            except Unsolved:
                if '_' in out or not what.startswith(('RESHAPE', 'CONT')):
                    raise
                out.append('_')
        while len(out) > 1 and out[-1] == '1':
            out.pop()
        return '(' + ' '.join(out) + ')'

    def cheap(self, tensors, points, operands):
        """A shape all but one of whose sizes are plain: the other is the rest."""
        out = []
        singles = self.solver.table([(p[0], p[1]) for p in points])[0]
        for d in range(4):
            values = tuple(t.ne[d] for t in tensors)
            plain = next((n for n, v in operands if v == values), None) or singles.get(values)
            if set(values) == {1}:
                plain = '1'
            out.append(plain or '_')
        if out.count('_') > 1:
            return None
        while len(out) > 1 and out[-1] == '1':
            out.pop()
        return '(' + ' '.join(out) + ')'

    def operands(self, points, n):
        out = []
        for slot in range(n):
            for d in range(4):
                try:
                    values = tuple(self.sources(p)[slot].ne[d] for p in points)
                except IndexError:
                    break
                if set(values) != {1}:
                    out.append(('abc'[slot] + str(d), values))
        return out

    def split(self, uses, write, depth=2):
        """[(guard, text)]: one where one text fits all uses, else several by the facts that part them."""
        try:
            return [('', write(uses))]
        except Unsolved as e:
            if not depth:
                raise
            failure = e
        facts = [self.fold.facts_of(u[0], u[1]) for u in uses]
        every = set().union(*facts) - set.intersection(*(set(f) for f in facts))
        order = sorted(every, key=lambda f: (fold.REGIME.index(f) if f in fold.REGIME else 50, f))
        for fact in order[:24]:
            there = [u for u, f in zip(uses, facts) if fact in f]
            rest = [u for u, f in zip(uses, facts) if fact not in f]
            try:
                a, b = self.split(there, write, depth - 1), self.split(rest, write, depth - 1)
            except Unsolved:
                continue
            return [(fact + (',' + g if g else ''), t) for g, t in a] + [('!' + fact + (',' + g if g else ''), t) for g, t in b]
        raise failure

    def shape(self, line, uses):
        """What has to be said of the result's shape."""
        op, of = line.key[0], line.key[2]
        if op in ('PERMUTE', 'TRANSPOSE'):
            import itertools
            for p in (''.join(x) for x in itertools.permutations('0123')):
                if all(self.moves(u, p) for u in uses):
                    return '.' + p, ''
            raise Unsolved(f'{op}: no axes')
        if of:
            for u in uses:
                t, dest = self.tensor(u), self.fold.samples[u[0]].graph.tensors[self.tensor(u).src[int(of)]]
                if t.ne != dest.ne or t.nb != dest.nb:
                    raise Unsolved(f'{op} {t.name} is no whole view')
            return '', ''
        defaults = [G.default_shape(op, self.sources(u)) for u in uses]
        text = ''
        if any(d != self.tensor(u).ne for d, u in zip(defaults, uses)):
            points = points_of(uses)
            text = ' ' + self.dims([self.tensor(p) for p in points], points, self.operands(points, 3), f'{op} {self.tensor(uses[0]).name}')
        if op in ('VIEW', 'EACH'):
            text += self.strides(uses)
        else:
            for u in uses:
                t = self.tensor(u)
                if t.nb != G.contiguous(t.type, t.ne):
                    raise Unsolved(f'{op} {t.name} is not contiguous')
        return '', text

    def moves(self, use, p):
        t, a = self.tensor(use), self.sources(use)[0]
        ne, nb = [0] * 4, [0] * 4
        for i, to in enumerate(p):
            ne[int(to)], nb[int(to)] = a.ne[i], a.nb[i]
        return ne == t.ne and nb == t.nb

    def strides(self, uses):
        """The strides of a view: nothing where it is dense; else each as the source's (=), dense from here on (.), or so many elements."""
        def dense(t, d):
            return t.nb[d] == (G.row_bytes(t.type, t.ne[0]) if d == 1 else t.nb[d - 1] * t.ne[d - 1])

        out = []
        for d in (1, 2, 3):
            if all(dense(self.tensor(u), d) for u in uses):
                out.append('.')
            elif all(self.tensor(u).nb[d] == self.sources(u)[0].nb[d] for u in uses):
                out.append('=')
            elif d > 1 and all(self.tensor(u).nb[d] == self.sources(u)[0].nb[d - 1] for u in uses):
                out.append('<')
            elif d < 3 and all(self.tensor(u).nb[d] == self.sources(u)[0].nb[d + 1] for u in uses):
                out.append('>')
            else:
                points = points_of(uses)
                values = []
                for p in points:
                    t = self.tensor(p)
                    block, size = G.BLOCKS.get(t.type, (1, 4))
                    if t.nb[d] * block % size:
                        raise Unsolved('stride')
                    values.append(t.nb[d] * block // size)
                out.append(self.solve(tuple(values), points, self.operands(points, 1), f'stride {d} of {self.tensor(uses[0]).name}'))
        for u in uses:
            t = self.tensor(u)
            if t.nb[0] != self.sources(u)[0].nb[0]:
                raise Unsolved('view of another step')
        return '' if out == ['.', '.', '.'] else ' /' + ' '.join(out) + '/'

    # Text -------------------------------------------------------------------------------------
    def leaf_lines(self):
        self_fold = self.fold
        inputs, caches = {}, {}
        for number, sample in enumerate(self_fold.samples):
            for t in sample.graph.tensors[:sample.graph.n_leafs]:
                if t.usage == 2:
                    continue
                m = G.CACHE.match(t.name)
                if t.usage == 1:
                    named = G.layer_of_name(t.name)
                    layer = int(m.group(2)) if m else -1 if named is None else named
                    name = m.group(1).replace('cache_', '').strip('_') if m else fold.base_name(t)
                    caches.setdefault(name, []).append((number, layer, t.i))
                else:
                    inputs.setdefault(self_fold.leaf_class(number, t.i), []).append((number, -1, t.i))
        out = []
        for word, group in (('cache', caches), ('input', inputs)):
            for name in sorted(group):
                uses = group[name]
                tensors = [self.tensor(u) for u in uses]
                kinds = {t.type for t in tensors}
                kind = kinds.pop() if len(kinds) == 1 else None
                if word == 'cache':
                    for key in ('k', 'v'):
                        if len({self_fold.samples[u[0]].symbols_text['type_' + key] for u in uses}) > 1 and all(
                                self_fold.samples[u[0]].symbols_text['type_' + key] == self.tensor(u).type for u in uses):
                            kind = key
                if kind is None:
                    raise Unsolved(f'{word} {name} is of several types')
                plain = word == 'input' and not tensors[0].flags & 1


                def write(part, what=f'{word} {name}'):
                    points = points_of(part)
                    return self.dims([self.tensor(p) for p in points], points, [], what)

                for guard, dims in self.split(uses, write):
                    out.append(f'{"leaf" if plain else word} {name} {kind} {dims}' + (f' ?{guard}' if guard else ''))
        return out

    def source_tokens(self, name, index, line, previous):
        out = []
        for slot, token in enumerate(line.key[7]):
            if token == 'n' or token.startswith('$'):
                cls = self.fold.names[self.fold.find(self.fold.reached[(name, index, slot)])]
                if token == 'n' and previous.get((name, index, slot)):
                    out.append('.')
                    continue
                out.append(('$' if token.startswith('$') else '') + cls)
                if token == 'n':
                    self.needed.add(cls)
            else:
                out.append(token)
        return out

    def before(self):
        """Sources that are in every sample what was computed just before."""
        result = {}
        for name, part in self.fold.parts.items():
            for index, line in enumerate(part.lines):
                for slot, token in enumerate(line.key[7]):
                    if token == 'n':
                        result[(name, index, slot)] = all(
                            self.is_before(u, slot) for u in line.uses)
        return result

    def is_before(self, use, slot):
        g = self.fold.samples[use[0]].graph
        return g.position[g.tensors[use[2]].src[slot]] == g.position[use[2]] - 1

    def text(self):
        previous, self.needed = self.before(), set()
        tokens = {}
        for name, part in self.fold.parts.items():
            for index, line in enumerate(part.lines):
                tokens[(name, index)] = self.source_tokens(name, index, line, previous)
        out = self.leaf_lines()
        for name, part in self.fold.parts.items():
            out.append(name)
            guard = ''
            for index, line in enumerate(part.lines):
                op, kind, of, root, is_output, is_input, pin, *_ = line.key
                cls = self.fold.names[self.fold.find((name, index))]
                assign = f'{cls}=' if cls in self.needed else ''
                for extra, (suffix, shape) in self.split(line.uses, lambda part: self.shape(line, part)):
                    wanted = ','.join(x for x in (line.guard, extra) if x)
                    if extra and '|' in line.guard:
                        wanted = '|'.join(f'{alternative},{extra}' for alternative in line.guard.split('|'))
                    if wanted != guard:
                        out.append(f' ?{wanted}')
                        guard = wanted
                    out.append('  ' + assign + op.lower() + suffix + (f'#{of}' if of else '') +
                               (f'>{kind}' if kind not in ('', 'any') else '') + ''.join(
                                   ' ' + t for t in tokens[(name, index)]) + shape + (' *' if root else '') +
                               (' out' if is_output else '') + (' in' if is_input else '') + (f' {pin}' if pin else ''))
        return out
