# SPDX-License-Identifier: MIT
"""Flags of a server, as vLLM's documentation has them."""

import dataclasses


@dataclasses.dataclass
class EngineArgs:
    model: str = ""
    load_format: str = "auto"
    skip_tokenizer_init: bool = False
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    enforce_eager: bool = False

    @staticmethod
    def add_cli_args(parser):
        for field in dataclasses.fields(EngineArgs):
            flag = "--" + field.name.replace("_", "-")
            if isinstance(field.default, bool):
                parser.add_argument(flag, action="store_true")
            else:
                kind = type(field.default) if field.default is not None else int
                parser.add_argument(flag, type=kind, default=field.default)
        return parser

    @classmethod
    def from_cli_args(cls, args):
        return cls(**{field.name: getattr(args, field.name) for field in dataclasses.fields(cls)})
