# SPDX-License-Identifier: MIT
"""Small models of any architecture, with sizes that tell themselves apart.

Every key that some architecture wants is written; llama.cpp reads those that it knows. Where no size
can be chosen freely, FIXED says so.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'tests' / 'conformance'))
import log_models  # noqa: E402
from oracle_families import File  # noqa: E402

log_models.TYPES.setdefault('i32', (26, 1, 4, 0))

# heads, kv heads, key size, embedding, feed-forward, vocabulary, layers, experts, used, their width, shared width
SETS = (
    dict(H=6, KV=2, HK=64, D=416, FF=1088, V=1031, L=6, E=12, U=3, X=288, Y=160, LEAD=1, SWA=300),
    dict(H=10, KV=5, HK=128, D=736, FF=1472, V=2053, L=7, E=20, U=5, X=352, Y=224, LEAD=2, SWA=700),
    dict(H=12, KV=3, HK=192, D=992, FF=2208, V=3079, L=6, E=28, U=7, X=544, Y=416, LEAD=1, SWA=1100),
    dict(H=14, KV=7, HK=96, D=608, FF=1696, V=1543, L=11, E=18, U=6, X=480, Y=608, LEAD=3, SWA=900),
    dict(H=20, KV=4, HK=64, D=1472, FF=3872, V=6151, L=9, E=24, U=4, X=736, Y=864, LEAD=2, SWA=1500),
    dict(H=9, KV=3, HK=160, D=864, FF=2656, V=2579, L=13, E=30, U=8, X=352, Y=736, LEAD=4, SWA=500),
)
# Templates are made of these; with the next they are tried before they are taken; the board has the others.
MADE_OF, TRIED_WITH, BOARD = (0, 1, 2), 3, (4, 5)
SSM = (dict(conv=4, inner=1280, state=64, dt=10, group=2), dict(conv=5, inner=1792, state=128, dt=14, group=7),
       dict(conv=3, inner=2112, state=192, dt=22, group=11), dict(conv=6, inner=1536, state=96, dt=12, group=3),
       dict(conv=4, inner=2560, state=128, dt=20, group=5), dict(conv=5, inner=1152, state=160, dt=9, group=3))
LATENT = (dict(q=320, kv=192, rot=32, nope=96, vh=80), dict(q=448, kv=256, rot=64, nope=128, vh=112),
          dict(q=576, kv=384, rot=96, nope=160, vh=144), dict(q=384, kv=320, rot=48, nope=112, vh=176),
          dict(q=512, kv=224, rot=64, nope=80, vh=160), dict(q=640, kv=448, rot=32, nope=144, vh=96))
# Families in which the head size is the embedding over the heads, whatever the file says.
LATENT_FAMILIES = ('deepseek2', 'deepseek2-ocr', 'deepseek32', 'glm-dsa', 'mistral4', 'kimi-linear', 'minicpm3', 'plm',
                   'dots3note', 'bailingmoe3', 'kimi-k3', 'glm5-next', 'hy_v4')
PER_LAYER_HEADS = ('plamo2', 'jamba', 'nemotron_h', 'nemotron_h_moe', 'granitehybrid', 'lfm2', 'lfm2moe', 'kimi-linear',
                   'bailingmoe3', 'kimi-k3', 'glm5-next')
LISTED_WINDOWS = ('cohere2moe', 'mimo2', 'step35', 'spark2_5', 'muse-glimmer', 'granite_swa', 'dots3note', 'maple',
                  'gemma4', 'gemma4-assistant', 'laguna')


class Spec:
    """A model: `n` the number of its set, `moe` whether it has experts, `tied` head size = embedding / heads."""

    def __init__(self, arch, n, moe=False, tied=False, options=(), keys=()):
        self.keys = dict(keys)  # in place of those below; None: not there
        self.arch, self.n, self.moe, self.options = arch, n, moe, set(options)
        self.s = dict(SETS[n])
        self.s.update(SSM[n])
        self.tied = tied
        if tied:
            self.s['D'] = self.s['H'] * self.s['HK']
        if 'mha' in self.options or arch in ('minicpm3', 'plm', 't5', 't5encoder', 'jina-bert-v2'):
            self.s['KV'] = self.s['H']
        if 'mqa' in self.options:
            self.s['KV'] = 1
        self.s['latent'] = LATENT[n]

    def attends(self, i):
        return i % 3 != 1

    def windowed(self, i):
        return i % 3 != 2

    def file(self):
        s, f, arch = self.s, File(self.arch), self.arch
        layers = range(s['L'])
        f.text('tokenizer.ggml.model', 'no_vocab')
        numbers = {
            'block_count': s['L'], 'context_length': 131072, 'embedding_length': s['D'], 'vocab_size': s['V'],
            'features_length': s['D'], 'leading_dense_block_count': s['LEAD'], 'time_mix_extra_dim': 40 + 8 * self.n,
            'time_decay_extra_dim': 72 + 8 * self.n, 'full_attention_interval': 3,
            'attention.relative_buckets_count': 8 + self.n,
            'attention.group_norm_groups': 8, 'decoder_block_count': s['L'],
            'posnet.embedding_length': s['D'], 'posnet.block_count': s['L'],
            'convnext.embedding_length': s['D'], 'convnext.block_count': s['L'],
            'ssm.inner_size': s['inner'], 'ssm.conv_kernel': s['conv'], 'ssm.state_size': s['state'],
            'ssm.time_step_rank': s['dt'], 'ssm.group_count': 0 if arch == 'plamo2' else s['group'],
            'kda.head_dim': 64 + 32 * self.n, 'wkv.head_size': s['HK'], 'shortconv.l_cache': 3 + self.n,
            'attention.decay_lora_rank': 24 + 8 * self.n, 'attention.iclr_lora_rank': 40 + 16 * self.n,
            'attention.value_residual_mix_lora_rank': 56 + 8 * self.n, 'attention.gate_lora_rank': 104 + 8 * self.n,
            'attention.indexer.head_count': 8 + 8 * self.n, 'attention.indexer.key_length': 128,
            'attention.indexer.top_k': 200 + 96 * self.n,
            'rescale_every_n_layers': 4, 'token_shift_count': 1 if arch in ('rwkv6qwen2', 'arwkv7') else 2,
            'hyper_connection.count': 4, 'hyper_connection.sinkhorn_iterations': 2,
            'attention.output_group_count': s['H'] // 2, 'attention.output_lora_rank': 48 + 16 * self.n,
            'hash_layer_count': 2, 'hyper_connection.low_rank': 8,
        }
        if arch in ('nemotron_h', 'nemotron_h_moe'):
            f.numbers('feed_forward_length', [s['FF'] if i % 3 == 2 else 0 for i in layers])
            f.numbers('attention.head_count', [s['H'] if i % 3 == 0 else 0 for i in layers])
            f.numbers('attention.head_count_kv', [s['KV'] if i % 3 == 0 else 0 for i in layers])
        else:
            numbers['feed_forward_length'] = s['FF']
            if arch in PER_LAYER_HEADS:
                if arch == 'glm5-next':
                    numbers['attention.head_count'] = s['H']
                else:
                    f.numbers('attention.head_count', [s['H'] if self.attends(i) or arch == 'granitehybrid' else 0 for i in layers])
                f.numbers('attention.head_count_kv', [s['KV'] if self.attends(i) else 0 for i in layers])
            else:
                numbers['attention.head_count'] = s['H']
                numbers['attention.head_count_kv'] = 1 if arch == 'deepseek4' else s['KV']
        if arch == 'granitehybrid':
            pass
        if arch == 'deepseek4':
            numbers.update({'attention.key_length': s['HK'], 'attention.value_length': s['HK'],
                            'rope.dimension_count': s['HK'] // 2})
        elif arch in LATENT_FAMILIES:
            m = s['latent']
            rot = 0 if arch == 'glm5-next' else m['rot']
            numbers.update({'attention.key_length': m['kv'] + rot, 'attention.value_length': m['kv'],
                            'rope.dimension_count': rot, 'attention.key_length_mla': m['nope'] + rot,
                            'attention.value_length_mla': m['vh']})
            if arch in ('minicpm3', 'plm'):
                numbers.update({'attention.key_length': m['nope'] + rot, 'attention.value_length': m['vh']})
        elif not self.tied:
            numbers.update({'attention.key_length': s['HK'], 'attention.value_length': s['HK'],
                            'rope.dimension_count': s['HK'] // 2 if 'partial' in self.options else s['HK']})
        elif 'partial' in self.options:
            numbers['rope.dimension_count'] = s['HK'] // 2
        m = s['latent']
        numbers.update({'attention.q_lora_rank': m['q'], 'attention.kv_lora_rank': m['kv'], 'attention.sliding_window': s['SWA'],
                        'rope.scaling.original_context_length': 4096})
        if arch in LISTED_WINDOWS:
            f.numbers('attention.sliding_window_pattern', [int(self.windowed(i)) for i in layers])
        else:
            numbers['attention.sliding_window_pattern'] = 3
        if arch in ('gemma4', 'gemma4-assistant'):
            numbers.update({'embedding_length_per_layer_input': 64 + 32 * self.n, 'attention.shared_kv_layers': 3,
                            'attention.key_length_swa': s['HK'] // 2, 'attention.value_length_swa': s['HK'] // 2})
        if arch == 'deepseek4':
            f.numbers('attention.compress_ratios', [(0, 0, 4, 128)[i % 4] for i in layers])
        if self.moe:
            numbers.update({'expert_feed_forward_length': s['X'], 'expert_shared_feed_forward_length': s['Y'],
                            'expert_latent_length': s['X'], 'interleave_moe_layer_step': 2, 'expert_count': s['E'],
                            'expert_used_count': s['U'], 'expert_shared_count': 1,
                            'expert_gating_func': 4 if arch == 'deepseek4' else 2, 'experts_per_group': 1,
                            'moe_every_n_layers': 2, 'expert_chunk_feed_forward_length': s['X'] // 2,
                            'expert_group_count': 2 if 'groups' in self.options else 0,
                            'expert_group_used_count': 1 if 'groups' in self.options else 0})
            f.real('expert_group_scale', 1.0)
            f.flag('expert_weights_norm', 'norm_w' in self.options)
            f.real('expert_weights_scale', 2.5 if 'scale_w' in self.options else 1.0)
        for key, value in numbers.items():
            f.number(key, value)
        for key, value in (('attention.layer_norm_epsilon', 1e-5), ('attention.layer_norm_rms_epsilon', 1e-5),
                           ('attention.group_norm_epsilon', 1e-5), ('attention.max_alibi_bias', 8.0),
                           ('rope.freq_base_swa', 10000.0),
                           ('attention.compress_rope_freq_base', 160000.0), ('hyper_connection.epsilon', 1e-6),
                           ('swiglu_clamp_exp', 10.0), ('xielu.alpha_n', 1.0), ('xielu.alpha_p', 1.0), ('xielu.beta', 1.0),
                           ('xielu.eps', 1e-7)):
            f.real(key, value)
        if arch == 'dbrx':
            f.real('attention.clamp_kqv', 8.0)
        if arch in ('talkie', 'command-r', 'cohere2', 'cohere2moe', 'grok', 'muse-glimmer') or arch.startswith('granite'):
            f.real('logit_scale', 0.5)
        if arch.startswith(('granite', 'minicpm')):
            for key in ('residual_scale', 'embedding_scale', 'attention.scale'):
                f.real(key, 0.3)
        if arch in ('gemma2', 'gemma4'):
            f.real('final_logit_softcapping', 30.0)
            f.real('attn_logit_softcapping', 50.0)
        f.flag('use_parallel_residual', arch == 'gptneox')
        if arch in ('bert', 'nomic-bert', 'nomic-bert-moe', 'jina-bert-v2', 'jina-bert-v3', 'neo-bert', 'modern-bert', 'eurobert', 't5encoder'):
            f.flag('attention.causal', False)
            f.pairs.append(f.string('tokenizer.ggml.token_type_count') + (4).to_bytes(4, 'little') + (2 + self.n).to_bytes(4, 'little'))
        n = s['HK'] // 2
        f.numbers('rope.dimension_sections', (n // 4, n // 4, n // 4, n // 4))
        for key, value in self.keys.items():
            start = f.string(f'{self.arch}.{key}')
            f.pairs = [pair for pair in f.pairs if not pair.startswith(start)]
            if value is not None:
                f.any(key, value)
        return f

    def write(self, path, tensors=()):
        f = self.file()
        if not tensors and self.arch == 'deepseek4':
            tensors = [(f'blk.{i}.ffn_gate_tid2eid.weight', [self.s['U'], self.s['V']]) for i in range(self.s['L'])]
        for name, dims in tensors:
            f.tensor(name, dims, 'i32' if 'tid2eid' in name else 'f16' if len(dims) > 1 and dims[0] > 16 else 'f32')
        f.write(path)
