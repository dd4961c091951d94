# SPDX-License-Identifier: MIT
"""Keys of models that change a graph though no tensor shows it: which values leave it as it was made."""
import maker
import models

SCALES, CAPS, SWITCH = (0.0, 1.0, 0.3), (0.0, 30.0), (True, False)
# Values to try, beside none at all. How experts are weighed is a fact of guards.
TRIED = {
    'use_parallel_residual': SWITCH, 'attention.causal': SWITCH, 'swin_norm': SWITCH, 'ssm.dt_b_c_rms': SWITCH,
    'attention.clamp_kqv': (0.0, 8.0), 'attention.max_alibi_bias': (0.0, 8.0), 'logit_scale': SCALES, 'residual_scale': SCALES,
    'embedding_scale': SCALES, 'attention.scale': SCALES, 'attention.value_scale': SCALES, 'attention.output_scale': SCALES,
    'attention.temperature_scale': SCALES, 'attn_logit_softcapping': CAPS, 'final_logit_softcapping': CAPS,
    'router_logit_softcapping': CAPS, 'expert_gating_func': (1, 2, 3, 4), 'interleave_moe_layer_step': (1, 2, 3),
    'moe_every_n_layers': (1, 2, 3), 'rescale_every_n_layers': (0, 4), 'full_attention_interval': (2, 3, 4),
    'token_shift_count': (1, 2), 'hyper_connection.sinkhorn_iterations': (2, 20), 'n_deepstack_layers': (0, 3),
    'pooling_type': (0, 1, 2), 'expert_group_scale': SCALES,
}


def named(source, arch):
    """The keys that the family's source asks for; all where it has none of its own."""
    import re
    path = source / 'src' / 'models' / f'{arch}.cpp'
    if not path.exists():
        return set(TRIED)
    keys = dict((a, b) for a, b in re.findall(r'\{ *(LLM_KV_\w+), *"%s\.([^"]+)"', (source / 'src/llama-arch.cpp').read_text()))
    general = {'attention.causal', 'attention.clamp_kqv', 'attention.max_alibi_bias', 'pooling_type'}
    return {keys.get(word) for word in re.findall(r'LLM_KV_\w+', path.read_text())} | general


def called(value):
    if value is None:
        return 'none'
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, float):
        return {0.0: '0', 1.0: '1'}.get(value, 'set')
    return 'list' if isinstance(value, list) else str(value)


def seen(engine, path):
    """What the engine makes of a model: every tensor of every graph, or nothing where it does not."""
    _, done, _ = engine.ask(path, False, (maker.SETTINGS[0], maker.SETTINGS[4]))
    return [(t.op, t.type, t.flags, t.ne, t.nb, t.view, t.src) for s in sorted(done) for g in done[s] for t in g.tensors] if len(done) == 2 else None


def value_in(spec, key):
    """What the file of a model has under a key: 'none', or the text of its pair."""
    f = spec.file()
    start = f.string(f'{spec.arch}.{key}')
    return next((pair for pair in f.pairs if pair.startswith(start)), None)


def lines_of(engine, source, arch, folder, found_ways):
    """A `key` line for each key of which not every value makes the same graph."""
    asked, accepted, refused = named(source, arch), {}, set()
    for moe, tied in found_ways:
        plain = models.Spec(arch, 0, moe=moe, tied=tied)
        v = maker.Variants(engine, plain, folder)
        classes, extra = v.several(maker.random.Random(7))[0]
        tensors = [(n, v.dims(n)) for c in v.classes if c in classes for n in v.classes[c]] + list(extra)
        path = folder / 'key.gguf'
        plain.write(path, tensors)
        base = seen(engine, path)
        for key in sorted(asked & set(TRIED)):
            here = {}
            for value in (None, *TRIED[key]):
                spec = models.Spec(arch, 0, moe=moe, tied=tied, keys={key: value})
                is_own = value_in(spec, key) == value_in(plain, key)
                spec.write(path, tensors)
                graph = base if is_own else seen(engine, path)
                if graph:
                    here.setdefault(called(value), []).append(graph == base)
            accepted.setdefault(key, []).append({name for name, same in here.items() if all(same)})
            refused |= {(key, name) for name, same in here.items() if not all(same)}
    return ['key ' + ' '.join([key, *sorted(set.intersection(*accepted[key]) or {'known'})]) for key in sorted(accepted)
            if any(k == key for k, _ in refused)]
