# SPDX-License-Identifier: MIT
"""Lengths that an engine reads back from the device, in a rehearsal what no kernel computed.

Those to check shapes by are those that the shapes have: FlashInfer keeps the total length of a batch's queries
when it plans and compares it with the queries that it is given. Those that decide a size are computed on the host,
of what the engine itself copied to the device. How many tokens a request got is what the engine's host knows without
the device: one each, where its prompt is through.
"""

from ..watch import hooks

# Module: its methods that read a length, and the attribute that they keep it in.
KEEPERS = {
    "flashinfer.prefill": (
        [
            f"{wrapper}.{method}"
            for wrapper in ("BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper")
            for method in ("plan", "begin_forward")
        ],
        "_qo_indptr_last",
    ),
}

# Module: its functions of one small tensor of integers whose result is as long as their sum.
OF_LENGTHS = {
    "vllm.v1.attention.backends.flex_attention": ["_offsets_to_doc_ids_tensor"],
}

# Module: its methods of a runner and a batch whose last two results are how many tokens each request got, and how many
# drafts were refused.
OF_TOKENS = {
    "vllm.v1.worker.gpu.model_runner": ["GPUModelRunner.sample"],
}


class Any(int):
    """A number that is as large as the one that it is compared with."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = int.__hash__


def _any_length(attribute):
    def make(function):
        def plan(self, *args, **kwargs):
            result = function(self, *args, **kwargs)
            if hasattr(self, attribute):
                setattr(self, attribute, Any(getattr(self, attribute)))
            return result

        return plan

    return make


def on_host(function):
    """What is on the device is read back: the driver has what was copied there."""

    def call(offsets):
        return function(offsets.cpu()).to(offsets.device) if offsets.is_cuda else function(offsets)

    return call


def tokens_of(runner, batch):
    """How many tokens a pass gives each request of a batch of vLLM's second runner, and how many drafts it refuses: of a
    prompt that goes on in the next pass none, else one."""
    states = runner.req_states
    requests = batch.idx_mapping_np
    through = states.num_computed_prefill_tokens[requests] + batch.num_scheduled_tokens[: len(requests)]
    ends = through >= states.prefill_len.np[requests]
    logits = batch.cu_num_logits_np[1 : len(requests) + 1] - batch.cu_num_logits_np[: len(requests)]
    return ends * 1, ends * (logits - 1)


def _counted(trace):
    def make(function):
        def sample(runner, hidden_states, batch, *args, **kwargs):
            result = function(runner, hidden_states, batch, *args, **kwargs)
            try:
                for there, here in zip(result[-2:], tokens_of(runner, batch)):
                    there.copy_(there.new_tensor(here, device="cpu"))
            except Exception as error:
                trace.failed("tokens that requests get", error)
            return result

        return sample

    return make


def start(watch):
    hooks.replace_when_imported(watch, OF_LENGTHS, on_host)
    hooks.replace_when_imported(watch, OF_TOKENS, _counted(watch.trace))
    for name, (methods, attribute) in KEEPERS.items():
        hooks.replace_when_imported(watch, {name: methods}, _any_length(attribute))
