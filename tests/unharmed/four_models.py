# SPDX-License-Identifier: MIT
"""Four models for the common tests of transformers' source package, which comes without those of each model: one with experts, one with
a recurrent state, two with an encoder. tests/unharmed/python lays this file beside them as tests/models/four/test_four.py."""

import unittest

import torch
import transformers

from ...generation.test_utils import GenerationTesterMixin
from ...test_modeling_common import ModelTesterMixin, ids_tensor

WORDS, WIDTH, LAYERS, HEADS, BATCH, LENGTH = 99, 32, 2, 4, 13, 7
SPECIAL = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


class Tester:
    """What the common tests ask a model's own tester for."""

    batch_size, seq_length, hidden_size, num_hidden_layers, num_attention_heads, is_training = BATCH, LENGTH, WIDTH, LAYERS, HEADS, True
    encoder_seq_length = decoder_seq_length = LENGTH

    def __init__(self, config, has_encoder=False, has_mask=True):
        self.config, self.has_encoder, self.has_mask = config, has_encoder, has_mask

    def get_config(self):
        return self.config()

    def prepare_config_and_inputs_for_common(self):
        inputs = {"input_ids": ids_tensor([BATCH, LENGTH], WORDS).clamp(3)}
        if self.has_encoder:
            inputs["input_ids"][:, -1] = SPECIAL["eos_token_id"]
            inputs["decoder_input_ids"] = ids_tensor([BATCH, LENGTH], WORDS).clamp(3)
        if self.has_mask:
            inputs["attention_mask"] = torch.ones([BATCH, LENGTH], dtype=torch.long)
        return self.config(), inputs


class FourModels(ModelTesterMixin, GenerationTesterMixin):
    all_generative_model_classes = ()
    test_missing_keys = False

    def setUp(self):
        self.model_tester = self.tester()


def experts():
    return transformers.MixtralConfig(vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=37, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                                      num_key_value_heads=2, num_local_experts=4, max_position_embeddings=64, **SPECIAL)


def state():
    return transformers.MambaConfig(vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, state_size=16, time_step_rank=2, **SPECIAL)


def t5():
    return transformers.T5Config(vocab_size=WORDS, d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=37, num_layers=LAYERS, num_decoder_layers=LAYERS,
                                 num_heads=HEADS, decoder_start_token_id=1, **SPECIAL)


def bart():
    return transformers.BartConfig(vocab_size=WORDS, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
                                   decoder_attention_heads=HEADS, encoder_ffn_dim=37, decoder_ffn_dim=37, max_position_embeddings=50, **SPECIAL)


class MixtralTest(FourModels, unittest.TestCase):
    all_model_classes = (transformers.MixtralModel, transformers.MixtralForCausalLM)

    def tester(self):
        return Tester(experts)


class MambaTest(FourModels, unittest.TestCase):
    all_model_classes = (transformers.MambaModel, transformers.MambaForCausalLM)
    has_attentions = False

    def tester(self):
        return Tester(state, has_mask=False)


class T5Test(FourModels, unittest.TestCase):
    all_model_classes = (transformers.T5Model, transformers.T5ForConditionalGeneration)
    is_encoder_decoder = True

    def tester(self):
        return Tester(t5, has_encoder=True)


class BartTest(FourModels, unittest.TestCase):
    all_model_classes = (transformers.BartModel, transformers.BartForConditionalGeneration)
    is_encoder_decoder = True

    def tester(self):
        return Tester(bart, has_encoder=True)
