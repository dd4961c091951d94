# SPDX-License-Identifier: MIT
"""Graphs as graph_dump writes them, and what an operation makes of its sources unless told otherwise."""
import re

BLOCKS = {'f32': (1, 4), 'f16': (1, 2), 'bf16': (1, 2), 'i32': (1, 4), 'i64': (1, 8), 'i8': (1, 1), 'i16': (1, 2), 'q8_0': (32, 34),
          'q5_1': (32, 24), 'q5_0': (32, 22), 'q4_1': (32, 20), 'q4_0': (32, 18), 'iq4_nl': (32, 18)}
VIEWS = ('VIEW', 'EACH', 'RESHAPE', 'PERMUTE', 'TRANSPOSE')


class Tensor:
    __slots__ = ('i', 'is_leaf', 'op', 'type', 'flags', 'ne', 'nb', 'view', 'offset', 'usage', 'buffer', 'pin', 'name', 'src')


class Graph:
    """`leafs` and `nodes` in the order of the engine; `roots`: indexes, in the order they were expanded."""

    def __init__(self, setting):
        self.setting, self.tensors, self.n_leafs, self.roots = setting, [], 0, []
        self.nodes, self.position = [], {}

    def close(self):
        """Puts leafs that were asked for by themselves in between, as operations that do nothing."""
        after = {}
        last = -1
        known = set()
        for root in self.roots:
            if root >= self.n_leafs:
                last = max(last, root)
            elif root >= 0 and root not in known:
                known.add(root)
                after.setdefault(last, []).append(root)
        real = self.tensors[self.n_leafs:]
        for node in [None] + real:
            if node:
                self.nodes.append(node)
            for leaf in after.get(node.i if node else -1, []):
                t = Tensor()
                t.i, t.is_leaf, t.op, t.type, t.flags = len(self.tensors), False, 'EXPAND', self.tensors[leaf].type, 0
                t.ne, t.nb, t.view, t.offset = self.tensors[leaf].ne, self.tensors[leaf].nb, -1, 0
                t.usage, t.buffer, t.pin, t.name, t.src = 0, '-', '-', '-', {0: leaf}
                self.tensors.append(t)
                self.nodes.append(t)
        self.position = {t.i: p for p, t in enumerate(self.nodes)}


def parse(text):
    """Returns tensors of the model {name: (type, ne)} and the last three graphs of each setting."""
    weights, graphs, current, done, status = {}, [], None, {}, {}
    for line in text.split('\n'):
        kind = line[:1]
        if kind in 'NL' and line[1:2] == ' ':
            f = line.split(' ')
            t = Tensor()
            t.i, t.is_leaf, t.op, t.type, t.flags = int(f[1]), kind == 'L', f[2], f[3], int(f[4])
            t.ne, t.nb = [int(x) for x in f[5:9]], [int(x) for x in f[9:13]]
            t.view, t.offset, t.usage, t.buffer, t.pin, t.name = int(f[13]), int(f[14]), int(f[15]), f[16], f[17], f[18]
            t.src = {int(a): int(b) for a, b in (x.split(':') for x in f[19:])}
            current.tensors.append(t)
        elif kind == 'G':
            f = line.split(' ')
            current = Graph(f[1])
            current.n_leafs = int(f[2])
        elif kind == 'R':
            current.roots = [int(x) for x in line.split(' ')[1:]]
            current.close()
        elif kind == 'E':
            graphs.append(current)
        elif kind == 'T':
            f = line.split(' ')
            if len(f) == 7 and f[6]:
                weights[f[1]] = (f[2], [int(x) for x in f[3:7]])
        elif kind == 'C':
            f = line.split(' ')
            status[f[1]] = f[2]
            if f[2] == 'ok':
                done[f[1]] = graphs[-3:]
            graphs = []
    return weights, done, status


def row_bytes(kind, n):
    block, size = BLOCKS.get(kind, (1, 4))
    return n // block * size


def contiguous(kind, ne):
    block, size = BLOCKS.get(kind, (1, 4))
    nb = [size, row_bytes(kind, ne[0])]
    return nb + [nb[1] * ne[1], nb[1] * ne[1] * ne[2]]


