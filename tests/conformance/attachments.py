# SPDX-License-Identifier: MIT
"""Writes what is loaded beside a model as GGUF files that are a header and a hole: projectors of images, LoRA adapters.

The projector is Qwen2.5-VL's shape of published numbers or smaller ones, in 16 bits. It gives vectors as wide as
the text model's embeddings, whatever model that is. Files are written by functions of their path; each returns the
bytes of its tensors, each padded to `alignment` as a buffer pads them.
"""
import struct

from log_models import ARRAY, BOOL, U32, File

F32 = 6
# Layers, width, width of the feed-forward layers, heads.
PUBLISHED = (32, 1280, 3420, 16)


class Attachment(File):
    """Keys with names of their own, not the architecture's."""

    def put(self, key, kind, packed):
        self.pairs.append(self.string(key) + struct.pack('<I', kind) + packed)

    def whole(self, key, value):
        self.put(key, U32, struct.pack('<I', value))

    def real(self, key, value):
        self.put(key, F32, struct.pack('<f', value))

    def flag(self, key, value):
        self.put(key, BOOL, struct.pack('<?', value))

    def reals(self, key, values):
        self.put(key, ARRAY, struct.pack(f'<IQ{len(values)}f', F32, len(values), *values))

    def padded(self, alignment):
        return sum(-(-self.placed(dims, kind)[1] // alignment) * alignment for _, dims, kind in self.tensors)


def _vision_keys(file, text_width, shape):
    layers, width, inner, heads = shape
    file.text('clip.projector_type', 'qwen2.5vl_merger')
    file.flag('clip.has_vision_encoder', True)
    file.flag('clip.use_silu', True)
    for key, value in {'embedding_length': width, 'attention.head_count': heads, 'feed_forward_length': inner,
                       'block_count': layers, 'projection_dim': text_width, 'image_size': 560, 'patch_size': 14,
                       'n_wa_pattern': 8}.items():
        file.whole('clip.vision.' + key, value)
    file.real('clip.vision.attention.layer_norm_epsilon', 1e-6)
    file.reals('clip.vision.image_mean', (0.5, 0.5, 0.5))
    file.reals('clip.vision.image_std', (0.5, 0.5, 0.5))


def _vision_layer(file, i, width, inner):
    def both(name, inputs, outputs):
        file.tensor(f'v.blk.{i}.{name}.weight', (inputs, outputs), 'f16')
        file.tensor(f'v.blk.{i}.{name}.bias', (outputs,), 'f32')
    for name in ('attn_q', 'attn_k', 'attn_v', 'attn_out'):
        both(name, width, width)
    both('ffn_gate', width, inner)
    both('ffn_up', width, inner)
    both('ffn_down', inner, width)
    for name in ('ln1', 'ln2'):
        file.tensor(f'v.blk.{i}.{name}.weight', (width,), 'f32')


def write_projector(path, text_width, shape=PUBLISHED, alignment=128):
    """A projector of images, by Qwen2.5-VL's architecture."""
    layers, width, inner, _ = shape
    file = Attachment('clip')
    _vision_keys(file, text_width, shape)
    for ending in ('weight', 'weight.1'):
        file.tensor('v.patch_embd.' + ending, (14, 14, 3, width), 'f16')
    for i in range(layers):
        _vision_layer(file, i, width, inner)
    file.tensor('v.post_ln.weight', (width,), 'f32')
    for name, outputs in (('mm.0', 4 * width), ('mm.2', text_width)):
        file.tensor(name + '.weight', (4 * width, outputs), 'f16')
        file.tensor(name + '.bias', (outputs,), 'f32')
    file.write(path)
    return file.padded(alignment)


def write_adapter(path, architecture, layers, matrices, rank=64, alignment=128):
    """A LoRA adapter in 32 bits of `matrices`, {name: (inputs, outputs)}, in each of `layers`."""
    file = Attachment(architecture)
    file.text('general.type', 'adapter')
    file.text('adapter.type', 'lora')
    file.real('adapter.lora.alpha', float(rank))
    for i in layers:
        for name, (inputs, outputs) in matrices.items():
            file.tensor(f'blk.{i}.{name}.weight.lora_a', (inputs, rank), 'f32')
            file.tensor(f'blk.{i}.{name}.weight.lora_b', (rank, outputs), 'f32')
    file.write(path)
    return file.padded(alignment)
