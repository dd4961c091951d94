#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the models of oracle_families.csv as GGUF files that are a header and a hole.

usage: oracle_families.py FOLDER [NAME...]. Shapes are published ones, or such that show a family's
odd sides. Matrices are q4_k, or q8_0 where a row is no multiple of 256. The files have all keys
that llama.cpp wants, and no vocabulary: it plans them as they are.
"""
import pathlib
import struct
import sys

import oracle_shapes
from oracle_shapes import File, common_keys

# L layers, D embedding, FF feed-forward, H heads, KV heads of the cache, HD head size, V vocabulary.
# E experts, EU of them used, EFF their width, SHFF that of shared ones, LEAD dense layers before
# them, STEP each how many'th layer has them. SSM: kernel, inner size, state size, heads, groups.
# norms: of each layer beside attn_norm. qk: norms of queries and keys by 'head', of 'all' together,
# or 'each' head its own. bias: what has one. keys: further ones. ATT: layers that attend.
POST = ('ffn_norm', 'post_attention_norm', 'post_ffw_norm')
AFTER = ('post_attention_norm',)
SHAPES = {
    'gemma2-9b': ('gemma2', dict(L=42, D=3584, FF=14336, H=16, KV=8, HD=256, V=256000, tied=1, norms=POST,
                                 keys={'attention.sliding_window': 4096, 'attn_logit_softcapping': 50.0,
                                       'final_logit_softcapping': 30.0})),
    'gemma-7b': ('gemma', dict(L=28, D=3072, FF=24576, H=16, KV=16, HD=256, V=256000, tied=1)),
    'mistral3-8b': ('mistral3', dict(L=34, D=4096, FF=14336, H=32, KV=8, HD=128, V=131072,
                                     keys={'attention.temperature_scale': 0.1,
                                           'rope.scaling.original_context_length': 16384})),
    'mistral3-24b': ('mistral3', dict(L=40, D=5120, FF=32768, H=32, KV=8, HD=128, V=131072)),
    'glm4-9b': ('glm4', dict(L=40, D=4096, FF=13696, H=32, KV=2, HD=128, V=151552, norms=POST, bias='qkv',
                             halves=1, keys={'rope.dimension_count': 64})),
    'command-r-35b': ('command-r', dict(L=40, D=8192, FF=22528, H=64, KV=64, HD=128, V=256000, tied=1, norms=(),
                                        keys={'logit_scale': 0.0625})),
    'command-r-plus': ('command-r', dict(L=64, D=12288, FF=33792, H=96, KV=8, HD=128, V=256000, tied=1, norms=(),
                                         qk='each', keys={'logit_scale': 0.8})),
    'phi-2': ('phi2', dict(L=32, D=2560, FF=10240, H=32, KV=32, HD=80, V=51200, norms=(), plain=1,
                           bias='qkv out norm ffn head', keys={'rope.dimension_count': 32})),
    'phi-3.5-moe': ('phimoe', dict(L=32, D=4096, FF=6400, H=32, KV=8, HD=128, V=32064, E=16, EU=2, EFF=6400,
                                   bias='qkv out norm head', factors=1,
                                   keys={'rope.scaling.original_context_length': 4096})),
    'olmo2-7b': ('olmo2', dict(L=32, D=4096, FF=11008, H=32, KV=32, HD=128, V=100352, qk='all',
                               norms=('post_attention_norm', 'post_ffw_norm'), no_norm=1)),
    'olmo3-7b': ('olmo2', dict(L=32, D=4096, FF=11008, H=32, KV=32, HD=128, V=100352, qk='all',
                               norms=('post_attention_norm', 'post_ffw_norm'), no_norm=1,
                               keys={'attention.sliding_window': 4096})),
    'olmoe-7b': ('olmoe', dict(L=16, D=2048, FF=1024, H=16, KV=16, HD=128, V=50304, qk='all', E=64, EU=8, EFF=1024)),
    'qwen2-7b': ('qwen2', dict(L=28, D=3584, FF=18944, H=28, KV=4, HD=128, V=152064, bias='qkv')),
    'qwen2moe-14b': ('qwen2moe', dict(L=24, D=2048, FF=5632, H=16, KV=16, HD=128, V=151936, bias='qkv', E=60, EU=4,
                                      EFF=1408, SHFF=5632, gated=1)),
    'qwen2vl-7b': ('qwen2vl', dict(L=28, D=3584, FF=18944, H=28, KV=4, HD=128, V=152064, bias='qkv',
                                   keys={'rope.dimension_sections': [16, 24, 24, 0]})),
    'qwen3vl-8b': ('qwen3vl', dict(L=36, D=4096, FF=12288, H=32, KV=8, HD=128, V=151936, qk='head',
                                   keys={'rope.dimension_sections': [24, 20, 20, 0], 'n_deepstack_layers': 3})),
    'qwen3vl-30b-a3b': ('qwen3vlmoe', dict(L=48, D=2048, FF=6144, H=32, KV=4, HD=128, V=151936, qk='head', E=128,
                                           EU=8, EFF=768, keys={'rope.dimension_sections': [24, 20, 20, 0],
                                                                'n_deepstack_layers': 3})),
    'ling-mini-2': ('bailingmoe2', dict(L=20, D=2048, FF=5120, H=16, KV=4, HD=128, V=157184, qk='head', fused=1,
                                        E=256, EU=8, EFF=512, SHFF=512, LEAD=1, bias='router',
                                        keys={'rope.dimension_count': 64, 'expert_group_count': 8,
                                              'expert_group_used_count': 4, 'expert_weights_norm': True,
                                              'expert_weights_scale': 2.5, 'expert_gating_func': 2,
                                              'expert_shared_count': 1})),
    'minimax-m2': ('minimax-m2', dict(L=62, D=3072, FF=1536, H=48, KV=8, HD=128, V=200064, qk='all', E=256, EU=8,
                                      EFF=1536, bias='router',
                                      keys={'rope.dimension_count': 64, 'expert_gating_func': 2})),
    'ernie4.5-0.3b': ('ernie4_5', dict(L=18, D=1024, FF=3072, H=16, KV=2, HD=128, V=103424, tied=1)),
    'ernie4.5-21b-a3b': ('ernie4_5-moe', dict(L=28, D=2560, FF=12288, H=20, KV=4, HD=128, V=103424, tied=1, E=64,
                                              EU=6, EFF=1536, SHFF=3072, LEAD=1, bias='router',
                                              keys={'interleave_moe_layer_step': 1})),
    'hunyuan-7b': ('hunyuan-dense', dict(L=32, D=4096, FF=14336, H=32, KV=8, HD=128, V=128256, tied=1, qk='head')),
    'hunyuan-a13b': ('hunyuan-moe', dict(L=32, D=4096, FF=3072, H=32, KV=8, HD=128, V=128256, tied=1, qk='head',
                                         E=64, EU=8, EFF=3072, SHFF=3072)),
    'seed-oss-36b': ('seed_oss', dict(L=64, D=5120, FF=27648, H=80, KV=8, HD=128, V=155136, norms=AFTER, bias='qkv')),
    'smollm3-3b': ('smollm3', dict(L=36, D=2048, FF=11008, H=16, KV=4, HD=128, V=128256, tied=1)),
    'exaone4-1.2b': ('exaone4', dict(L=30, D=2048, FF=4096, H=32, KV=8, HD=64, V=102400, tied=1, qk='head',
                                     norms=('post_attention_norm', 'post_ffw_norm'), no_norm=1)),
    'exaone4-32b': ('exaone4', dict(L=64, D=5120, FF=27392, H=40, KV=8, HD=128, V=102400, qk='head',
                                    norms=('post_attention_norm', 'post_ffw_norm'), no_norm=1,
                                    keys={'attention.sliding_window': 4096})),
    'starcoder2-7b': ('starcoder2', dict(L=32, D=4608, FF=18432, H=36, KV=4, HD=128, V=49152, plain=1, tied=1,
                                         bias='qkv out norm ffn')),
    'llama4-maverick': ('llama4', dict(L=48, D=5120, FF=16384, H=40, KV=8, HD=128, V=202048, E=128, EU=1, EFF=8192,
                                       SHFF=8192, STEP=2, keys={'interleave_moe_layer_step': 2})),
    'granite-8b': ('granite', dict(L=36, D=4096, FF=12800, H=32, KV=8, HD=128, V=49155, tied=1, keys={
        'logit_scale': 16.0, 'residual_scale': 0.22, 'embedding_scale': 12.0, 'attention.scale': 0.0078125})),
    'granite-3b-a800m': ('granitemoe', dict(L=32, D=1536, FF=512, H=24, KV=8, HD=64, V=49155, tied=1, E=40, EU=8,
                                            EFF=512, keys={'logit_scale': 6.0, 'residual_scale': 0.22,
                                                           'embedding_scale': 12.0, 'attention.scale': 0.015625})),
    'dots1-142b': ('dots1', dict(L=62, D=4096, FF=10944, H=32, KV=32, HD=128, V=152064, qk='head', E=128, EU=6,
                                 EFF=1408, SHFF=2816, LEAD=1, bias='router', keys={
                                     'expert_shared_count': 2, 'expert_weights_norm': True,
                                     'expert_weights_scale': 2.5, 'expert_gating_func': 2})),
    'lfm2-8b-a1b': ('lfm2moe', dict(L=24, D=2048, FF=7168, H=32, KV=8, HD=64, V=65536, tied=1, qk='head', E=32, EU=4,
                                    EFF=1792, LEAD=2, bias='router', ATT=(2, 6, 10, 14, 18, 21), LC=3,
                                    keys={'shortconv.l_cache': 3, 'expert_gating_func': 2})),
    'qwen35-35b-a3b': ('qwen35moe', dict(L=40, D=2048, FF=5120, H=16, KV=2, HD=256, V=248320, qk='head', norms=AFTER,
                                         E=256, EU=8, EFF=512, SHFF=512, gated=1, SSM=(4, 4096, 128, 32, 16),
                                         ATT=range(3, 40, 4),
                                         keys={'rope.dimension_sections': [11, 11, 10, 0],
                                               'rope.dimension_count': 64})),
    'afm-4.5b': ('arcee', dict(L=36, D=2560, FF=18432, H=20, KV=4, HD=128, V=128000, plain=1)),
    'internlm2-7b': ('internlm2', dict(L=32, D=4096, FF=14336, H=32, KV=8, HD=128, V=92544)),
    'deepseek-moe-16b': ('deepseek', dict(L=28, D=2048, FF=10944, H=16, KV=16, HD=128, V=102400, E=64, EU=6, EFF=1408,
                                          SHFF=2816, LEAD=1, keys={'expert_shared_count': 2,
                                                                   'expert_weights_scale': 1.0})),
    'nemotron-4b': ('nemotron', dict(L=32, D=3072, FF=9216, H=24, KV=8, HD=128, V=256000, plain=1, bias='norm',
                                     keys={'rope.dimension_count': 64})),
    'exaone-7.8b': ('exaone', dict(L=32, D=4096, FF=14336, H=32, KV=8, HD=128, V=102400)),
    'k-exaone-236b': ('exaone-moe', dict(L=48, D=6144, FF=18432, H=64, KV=8, HD=128, V=153600, qk='head', E=128, EU=8,
                                         EFF=2048, SHFF=2048, LEAD=1, bias='router', keys={
                                             'attention.sliding_window': 128, 'expert_shared_count': 1,
                                             'expert_weights_norm': True, 'expert_weights_scale': 2.5,
                                             'expert_gating_func': 2})),
    'minicpm-2b': ('minicpm', dict(L=40, D=2304, FF=5760, H=36, KV=36, HD=64, V=122753, tied=1)),
    'qwen35-35b-a3b-mtp': ('qwen35moe', dict(L=41, D=2048, FF=5120, H=16, KV=2, HD=256, V=248320, qk='head',
                                             norms=AFTER, E=256, EU=8, EFF=512, SHFF=512, gated=1, DRAFT=1,
                                             SSM=(4, 4096, 128, 32, 16), ATT=(*range(3, 40, 4), 40),
                                             keys={'rope.dimension_sections': [11, 11, 10, 0],
                                                   'rope.dimension_count': 64, 'nextn_predict_layers': 1})),
    'gemma4-26b-a4b': ('gemma4', dict(L=30, D=2816, FF=2112, H=16, KV=2, KVS=8, HD=512, HDS=256, V=262144, tied=1,
                                      qk='head', E=128, EU=8, EFF=704, both=1, norms=POST + (
                                          'pre_ffw_norm_2', 'post_ffw_norm_1', 'post_ffw_norm_2'),
                                      keys={'attention.sliding_window': 1024, 'final_logit_softcapping': 30.0, 'embedding_length_per_layer_input': 0, 'attention.shared_kv_layers': 0,
                                            'attention.key_length_swa': 256, 'attention.value_length_swa': 256})),
    'bert-large': ('bert', dict(L=24, D=1024, FF=4096, H=16, KV=16, HD=64, V=30522, tied=1, plain=1, no_norm=1,
                                norms=('attn_output_norm', 'layer_output_norm'), bias='qkv out norm ffn', types=2,
                                places=512, keys={'attention.causal': False})),
    'nomic-embed': ('nomic-bert', dict(L=12, D=768, FF=3072, H=12, KV=12, HD=64, V=30522, tied=1, no_norm=1, fused=1,
                                       norms=('attn_output_norm', 'layer_output_norm'), bias='norm', types=2,
                                       keys={'attention.causal': False})),
    'embedding-gemma': ('gemma-embedding', dict(L=24, D=768, FF=1152, H=3, KV=1, HD=256, V=262144, tied=1, norms=POST,
                                                qk='head', keys={'attention.sliding_window': 512})),
    'modernbert-large': ('modern-bert', dict(L=28, D=1024, FF=2624, H=16, KV=16, HD=64, V=50368, tied=1, fused=1,
                                             halves=1, keys={'attention.sliding_window': 128,
                                                             'attention.causal': False})),
    'kimi-linear-48b': ('kimi-linear', dict(
        L=27, D=2304, FF=9216, H=32, KV=1, HD=0, V=163840, E=256, EU=8, EFF=1024, SHFF=1024, LEAD=1, bias='router',
        KVL=512, QL=0, ROT=64, NOPE=128, VH=128, KDA=128, ATT=(3, 7, 11, 15, 19, 23, 26), CONV=4,
        keys={'ssm.conv_kernel': 4, 'kda.head_dim': 128, 'expert_gating_func': 2, 'expert_weights_scale': 2.446,
              'expert_shared_count': 1})),
    'deepseek-v3.2': ('deepseek32', dict(
        L=61, D=7168, FF=18432, H=128, KV=1, HD=0, V=129280, E=256, EU=8, EFF=2048, SHFF=2048, LEAD=3, QL=1536,
        KVL=512, ROT=64, NOPE=128, VH=128, bias='router', INDEX=(64, 128),
        keys={'attention.indexer.head_count': 64, 'attention.indexer.key_length': 128, 'attention.indexer.top_k': 2048,
              'expert_weights_norm': True, 'expert_weights_scale': 2.5, 'expert_gating_func': 2,
              'expert_shared_count': 1, 'expert_group_count': 8, 'expert_group_used_count': 4})),
    'glm-5': ('glm-dsa', dict(
        L=78, D=6144, FF=12288, H=64, KV=1, HD=0, V=154880, E=256, EU=8, EFF=2048, SHFF=2048, LEAD=3, QL=2048,
        KVL=512, ROT=64, NOPE=192, VH=256, bias='router', INDEX=(32, 128),
        keys={'attention.indexer.head_count': 32, 'attention.indexer.key_length': 128, 'attention.indexer.top_k': 2048,
              'expert_weights_norm': True, 'expert_weights_scale': 2.5, 'expert_gating_func': 2,
              'expert_shared_count': 1})),
    'mistral4-small': ('mistral4', dict(
        L=36, D=4096, FF=12288, H=32, KV=1, HD=0, V=131072, E=128, EU=4, EFF=2048, SHFF=2048, QL=1024, KVL=256,
        ROT=64, NOPE=64, VH=128, keys={
            'expert_weights_norm': True, 'expert_weights_scale': 1.0, 'expert_gating_func': 1,
            'expert_shared_count': 1, 'attention.temperature_scale': 0.1, 'attention.temperature_length': 8192})),
    'mamba-2.8b': ('mamba', dict(L=64, D=2560, FF=0, H=0, KV=0, HD=0, V=50280, tied=1, norms=(),
                                 SSM=(4, 5120, 16, 160, 0), ATT=())),
    'jamba-1.5-mini': ('jamba', dict(L=32, D=4096, FF=14336, H=32, KV=8, HD=128, V=65536, E=16, EU=2, EFF=14336,
                                     STEP=2, SSM=(4, 8192, 16, 256, 0), ATT=(4, 12, 20, 28))),
    'jamba-3b': ('jamba', dict(L=28, D=2560, FF=8192, H=20, KV=1, HD=128, V=65536, tied=1,
                               SSM=(4, 5120, 16, 160, 0), ATT=(13, 27))),
    'nemotron-h-8b': ('nemotron_h', dict(L=52, D=4096, FF=21504, H=32, KV=8, HD=128, V=131072, norms=(), plain=1,
                                         SSM=(4, 8192, 128, 128, 8),
                                         pattern='M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-')),
    'nemotron-h-30b-a3b': ('nemotron_h_moe', dict(
        L=52, D=2688, FF=1856, H=32, KV=2, HD=128, V=131072, norms=(), plain=1, SSM=(4, 4096, 128, 64, 8), E=128,
        EU=6, EFF=1856, SHFF=3712, bias='router', pattern='MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME',
        keys={'expert_weights_norm': True, 'expert_weights_scale': 2.5, 'expert_shared_count': 1})),
}

# Further shapes of the families of oracle.csv, for what is odd about them; keys as in oracle_shapes.py.
DEEPSEEK = {'expert_weights_norm': True, 'expert_weights_scale': 2.5, 'expert_gating_func': 2}
GRANITE = {'logit_scale': 6.0, 'residual_scale': 0.22, 'embedding_scale': 12.0, 'attention.scale': 0.0078125}
ODD = {
    'open-llama-3b': ('llama', dict(L=26, D=3200, FF=8640, H=32, KV=32, HD=100, V=32000)),
    'tinyllama-1.1b': ('llama', dict(L=22, D=2048, FF=5632, H=32, KV=4, HD=64, V=32000)),
    'llama-wide-heads': ('llama', dict(L=19, D=2048, FF=16384, H=8, KV=1, HD=256, V=50257)),
    'qwen3-narrow-heads': ('qwen3', dict(L=7, D=1280, FF=3424, H=20, KV=5, HD=80, V=151936, tied=1)),
    'phi3-odd': ('phi3', dict(L=19, D=2304, FF=6144, H=24, KV=6, HD=96, V=32064)),
    'mixtral-8x22b': ('llama', dict(L=56, D=6144, FF=16384, H=48, KV=8, HD=128, V=32768, E=8, EU=2, EFF=16384)),
    'qwen3moe-odd': ('qwen3moe', dict(L=13, D=1536, FF=4096, H=20, KV=5, HD=96, V=151936, E=60, EU=5, EFF=640)),
    'glm-4.6': ('glm4moe', dict(L=92, D=5120, FF=12288, H=96, KV=8, HD=128, V=151552, E=160, EU=8, EFF=1536, SHARED=1,
                                LEAD=3, ROT=64, keys=DEEPSEEK)),
    'glm-4.5-air-mtp': ('glm4moe', dict(L=47, D=4096, FF=10944, H=96, KV=8, HD=128, V=151552, E=128, EU=8, EFF=1408,
                                        SHARED=1, LEAD=1, ROT=64, DRAFT=1,
                                        keys={**DEEPSEEK, 'nextn_predict_layers': 1})),
    'kimi-k2': ('deepseek2', dict(L=61, D=7168, FF=18432, H=64, KV=1, V=163840, E=384, EU=8, EFF=2048, SHARED=1,
                                  LEAD=1, QL=1536, KVL=512, ROT=64, NOPE=128, VH=128, keys=DEEPSEEK)),
    'deepseek-v3-groups': ('deepseek2', dict(
        L=61, D=7168, FF=18432, H=128, KV=1, V=129280, E=256, EU=8, EFF=2048, SHARED=1, LEAD=3, QL=1536, KVL=512,
        ROT=64, NOPE=128, VH=128, keys={**DEEPSEEK, 'expert_group_count': 8, 'expert_group_used_count': 4})),
    'deepseek-v2-lite-plain': ('deepseek2', dict(
        L=27, D=2048, FF=10944, H=16, KV=1, V=102400, E=64, EU=6, EFF=1408, SHARED=2, LEAD=1, QL=0, KVL=512, ROT=64,
        NOPE=128, VH=128, keys={'expert_weights_norm': False, 'expert_weights_scale': 1.0, 'expert_gating_func': 1})),
    'gemma3-4b': ('gemma3', dict(L=34, D=2560, FF=10240, H=8, KV=4, HD=256, V=262144, SWA=1024, tied=1)),
    'command-a': ('cohere2', dict(L=64, D=12288, FF=36864, H=96, KV=8, HD=128, V=256000, SWA=4096, tied=1,
                                  keys={'logit_scale': 0.25})),
    'gpt-oss-odd': ('gpt-oss', dict(L=11, D=1440, FF=1440, H=20, KV=4, HD=64, V=201088, E=24, EU=3, EFF=1440, SWA=128)),
    'gemma4-e-odd': ('gemma4', dict(L=30, D=1536, FF=6144, H=8, KVS=1, KV=1, HD=512, HDS=256, V=262144, SWA=512,
                                  SHARES=12, PLE=256, tied=1)),
    'gemma3n-e2b': ('gemma3n', dict(L=30, D=2048, FF=8192, H=8, KV=2, HD=256, V=262400, SWA=512, ALT=4, PLE=256,
                                    LAUREL=64, tied=1)),
    'mamba2-780m': ('mamba2', dict(L=48, D=1536, FF=0, H=0, KV=0, HD=0, V=50288, tied=1, SSM=(4, 3072, 128, 48, 1))),
    'codestral-mamba': ('mamba2', dict(L=64, D=4096, FF=0, H=0, KV=0, HD=0, V=32768, SSM=(4, 8192, 128, 128, 8))),
    'granite4-h-small': ('granitehybrid', dict(
        L=40, D=4096, FF=768, H=32, KV=8, HD=128, V=100352, E=72, EU=10, EFF=768, SHFF=1536, tied=1,
        SSM=(4, 8192, 128, 128, 1), ATT=(5, 15, 25, 35), keys=GRANITE)),
    'falcon-h1-0.5b': ('falcon-h1', dict(L=36, D=1024, FF=2048, H=8, KV=2, HD=64, V=32784,
                                         SSM=(4, 1536, 128, 24, 1))),
    'falcon-h1-34b': ('falcon-h1', dict(L=72, D=5120, FF=21504, H=20, KV=4, HD=128, V=261120,
                                        SSM=(4, 10240, 256, 32, 2))),
    'qwen35-4b': ('qwen35', dict(L=32, D=2560, FF=9216, H=16, KV=4, HD=256, V=248320, ROT=64, tied=1,
                                 SSM=(4, 4096, 128, 32, 16))),
    'qwen3next-odd': ('qwen3next', dict(L=12, D=1536, FF=5120, H=12, KV=3, HD=128, V=151936, ROT=64, E=96, EU=7,
                                        EFF=384, SHFF=640, SSM=(4, 3072, 128, 24, 8))),
    'lfm2-2.6b': ('lfm2', dict(L=30, D=2048, FF=10752, H=32, KV=8, HD=64, V=65536, tied=1, LC=3,
                               ATT=(2, 5, 9, 13, 17, 21, 25, 28))),
    'llama4-odd': ('llama4', dict(L=10, D=2560, FF=6400, H=20, KV=4, HD=128, V=202048, E=12, EU=1, EFF=3200, STEP=1)),
}


class Model(oracle_shapes.Parts):
    def __init__(self, arch, shape):
        super().__init__(arch, {'norms': ('ffn_norm',), 'keys': {}, **shape}, File(arch))
        self.biased = self.s.get('bias', '').split()

    def attends(self, i):
        if self.has('pattern'):
            return self.s['pattern'][i] == '*'
        return i in self.s['ATT'] if 'ATT' in self.s else self.s['H'] > 0

    def recurs(self, i):
        if self.has('pattern'):
            return self.s['pattern'][i] == 'M'
        return not self.attends(i)

    def feeds(self, i):
        return self.s['pattern'][i] in '-E' if self.has('pattern') else self.s['FF'] > 0

    def has_experts(self, i):
        return self.has('E') and i >= self.has('LEAD') and (i + 1) % self.s.get('STEP', 1) == 0

    def keys(self):
        s, f, layers = self.s, self.file, range(self.s['L'])
        common_keys(f)
        if 'types' in s:
            f.pairs.append(f.string('tokenizer.ggml.token_type_count') + struct.pack('<II', 4, s['types']))
        for key, name in (('L', 'block_count'), ('D', 'embedding_length'), ('V', 'vocab_size')):
            f.number(name, s[key])
        f.number('context_length', s.get('places', 131072))
        if self.has('pattern'):
            f.numbers('feed_forward_length', [s['FF'] if self.feeds(i) else 0 for i in layers])
        else:
            f.number('feed_forward_length', s['FF'])
        f.number('attention.head_count', s['H'])
        if ('ATT' in s and 'ssm_ba' not in s and self.arch != 'qwen35moe') or self.has('pattern'):
            f.numbers('attention.head_count_kv', [s['KV'] if self.attends(i) else 0 for i in layers])
        elif 'HDS' not in s:
            f.number('attention.head_count_kv', s['KV'])
        if s['HD']:
            f.number('attention.key_length', s['HD'])
            f.number('attention.value_length', s['HD'])
        if 'KVL' in s:
            f.number('attention.key_length', s['KVL'] + s['ROT'])
            f.number('attention.value_length', s['KVL'])
            f.number('attention.key_length_mla', s['NOPE'] + s['ROT'])
            f.number('attention.value_length_mla', s['VH'])
            f.number('attention.kv_lora_rank', s['KVL'])
            f.number('rope.dimension_count', s['ROT'])
            if s['QL']:
                f.number('attention.q_lora_rank', s['QL'])
        for key, name in (('E', 'expert_count'), ('EU', 'expert_used_count'), ('EFF', 'expert_feed_forward_length'),
                          ('SHFF', 'expert_shared_feed_forward_length'), ('LEAD', 'leading_dense_block_count')):
            if self.has(key):
                f.number(name, s[key])
        if 'SSM' in s:
            for name, value in zip(('conv_kernel', 'inner_size', 'state_size', 'time_step_rank', 'group_count'), s['SSM']):
                f.number('ssm.' + name, value)
        for key, value in s['keys'].items():
            f.any(key, value)
        if 'HDS' in s:
            windows = [(i + 1) % 6 != 0 for i in layers]
            f.numbers('attention.sliding_window_pattern', [int(w) for w in windows])
            f.numbers('attention.head_count_kv', [s['KVS'] if w else s['KV'] for w in windows])

    def norm(self, name):
        self.vector(name + '.weight', self.s['D'])
        if 'norm' in self.biased:
            self.vector(name + '.bias', self.s['D'])

    def whole(self):
        s = self.s
        self.matrix('token_embd', s['D'], s['V'])
        if 'types' in s:
            self.vector('token_types.weight', s['D'], s['types'])
        if 'places' in s:
            self.matrix('position_embd', s['D'], s['places'])
        if 'types' in s or self.arch == 'modern-bert':
            self.norm('token_embd_norm')
        if 'types' not in s:
            self.norm('token_embd_norm' if self.arch == 'lfm2moe' else 'output_norm')
        if not self.has('tied'):
            self.matrix('output', s['D'], s['V'])
        if 'head' in self.biased:
            self.vector('output.bias', s['V'])
        if 'HDS' in s:
            self.vector('rope_freqs.weight', s['HD'] // 2)
        if self.has('factors'):
            for name in ('long', 'short'):
                self.vector(f'rope_factors_{name}.weight', s['HD'] // 2)

    def feed_forward(self, b, width, suffix=''):
        d, up = self.s['D'], width * (2 if self.has('halves') else 1)
        if not self.has('plain') and not self.has('halves'):
            self.matrix(b + 'ffn_gate' + suffix, d, width)
        self.matrix(b + 'ffn_up' + suffix, d, up)
        self.matrix(b + 'ffn_down' + suffix, width, d)
        if 'ffn' in self.biased:
            self.vector(b + 'ffn_up.bias', width)
            self.vector(b + 'ffn_down.bias', d)

    def experts(self, b):
        s = self.s
        self.vector(b + 'ffn_gate_inp.weight', s['D'], s['E'])
        for name in ('ffn_up_exps',) if self.has('plain') else ('ffn_gate_exps', 'ffn_up_exps'):
            self.matrix(b + name, s['D'], s['EFF'], s['E'])
        self.matrix(b + 'ffn_down_exps', s['EFF'], s['D'], s['E'])
        if 'router' in self.biased:
            self.vector(b + 'exp_probs_b.bias', s['E'])
        if self.has('gated'):
            self.vector(b + 'ffn_gate_inp_shexp.weight', s['D'])
        if self.has('SHFF'):
            self.feed_forward(b, s['SHFF'], '_shexp')

    def attention(self, b, i):
        s, heads, kv, size = self.s, self.s['H'], self.s['KV'], self.s['HD']
        if 'HDS' in s and (i + 1) % 6 != 0:
            kv, size = s['KVS'], s['HDS']
        widths = (('q', heads * size * (2 if self.arch == 'qwen35moe' else 1)), ('k', kv * size), ('v', kv * size))
        if self.has('fused'):
            self.matrix(b + 'attn_qkv', s['D'], (heads + 2 * kv) * size)
        else:
            for name, width in widths:
                self.matrix(f'{b}attn_{name}', s['D'], width)
                if 'qkv' in self.biased:
                    self.vector(f'{b}attn_{name}.bias', width)
        self.matrix(b + 'attn_output', heads * size, s['D'])
        if 'out' in self.biased:
            self.vector(b + 'attn_output.bias', s['D'])
        shapes = {'head': ((size,), (size,)), 'all': ((heads * size,), (kv * size,)), 'each': ((size, heads), (size, kv))}
        if self.has('qk'):
            for name, dims in zip('qk', shapes[s['qk']]):
                self.vector(f'{b}attn_{name}_norm.weight', *dims)

    def latent_attention(self, b):
        super().latent_attention(b)
        s = self.s
        if 'INDEX' in s:
            n, size = s['INDEX']
            self.vector(b + 'indexer.k_norm.weight', size)
            self.vector(b + 'indexer.k_norm.bias', size)
            self.matrix(b + 'indexer.proj', s['D'], n)
            self.matrix(b + 'indexer.attn_k', s['D'], size)
            self.matrix(b + 'indexer.attn_q_b', s['QL'], n * size)

    def kimi(self, b):
        s, size, inner = self.s, self.s['KDA'], self.s['KDA'] * self.s['H']
        for name in 'qkv':
            self.matrix(f'{b}attn_{name}', s['D'], inner)
            self.vector(f'{b}ssm_conv1d_{name}.weight', s['CONV'], 1, inner)
        for name in 'fg':
            self.matrix(f'{b}ssm_{name}_a', s['D'], size)
            self.matrix(f'{b}ssm_{name}_b', size, inner)
        self.matrix(b + 'ssm_beta', s['D'], s['H'])
        self.vector(b + 'ssm_a', 1, s['H'])
        self.vector(b + 'ssm_dt.bias', inner)
        self.vector(b + 'ssm_norm.weight', size)
        self.matrix(b + 'attn_output', inner, s['D'])

    def mamba(self, b):
        kernel, inner, state, rank, _ = self.s['SSM']
        self.matrix(b + 'ssm_in', self.s['D'], 2 * inner)
        self.vector(b + 'ssm_conv1d.weight', kernel, inner)
        self.vector(b + 'ssm_conv1d.bias', inner)
        self.matrix(b + 'ssm_x', inner, rank + 2 * state)
        self.matrix(b + 'ssm_dt', rank, inner)
        self.vector(b + 'ssm_dt.bias', inner)
        self.vector(b + 'ssm_a', state, inner)
        self.vector(b + 'ssm_d', inner)
        self.matrix(b + 'ssm_out', inner, self.s['D'])
        if self.arch == 'jamba':
            for name, n in (('dt', rank), ('b', state), ('c', state)):
                self.vector(f'{b}ssm_{name}_norm.weight', n)

    def recurrence(self, b):
        if self.has('LC'):
            self.short_convolution(b)
        elif self.has('KDA'):
            self.kimi(b)
        elif self.arch == 'qwen35moe':
            self.delta_net(b)
        elif self.arch in ('mamba', 'jamba'):
            self.mamba(b)
        else:
            self.mamba2(b)

    def layer(self, i):
        b = f'blk.{i}.'
        for name in (() if self.has('no_norm') else ('attn_norm',)) + tuple(self.s['norms']):
            self.norm(b + name)
        if self.attends(i) and 'KVL' in self.s:
            self.latent_attention(b)
        elif self.attends(i):
            self.attention(b, i)
        elif self.recurs(i):
            self.recurrence(b)
        if self.feeds(i) and self.has_experts(i):
            self.experts(b)
            if self.has('both'):
                self.feed_forward(b, self.s['FF'])
                self.vector(b + 'ffn_gate_inp.scale', self.s['D'])
                self.vector(b + 'layer_output_scale.weight', 1)
        elif self.feeds(i):
            self.feed_forward(b, self.s['FF'])


def main(folder, *names):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (arch, shape) in {**SHAPES, **ODD}.items():
        if names and name not in names:
            continue
        model = oracle_shapes.Model(arch, shape) if name in ODD else Model(arch, shape)
        model.write(folder / f'{name}.gguf')


if __name__ == '__main__':
    main(*sys.argv[1:])