def default_shape(op, src):
    """The shape of a result by its sources' shapes; None where it has to be written."""
    a = src[0].ne if src else None
    b = src[1].ne if len(src) > 1 else None
    if a is None or op in ('VIEW', 'EACH', 'RESHAPE'):
        return None
    if op == 'MUL_MAT':
        return [a[1], b[1], b[2], b[3]]
    if op == 'MUL_MAT_ID':
        return [a[1], src[2].ne[0], b[2], 1]
    if op == 'GET_ROWS':
        return [a[0], b[0], b[1], b[2]]
    if op == 'FLASH_ATTN_EXT':
        v = src[2].ne
        return [v[0], a[2], a[1], a[3]]
    if op == 'GLU':
        return a[:] if b else [a[0] // 2, *a[1:]]
    if op == 'SUM_ROWS':
        return [1, *a[1:]]
    if op == 'TRANSPOSE':
        return [a[1], a[0], a[2], a[3]]
    return a[:]


def default_type(op, src):
    if op in VIEWS or op in ('EXPAND', 'CONT', 'DUP', 'ADD', 'MUL', 'SUB', 'DIV', 'SCALE', 'TOTAL', 'UNARY', 'CONCAT', 'ROPE', 'RMS_NORM', 'NORM'):
        return src[0].type
    return {'ARGSORT': 'i32', 'TOP_K': 'i32', 'ARGMAX': 'i32'}.get(op, 'f32')


def axes_of(t, a):
    """How a permutation moves its source's axes: the axis that each goes to; None where it is none."""
    for p in ('0213', '1023', '1203', '2013', '0132', '0312', '0231', '1032', '2103', '2301', '3012', '1230', '0321', '2031',
              '0123', '1302', '1320', '2130', '2310', '3120', '3102', '3021', '3201', '3210'):
        ne, nb = [0] * 4, [0] * 4
        for i, to in enumerate(p):
            ne[int(to)], nb[int(to)] = a.ne[i], a.nb[i]
        if ne == t.ne and nb == t.nb:
            return p
    return None


def gather(graph, many):
    """Views of the `many` experts of a batch become one operation, EACH, and their sum another, TOTAL."""
    nodes, at = graph.nodes, 0
    out = []
    while at < len(nodes):
        views = nodes[at:at + many]
        adds = nodes[at + many:at + 2 * many - 1]
        first = views[0]
        fits = many > 1 and len(views) == many and len(adds) == many - 1 and all(
            v.op == 'VIEW' and v.src == first.src and v.ne == first.ne and v.nb == first.nb and v.flags == first.flags for v in views)
        fits = fits and len({v.offset for v in views}) == many and all(
            a.op == 'ADD' and a.flags == adds[0].flags and a.src == {0: (adds[k - 1] if k else first).i, 1: views[k + 1].i}
            for k, a in enumerate(adds))
        is_root = [{v.i in graph.roots for v in part} for part in (views, adds)]
        if fits and all(len(r) == 1 for r in is_root):
            first.op, adds[-1].op, adds[-1].src = 'EACH', 'TOTAL', {0: first.i}
            out += [first, adds[-1]]
            at += 2 * many - 1
        else:
            out.append(first)
            at += 1
    graph.nodes = out
    graph.position = {t.i: p for p, t in enumerate(out)}


LABEL = re.compile(r'-(\d+)(?:~\(.*)?$')
BLOCK = re.compile(r'^(blk|enc\.blk|dec\.blk)\.(\d+)\.')
CACHE = re.compile(r'^(cache_.*?)_?l(\d+)(?:~\(.*)?$')


def layer_of_name(name):
    m = LABEL.search(name)
    return int(m.group(1)) if m else None


def label_nodes(graph):
    """The layer of each node: -1 before the first, n for what comes after the last."""
    t, n = graph.tensors, len(graph.tensors)
    labels = [None] * n
    for node in graph.nodes:
        own = layer_of_name(node.name)
        if own is None:
            for s in node.src.values():
                if t[s].is_leaf:
                    m = BLOCK.match(t[s].name) or CACHE.match(t[s].name)
                    if m:
                        own = int(m.group(2))
                        if not BLOCK.match(t[s].name) and t[s].op == 'NONE' and node.op in ('VIEW', 'EACH', 'RESHAPE'):
                            own = None  # caches may be those of earlier layers
        labels[node.i] = own
    following = None
    for node in reversed(graph.nodes):
        if labels[node.i] is None:
            labels[node.i] = following
        following = labels[node.i]
    top = max((x for x in labels if x is not None), default=-1)
    highest = -1
    started = False
    for node in graph.nodes:
        x = labels[node.i]
        if x is None:
            x = top + 1
        if started and x < highest:
            x = highest
        if x >= 0:
            started, highest = True, x
        labels[node.i] = x
    # What precedes the first layer's own nodes belongs to the head: up to the last node that other parts share.
    return labels, top + 1
