#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes models of published shapes as GGUF files that are a header and a hole.

models.csv holds the shapes, each with the place it was published at. All matrices of a file are of
one type, that of most of the weights of the run that it stands for.
"""
import csv
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
U32, STRING, ARRAY, BOOL = 4, 8, 9, 7

# Number, elements of a block, bytes of a block, bytes before each row. From 97 on: ik_llama.cpp's.
TYPES = {
    'f32': (0, 1, 4, 0), 'f16': (1, 1, 2, 0), 'q4_0': (2, 32, 18, 0), 'q4_1': (3, 32, 20, 0), 'q5_0': (6, 32, 22, 0),
    'q8_0': (8, 32, 34, 0), 'q2_k': (10, 256, 84, 0), 'q3_k': (11, 256, 110, 0), 'q4_k': (12, 256, 144, 0),
    'q5_k': (13, 256, 176, 0), 'q6_k': (14, 256, 210, 0), 'iq2_xxs': (16, 256, 66, 0),
    'iq3_xxs': (18, 256, 98, 0), 'iq1_s': (19, 256, 50, 0), 'iq4_nl': (20, 32, 18, 0),
    'iq3_s': (21, 256, 110, 0), 'iq4_xs': (23, 256, 136, 0), 'bf16': (30, 1, 2, 0), 'mxfp4': (39, 32, 17, 0),
    'iq2_bn': (135, 64, 16, 4), 'iq2_k': (137, 256, 76, 0), 'iq3_k': (138, 256, 110, 0),
    'iq4_k': (139, 256, 144, 0), 'iq5_k': (140, 256, 176, 0), 'iq6_k': (141, 256, 212, 0),
    'iq4_ks': (144, 256, 136, 4), 'iq2_ks': (145, 256, 70, 2), 'iq4_kss': (146, 256, 128, 4),
    'iq2_kt': (153, 256, 68, 4), 'iq3_kt': (154, 256, 100, 4), 'iq2_kl': (157, 256, 86, 2),
}


def shapes():
    with open(HERE / 'models.csv', newline='') as table:
        return list(csv.DictReader(table))


class File:
    def __init__(self, architecture):
        self.architecture = architecture
        self.pairs = []
        self.tensors = []
        self.text('general.architecture', architecture)

    @staticmethod
    def string(text):
        data = text.encode()
        return struct.pack('<Q', len(data)) + data

    def text(self, key, value):
        self.pairs.append(self.string(key) + struct.pack('<I', STRING) + self.string(value))

    def number(self, key, value):
        self.pairs.append(self.string(f'{self.architecture}.{key}') + struct.pack('<II', U32, int(value)))

    def numbers(self, key, values):
        self.pairs.append(self.string(f'{self.architecture}.{key}') +
                          struct.pack('<IIQ', ARRAY, U32, len(values)) +
                          struct.pack(f'<{len(values)}I', *values))

    def tensor(self, name, dims, kind):
        self.tensors.append((name, dims, kind))

    @staticmethod
    def placed(dims, kind):
        number, block, size, head = TYPES[kind]
        if dims[0] % block:
            number, block, size, head = TYPES['q8_0' if dims[0] % 32 == 0 else 'f16']
        rows = 1
        for n in dims[1:]:
            rows *= n
        return number, rows * (dims[0] // block * size + head)

    def write(self, path):
        offset = 0
        infos = []
        for name, dims, kind in self.tensors:
            number, size = self.placed(dims, kind)
            infos.append(self.string(name) + struct.pack(f'<I{len(dims)}Q', len(dims), *dims) +
                         struct.pack('<IQ', number, offset))
            offset += -(-size // 32) * 32
        head = b'GGUF' + struct.pack('<IQQ', 3, len(self.tensors), len(self.pairs)) + b''.join(self.pairs + infos)
        head += b'\0' * (-len(head) % 32)
        with open(path, 'wb') as file:
            file.write(head)
            file.truncate(len(head) + offset)


class Model:
    """`in_heads`: latent attention as it was converted before it could be cached compressed."""

    def __init__(self, shape, kind, in_heads=False):
        self.in_heads = in_heads
        self.s = {key: (int(value) if value.lstrip('-').isdigit() else value) for key, value in shape.items()}
        for key in ('q_lora', 'kv_lora', 'rope', 'short_conv'):
            self.s[key] = self.s[key] or 0
        self.kind = kind
        self.file = File(self.s['arch'])
        self.attention = [int(i) for i in str(self.s['attention_layers']).split()]
        self.ssm = [int(i) for i in str(self.s['ssm']).split()]
        self.window_heads = [int(i) for i in str(self.s['heads_swa']).split()]

    def is_windowed(self, layer):
        return bool(self.window_heads) and (layer + 1) % 6 != 0

    def keys(self):
        s, f = self.s, self.file
        n = s['layers']
        f.number('block_count', n)
        f.number('context_length', 1 << 20)
        f.number('embedding_length', s['embedding'])
        f.number('vocab_size', s['vocabulary'])
        f.number('feed_forward_length', s['ff'])
        f.number('attention.head_count', s['heads'])
        if s['draft_layers']:
            f.number('nextn_predict_layers', s['draft_layers'])
        if self.window_heads:
            f.numbers('attention.head_count_kv',
                      [self.window_heads[0] if self.is_windowed(i) else s['kv_heads'] for i in range(n)])
            f.numbers('attention.sliding_window_pattern', [int(self.is_windowed(i)) for i in range(n)])
            f.number('attention.key_length_swa', self.window_heads[1])
            f.number('attention.value_length_swa', self.window_heads[1])
        elif self.attention:
            f.numbers('attention.head_count_kv', [s['kv_heads'] if i in self.attention else 0 for i in range(n)])
        else:
            f.number('attention.head_count_kv', s['heads'] if self.in_heads else s['kv_heads'])
        if s['kv_lora']:
            f.number('attention.kv_lora_rank', s['kv_lora'])
            if s['q_lora']:
                f.number('attention.q_lora_rank', s['q_lora'])
        if s['kv_lora'] and not self.in_heads:
            f.number('attention.key_length', s['kv_lora'] + s['rope'])
            f.number('attention.value_length', s['kv_lora'])
            f.number('attention.key_length_mla', s['key'])
            f.number('attention.value_length_mla', s['value'])
        else:
            f.number('attention.key_length', s['key'])
            f.number('attention.value_length', s['value'])
        f.number('rope.dimension_count', s['rope'] or s['key'])
        if s['experts']:
            f.number('expert_count', s['experts'])
            f.number('expert_used_count', s['experts_used'])
            f.number('expert_feed_forward_length', s['expert_ff'])
            f.number('leading_dense_block_count', s['dense_layers'])
        if s['window']:
            f.number('attention.sliding_window', s['window'])
        for key, value in zip(('conv_kernel', 'inner_size', 'state_size', 'time_step_rank', 'group_count'), self.ssm):
            f.number(f'ssm.{key}', value)
        if s['short_conv']:
            f.number('shortconv.l_cache', s['short_conv'])

    def matrix(self, name, *dims):
        self.file.tensor(name + '.weight', dims, self.kind)

    def vector(self, name, *dims):
        self.file.tensor(name + '.weight', dims, 'f32')

    def feed_forward(self, b, width, suffix=''):
        d = self.s['embedding']
        if self.s['arch'] in ('glm4', 'phi3', 'chatglm'):
            self.matrix(b + 'ffn_up', d, 2 * width)
        else:
            self.matrix(b + 'ffn_gate' + suffix, d, width)
            self.matrix(b + 'ffn_up' + suffix, d, width)
        self.matrix(b + 'ffn_down' + suffix, width, d)

    def latent(self, b):
        s = self.s
        d, heads, rank, rope = s['embedding'], s['heads'], s['kv_lora'], s['rope']
        nope = s['key'] - rope
        if s['q_lora']:
            self.vector(b + 'attn_q_a_norm', s['q_lora'])
            self.matrix(b + 'attn_q_a', d, s['q_lora'])
            self.matrix(b + 'attn_q_b', s['q_lora'], heads * s['key'])
        else:
            self.matrix(b + 'attn_q', d, heads * s['key'])
        self.vector(b + 'attn_kv_a_norm', rank)
        self.matrix(b + 'attn_kv_a_mqa', d, rank + rope)
        if self.in_heads:
            self.matrix(b + 'attn_kv_b', rank, heads * (nope + s['value']))
        else:
            self.matrix(b + 'attn_k_b', nope, rank, heads)
            self.matrix(b + 'attn_v_b', rank, s['value'], heads)
        self.matrix(b + 'attn_output', heads * s['value'], d)

    def attend(self, b, layer):
        s = self.s
        d, heads, size = s['embedding'], s['heads'], s['key']
        kv = s['kv_heads']
        if self.is_windowed(layer):
            kv, size = self.window_heads
        gate = 2 if s['arch'] in ('qwen35', 'qwen35moe', 'qwen3next') else 1
        if s['arch'] in ('phi3', 'bailingmoe2'):
            self.matrix(b + 'attn_qkv', d, (heads + 2 * kv) * size)
        else:
            self.matrix(b + 'attn_q', d, heads * size * gate)
            self.matrix(b + 'attn_k', d, kv * size)
            if not self.window_heads or self.is_windowed(layer):
                self.matrix(b + 'attn_v', d, kv * size)
        self.matrix(b + 'attn_output', heads * size, d)

    def recur(self, b):
        d = self.s['embedding']
        if self.s['short_conv']:
            self.vector(b + 'shortconv.conv', self.s['short_conv'], d)
            self.matrix(b + 'shortconv.in_proj', d, 3 * d)
            self.matrix(b + 'shortconv.out_proj', d, d)
            return
        conv, _, state, rank, groups = self.ssm
        keys, values = state * groups, state * rank
        self.matrix(b + 'attn_qkv', d, 2 * keys + values)
        self.matrix(b + 'attn_gate', d, values)
        self.vector(b + 'ssm_conv1d', conv, 2 * keys + values)
        self.vector(b + 'ssm_norm', state)
        self.matrix(b + 'ssm_out', values, d)

    def layer(self, i):
        s, b = self.s, f'blk.{i}.'
        self.vector(b + 'attn_norm', s['embedding'])
        self.vector(b + 'ffn_norm', s['embedding'])
        if s['kv_lora']:
            self.latent(b)
        elif self.ssm and (i + 1) % 4 and i < s['layers'] - s['draft_layers'] or self.attention and i not in self.attention:
            self.recur(b)
        else:
            self.attend(b, i)
        if not s['experts'] or i < s['dense_layers']:
            self.feed_forward(b, s['ff'])
            return
        d, n, width = s['embedding'], s['experts'], s['expert_ff']
        self.vector(b + 'ffn_gate_inp', d, n)
        self.matrix(b + 'ffn_gate_exps', d, width, n)
        self.matrix(b + 'ffn_up_exps', d, width, n)
        self.matrix(b + 'ffn_down_exps', width, d, n)
        if s['shared_ff']:
            self.feed_forward(b, s['shared_ff'], '_shexp')

    def lay_out(self):
        s = self.s
        self.keys()
        self.matrix('token_embd', s['embedding'], s['vocabulary'])
        self.vector('output_norm', s['embedding'])
        if not s['tied']:
            self.matrix('output', s['embedding'], s['vocabulary'])
        for i in range(s['layers']):
            self.layer(i)
        return self.file


def write(shape, kind, path, in_heads=False):
    Model(shape, kind, in_heads).lay_out().write(path)


def parameters(shape):
    count = 0
    for _, dims, _ in Model(shape, 'f32').lay_out().tensors:
        elements = 1
        for n in dims:
            elements *= n
        count += elements
    return count


def bits(kind):
    _, block, size, _ = TYPES[kind]
    return size * 8 / block
