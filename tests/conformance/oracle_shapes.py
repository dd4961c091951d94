#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the models of oracle.csv as GGUF files that are a header and a hole: shapes as published, no weights.

usage: oracle_shapes.py FOLDER. Matrices are q4_k, or q8_0 where a row is no multiple of 256. The files have all
keys that llama.cpp wants, and no vocabulary: it plans them as they are.
"""
import pathlib
import struct
import sys

from log_models import File as Header

F32, BOOL = 6, 7
SOFTMAX = {'expert_weights_scale': 1.0, 'expert_weights_norm': True, 'expert_gating_func': 1}
SIGMOID = {**SOFTMAX, 'expert_gating_func': 2}

# L layers, D embedding, FF feed-forward, H heads, KV heads of the cache, HD head size, V vocabulary.
# E experts, EU of them used, EFF their width, SHFF that of shared ones, LEAD dense layers before them.
# SSM: kernel, inner size, state size, heads and groups of recurrent layers; ATT the layers that attend.
SHAPES = {
    'smollm-135m': ('llama', dict(L=30, D=576, FF=1536, H=9, KV=3, HD=64, V=49152, tied=1, type='q8_0')),
    'qwen3-0.6b': ('qwen3', dict(L=28, D=1024, FF=3072, H=16, KV=8, HD=128, V=151936, tied=1)),
    'qwen3-4b': ('qwen3', dict(L=36, D=2560, FF=9728, H=32, KV=8, HD=128, V=151936, tied=1)),
    'qwen3-32b': ('qwen3', dict(L=64, D=5120, FF=25600, H=64, KV=8, HD=128, V=151936)),
    'llama3-8b': ('llama', dict(L=32, D=4096, FF=14336, H=32, KV=8, HD=128, V=128256)),
    'llama3-70b': ('llama', dict(L=80, D=8192, FF=28672, H=64, KV=8, HD=128, V=128256)),
    'llama2-7b': ('llama', dict(L=32, D=4096, FF=11008, H=32, KV=32, HD=128, V=32000, type='f16')),
    'phi3-mini': ('phi3', dict(L=32, D=3072, FF=8192, H=32, KV=32, HD=96, V=32064)),
    'phi3-medium': ('phi3', dict(L=40, D=5120, FF=17920, H=40, KV=10, HD=128, V=32064)),
    'qwen3-30b-a3b': ('qwen3moe', dict(L=48, D=2048, FF=6144, H=32, KV=4, HD=128, V=151936, E=128, EU=8, EFF=768)),
    'qwen3-235b-a22b': ('qwen3moe', dict(L=94, D=4096, FF=12288, H=64, KV=4, HD=128, V=151936, E=128, EU=8,
                                         EFF=1536)),
    'mixtral-8x7b': ('llama', dict(L=32, D=4096, FF=14336, H=32, KV=8, HD=128, V=32000, E=8, EU=2, EFF=14336)),
    'glm-4.5-air': ('glm4moe', dict(L=46, D=4096, FF=10944, H=96, KV=8, HD=128, V=151552, E=128, EU=8, EFF=1408,
                                    SHARED=1, LEAD=1, ROT=64, keys=SIGMOID)),
    'deepseek-v3': ('deepseek2', dict(L=61, D=7168, FF=18432, H=128, KV=1, V=129280, E=256, EU=8, EFF=2048, SHARED=1,
                                      LEAD=3, QL=1536, KVL=512, ROT=64, NOPE=128, VH=128,
                                      keys={**SIGMOID, 'expert_weights_scale': 2.5})),
    'deepseek-v2-lite': ('deepseek2', dict(L=27, D=2048, FF=10944, H=16, KV=1, V=102400, E=64, EU=6, EFF=1408,
                                           SHARED=2, LEAD=1, QL=0, KVL=512, ROT=64, NOPE=128, VH=128, keys=SOFTMAX)),
    'glm-4.7-flash': ('deepseek2', dict(L=47, D=2048, FF=10240, H=20, KV=1, V=154880, E=64, EU=4, EFF=1536, SHARED=1,
                                        LEAD=1, QL=768, KVL=512, ROT=64, NOPE=192, VH=256,
                                        keys={**SOFTMAX, 'expert_weights_scale': 2.5})),
    'gemma3-1b': ('gemma3', dict(L=26, D=1152, FF=6912, H=4, KV=1, HD=256, V=262144, SWA=512, tied=1)),
    'gemma3-27b': ('gemma3', dict(L=62, D=5376, FF=21504, H=32, KV=16, HD=128, V=262144, SWA=1024, tied=1)),
    'command-r7b': ('cohere2', dict(L=32, D=4096, FF=14336, H=32, KV=8, HD=128, V=256000, SWA=4096, tied=1)),
    'gpt-oss-20b': ('gpt-oss', dict(L=24, D=2880, FF=2880, H=64, KV=8, HD=64, V=201088, E=32, EU=4, EFF=2880, SWA=128)),
    'gpt-oss-120b': ('gpt-oss', dict(L=36, D=2880, FF=2880, H=64, KV=8, HD=64, V=201088, E=128, EU=4, EFF=2880,
                                     SWA=128)),
    'llama4-scout': ('llama4', dict(L=48, D=5120, FF=16384, H=40, KV=8, HD=128, V=202048, E=16, EU=1, EFF=8192, STEP=1)),
    'gemma4-31b': ('gemma4', dict(L=60, D=5376, FF=21504, H=32, KVS=16, KV=4, HD=512, HDS=256, V=262144, SWA=1024,
                                  SHARES=0, PLE=0, tied=1)),
    'gemma4-e4b': ('gemma4', dict(L=42, D=2560, FF=10240, H=8, KVS=2, KV=2, HD=512, HDS=256, V=262144, SWA=512,
                                  SHARES=18, PLE=256, tied=1)),
    'gemma3n-e4b': ('gemma3n', dict(L=35, D=2048, FF=16384, H=8, KV=2, HD=256, V=262400, SWA=512, ALT=4, PLE=256,
                                    LAUREL=64, tied=1)),
    'mamba2-2.7b': ('mamba2', dict(L=64, D=2560, FF=0, H=0, KV=0, HD=0, V=50288, tied=1, SSM=(4, 5120, 128, 80, 1))),
    'granite4-h-tiny': ('granitehybrid', dict(L=40, D=1536, FF=512, H=12, KV=4, HD=128, V=100352, E=64, EU=6, EFF=512,
                                              SHFF=1024, tied=1, SSM=(4, 3072, 128, 48, 1), ATT=(5, 15, 25, 35))),
    'granite4-h-micro': ('granitehybrid', dict(L=40, D=2048, FF=8192, H=32, KV=8, HD=64, V=100352, tied=1,
                                               SSM=(4, 4096, 128, 64, 1), ATT=(5, 15, 25, 35))),
    'falcon-h1-7b': ('falcon-h1', dict(L=44, D=3072, FF=12288, H=12, KV=2, HD=128, V=130048,
                                       SSM=(4, 3072, 256, 24, 1))),
    'qwen35-9b': ('qwen35', dict(L=32, D=4096, FF=12288, H=16, KV=4, HD=256, V=248320, ROT=64,
                                 SSM=(4, 4096, 128, 32, 16))),
    'qwen35-27b': ('qwen35', dict(L=64, D=5120, FF=17408, H=24, KV=4, HD=256, V=248320, ROT=64,
                                  SSM=(4, 6144, 128, 48, 16))),
    'qwen3-next-80b': ('qwen3next', dict(L=48, D=2048, FF=5120, H=16, KV=2, HD=256, V=151936, ROT=64, E=512, EU=10,
                                         EFF=512, SHFF=512, SSM=(4, 4096, 128, 32, 16))),
    'lfm2-1.2b': ('lfm2', dict(L=16, D=2048, FF=8192, H=32, KV=8, HD=64, V=65536, tied=1, ATT=(2, 5, 8, 10, 12, 14),
                               LC=3)),
}
QK_NORMS = ('qwen3', 'qwen3moe', 'gemma3', 'gemma3n', 'qwen35', 'qwen3next', 'lfm2')
DELTA = ('qwen35', 'qwen3next')
GRANITE = {'rope.scaling.finetuned': False, 'logit_scale': 6.0, 'residual_scale': 0.22, 'embedding_scale': 12.0,
           'attention.scale': 0.0078}


class File(Header):
    def real(self, key, value):
        self.pairs.append(self.string(f'{self.architecture}.{key}') + struct.pack('<If', F32, value))

    def flag(self, key, value):
        self.pairs.append(self.string(f'{self.architecture}.{key}') + struct.pack('<I?', BOOL, value))

    def any(self, key, value):
        if isinstance(value, bool):
            self.flag(key, value)
        elif isinstance(value, float):
            self.real(key, value)
        elif isinstance(value, (list, tuple)):
            self.numbers(key, value)
        else:
            self.number(key, value)


class Parts:
    """Tensors that models of several families have alike; oracle_families.py has them too."""

    def __init__(self, arch, shape, file):
        self.arch, self.s, self.file = arch, shape, file

    def has(self, key):
        return self.s.get(key, 0)

    def matrix(self, name, *dims):
        kind = self.s.get('tensor_types', {}).get(name.rpartition('.')[2], self.s.get('type', 'q4_k'))
        if isinstance(kind, tuple):  # of most layers, and of those that a mix gives more bits
            kind = kind[self.has_more_bits(int(name.split('.')[1]))]
        self.file.tensor(name + '.weight', dims, kind)

    def has_more_bits(self, i):
        n = self.s['L']
        if 'more_bits' in self.s:
            return i in self.s['more_bits']
        return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2

    def vector(self, name, *dims):
        self.file.tensor(name, dims, 'f32')

    def write(self, path):
        self.keys()
        self.whole()
        for i in range(self.s['L']):
            self.layer(i)
        if self.has('DRAFT'):
            self.draft(f'blk.{self.s["L"] - 1}.nextn.')
        if self.arch == 'falcon-h1':  # these have no ending
            self.file.tensors = [(name.replace('ffn_norm.weight', 'ffn_norm'), *rest) for name, *rest in self.file.tensors]
        if self.arch == 'modern-bert':  # the norm of the embeddings stands for the first one
            self.file.tensors = [tensor for tensor in self.file.tensors if tensor[0] != 'blk.0.attn_norm.weight']
        self.file.write(path)

    def draft(self, b):
        self.matrix(b + 'eh_proj', 2 * self.s['D'], self.s['D'])
        for name in ('enorm', 'hnorm', 'shared_head_norm'):
            self.vector(f'{b}{name}.weight', self.s['D'])

    def latent_attention(self, b):
        s, heads = self.s, self.s['H']
        width = heads * (s['NOPE'] + s['ROT'])
        if s['QL']:
            self.vector(b + 'attn_q_a_norm.weight', s['QL'])
            self.matrix(b + 'attn_q_a', s['D'], s['QL'])
            self.matrix(b + 'attn_q_b', s['QL'], width)
        else:
            self.matrix(b + 'attn_q', s['D'], width)
        self.vector(b + 'attn_kv_a_norm.weight', s['KVL'])
        self.matrix(b + 'attn_kv_a_mqa', s['D'], s['KVL'] + s['ROT'])
        self.matrix(b + 'attn_k_b', s['NOPE'], s['KVL'], heads)
        self.matrix(b + 'attn_v_b', s['KVL'], s['VH'], heads)
        self.matrix(b + 'attn_output', heads * s['VH'], s['D'])

    def mamba2(self, b):
        kernel, inner, state, heads, groups = self.s['SSM']
        mixed = inner + 2 * groups * state
        self.matrix(b + 'ssm_in', self.s['D'], inner + mixed + heads)
        self.vector(b + 'ssm_conv1d.weight', kernel, mixed)
        self.vector(b + 'ssm_conv1d.bias', mixed)
        self.vector(b + 'ssm_dt.bias', heads)
        self.vector(b + 'ssm_a', 1, heads)
        self.vector(b + 'ssm_d', 1, heads)
        self.vector(b + 'ssm_norm.weight', inner // groups, groups)
        self.matrix(b + 'ssm_out', inner, self.s['D'])

    def delta_net(self, b):
        kernel, _, state, heads, groups = self.s['SSM']
        keys, values = state * groups, state * heads
        self.matrix(b + 'attn_qkv', self.s['D'], 2 * keys + values)
        self.matrix(b + 'attn_gate', self.s['D'], values)
        self.vector(b + 'ssm_conv1d.weight', kernel, 2 * keys + values)
        self.vector(b + 'ssm_dt.bias', heads)
        self.vector(b + 'ssm_a', heads)
        self.vector(b + 'ssm_norm.weight', state)
        self.matrix(b + 'ssm_out', values, self.s['D'])
        if self.arch == 'qwen3next':
            self.matrix(b + 'ssm_ba', self.s['D'], 2 * heads)
        else:
            self.matrix(b + 'ssm_beta', self.s['D'], heads)
            self.matrix(b + 'ssm_alpha', self.s['D'], heads)

    def short_convolution(self, b):
        self.vector(b + 'shortconv.conv.weight', self.s['LC'], self.s['D'])
        self.matrix(b + 'shortconv.in_proj', self.s['D'], 3 * self.s['D'])
        self.matrix(b + 'shortconv.out_proj', self.s['D'], self.s['D'])


def common_keys(file):
    file.text('tokenizer.ggml.model', 'no_vocab')
    file.real('attention.layer_norm_rms_epsilon', 1e-6)
    file.real('attention.layer_norm_epsilon', 1e-6)


class Model(Parts):
    def __init__(self, arch, shape):
        super().__init__(arch, shape, File(arch))
        common_keys(self.file)
        rotated = {'rope.dimension_count': shape.get('HD', 0)}
        extra = {'phi3': {**rotated, 'rope.scaling.original_context_length': 4096}, 'falcon-h1': rotated,
                 'granitehybrid': {**rotated, **GRANITE}, 'cohere2': {'logit_scale': 0.25}}.get(arch, {})
        for key, value in {**extra, **shape.get('keys', {})}.items():
            self.file.any(key, value)

    def is_windowed(self, i):
        return (i + 1) % 6 != 0

    def attention_keys(self):
        s, f, n = self.s, self.file, self.s['L']
        f.number('attention.head_count', s['H'])
        if self.arch == 'gemma4':
            windows = [self.is_windowed(i) for i in range(n)]
            f.numbers('attention.sliding_window_pattern', [int(w) for w in windows])
            f.numbers('attention.head_count_kv', [s['KVS'] if w else s['KV'] for w in windows])
            f.number('attention.key_length_swa', s['HDS'])
            f.number('attention.value_length_swa', s['HDS'])
            f.number('attention.shared_kv_layers', s['SHARES'])
            f.number('embedding_length_per_layer_input', s['PLE'])
        elif self.arch in ('granitehybrid', 'lfm2'):
            f.numbers('attention.head_count_kv', [s['KV'] if i in s['ATT'] else 0 for i in range(n)])
        else:
            f.number('attention.head_count_kv', s['KV'])
        if self.has('KVL'):
            f.number('attention.key_length', s['KVL'] + s['ROT'])
            f.number('attention.value_length', s['KVL'])
            f.number('attention.key_length_mla', s['NOPE'] + s['ROT'])
            f.number('attention.value_length_mla', s['VH'])
            f.number('attention.kv_lora_rank', s['KVL'])
            if s['QL']:
                f.number('attention.q_lora_rank', s['QL'])
        elif s['HD']:
            f.number('attention.key_length', s['HD'])
            f.number('attention.value_length', s['HD'])

    def keys(self):
        s, f = self.s, self.file
        f.number('block_count', s['L'])
        f.number('context_length', 131072)
        f.number('embedding_length', s['D'])
        f.number('vocab_size', s['V'])
        f.number('feed_forward_length', s['FF'])
        self.attention_keys()
        named = (('ROT', 'rope.dimension_count'), ('E', 'expert_count'), ('EU', 'expert_used_count'),
                 ('SHARED', 'expert_shared_count'), ('LEAD', 'leading_dense_block_count'),
                 ('SHFF', 'expert_shared_feed_forward_length'), ('SWA', 'attention.sliding_window'),
                 ('STEP', 'interleave_moe_layer_step'), ('LC', 'shortconv.l_cache'))
        for key, name in named:
            if self.has(key):
                f.number(name, s[key])
        if self.has('EFF') and self.arch != 'granitehybrid':
            f.number('expert_feed_forward_length', s['EFF'])
        if 'SSM' in s:
            for name, value in zip(('conv_kernel', 'inner_size', 'state_size', 'time_step_rank', 'group_count'), s['SSM']):
                f.number('ssm.' + name, value)
        if self.arch == 'qwen35':
            f.numbers('rope.dimension_sections', (11, 11, 10, 0))

    def whole(self):
        s = self.s
        self.matrix('token_embd', s['D'], s['V'])
        self.vector('token_embd_norm.weight' if self.arch == 'lfm2' else 'output_norm.weight', s['D'])
        if not self.has('tied'):
            self.matrix('output', s['D'], s['V'])
        if self.arch == 'gemma4':
            self.vector('rope_freqs.weight', s['HD'] // 2)
        if self.has('PLE'):
            width = s['PLE'] * s['L']
            self.matrix('per_layer_token_embd', width, s['V'])
            self.file.tensor('per_layer_model_proj.weight', (s['D'], width), 'f16')
            self.vector('per_layer_proj_norm.weight', s['PLE'])
        if self.arch == 'gemma3n':
            for name in ('altup_proj', 'altup_unembd_proj'):
                self.file.tensor(name + '.weight', (s['D'], s['D'], s['ALT'] - 1), 'f16')
        if self.arch == 'phi3':
            for name in ('long', 'short'):
                self.vector(f'rope_factors_{name}.weight', s['HD'] // 2)

    def feed_forward(self, b, width, suffix=''):
        for name in ('ffn_gate', 'ffn_up'):
            self.matrix(b + name + suffix, self.s['D'], width)
        self.matrix(b + 'ffn_down' + suffix, width, self.s['D'])

    def experts(self, b):
        s = self.s
        self.vector(b + 'ffn_gate_inp.weight', s['D'], s['E'])
        for name in ('ffn_gate_exps', 'ffn_up_exps'):
            self.matrix(b + name, s['D'], s['EFF'], s['E'])
        self.matrix(b + 'ffn_down_exps', s['EFF'], s['D'], s['E'])

    def attention(self, b, i):
        s, heads, kv, size = self.s, self.s['H'], self.s['KV'], self.s['HD']
        if self.arch == 'gemma4':
            self.gemma4_attention(b, i)
            return
        if self.arch == 'phi3':
            self.matrix(b + 'attn_qkv', s['D'], (heads + 2 * kv) * size)
        else:
            self.matrix(b + 'attn_q', s['D'], heads * size * (2 if self.arch in DELTA else 1))
            self.matrix(b + 'attn_k', s['D'], kv * size)
            self.matrix(b + 'attn_v', s['D'], kv * size)
        self.matrix(b + 'attn_output', heads * size, s['D'])
        if self.arch in QK_NORMS:
            self.vector(b + 'attn_q_norm.weight', size)
            self.vector(b + 'attn_k_norm.weight', size)
        if self.arch in ('gpt-oss', 'glm4moe'):
            for name, n in (('q', heads * size), ('k', kv * size), ('v', kv * size)):
                self.vector(f'{b}attn_{name}.bias', n)
        if self.arch == 'gpt-oss':
            self.vector(b + 'attn_output.bias', s['D'])
            self.vector(b + 'attn_sinks.weight', heads)

    def gemma4_attention(self, b, i):
        s = self.s
        size, kv = (s['HDS'], s['KVS']) if self.is_windowed(i) else (s['HD'], s['KV'])
        self.matrix(b + 'attn_q', s['D'], s['H'] * size)
        self.matrix(b + 'attn_output', s['H'] * size, s['D'])
        self.vector(b + 'attn_q_norm.weight', size)
        if i < s['L'] - s['SHARES']:
            self.matrix(b + 'attn_k', s['D'], kv * size)
            self.vector(b + 'attn_k_norm.weight', size)
            if self.is_windowed(i) or s['PLE']:
                self.matrix(b + 'attn_v', s['D'], kv * size)
        self.vector(b + 'layer_output_scale.weight', 1)

    def mixer(self, b, i):
        attends = i in self.s['ATT'] if 'ATT' in self.s else self.arch not in DELTA or (i + 1) % 4 == 0
        if self.arch == 'deepseek2':
            self.latent_attention(b)
        elif self.arch in ('mamba2', 'falcon-h1') or (self.arch == 'granitehybrid' and not attends):
            self.mamba2(b)
        elif self.arch in DELTA and not attends:
            self.delta_net(b)
        elif self.arch == 'lfm2' and not attends:
            self.short_convolution(b)
        if attends and self.arch not in ('deepseek2', 'mamba2'):
            self.attention(b, i)

    def norms(self, b):
        names = {'gemma3': ('ffn_norm', 'post_attention_norm', 'post_ffw_norm'), 'cohere2': (), 'mamba2': ()}
        names['gemma3n'] = names['gemma4'] = names['gemma3']
        for arch in ('gpt-oss', 'glm4moe') + DELTA:
            names[arch] = ('post_attention_norm',)
        for name in ('attn_norm',) + names.get(self.arch, ('ffn_norm',)):
            self.vector(f'{b}{name}.weight', self.s['D'])

    def extras(self, b):
        s = self.s
        if self.has('PLE'):
            self.matrix(b + 'inp_gate', s['D'], s['PLE'])
            self.matrix(b + 'proj', s['PLE'], s['D'])
            self.vector(b + 'post_norm.weight', s['D'])
        if self.arch == 'gemma3n':
            n = s['ALT']
            self.vector(b + 'altup_correct_coef.weight', n, n)
            self.vector(b + 'altup_correct_scale.weight', s['D'])
            self.vector(b + 'altup_predict_coef.weight', n, n * n)
            self.vector(b + 'altup_router.weight', s['D'], n)
            self.vector(b + 'altup_router_norm.weight', s['D'])
            self.matrix(b + 'laurel_l', s['D'], s['LAUREL'])
            self.matrix(b + 'laurel_r', s['LAUREL'], s['D'])
            self.vector(b + 'laurel_post_norm.weight', s['D'])

    def expert_extras(self, b):
        s = self.s
        if self.arch == 'gpt-oss':
            self.vector(b + 'ffn_gate_inp.bias', s['E'])
            for name, n in (('gate', s['EFF']), ('up', s['EFF']), ('down', s['D'])):
                self.vector(f'{b}ffn_{name}_exps.bias', n, s['E'])
        if self.arch == 'glm4moe' or self.has('QL'):
            self.vector(b + 'exp_probs_b.bias', s['E'])
        if self.arch == 'qwen3next':
            self.vector(b + 'ffn_gate_inp_shexp.weight', s['D'])
        shared = self.has('SHFF') or self.has('SHARED') * s['EFF']
        if self.arch == 'llama4':
            shared = s['EFF']
        if shared:
            self.feed_forward(b, shared, '_shexp')

    def layer(self, i):
        b, s = f'blk.{i}.', self.s
        self.norms(b)
        self.mixer(b, i)
        if self.arch == 'phi3':
            self.matrix(b + 'ffn_up', s['D'], 2 * s['FF'])
            self.matrix(b + 'ffn_down', s['FF'], s['D'])
        elif self.has('E') and i >= self.has('LEAD'):
            self.experts(b)
            self.expert_extras(b)
        elif self.arch != 'mamba2':
            self.feed_forward(b, s['FF'])
        self.extras(b)


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (arch, shape) in SHAPES.items():
        Model(arch, shape).write(folder / f'{name}.gguf')


if __name__ == '__main__':
    main(*sys.argv[1:])
