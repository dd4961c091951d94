#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch and transformers on pretended devices: two of them, one that runs out, several processes, a small model."""

import functools
import json

import tap
import torch_program

MIB = 1 << 20
GIB = 1 << 30


@functools.cache
def rehearsed(program, device, settings=""):
    """What a program of the folder wrote down, and the document of its rehearsal."""
    return torch_program.rehearse(program, device, statuses=(0, 1), allocator=settings, may_die=True)


def figures(program, device, settings=""):
    said, document = rehearsed(program, device, settings)
    assert said is not None, document["rehearsal"]
    return said


def devices():
    return figures("devices.py", "2GiB,2GiB")


def test_each_device_has_its_own_memory():
    both = devices()["both"]
    assert both["on the first"] == [100 * MIB, 0] and both["copied"] == [100 * MIB, 100 * MIB], both
    assert both["by the current device"] == 150 * MIB and both["driver"] == [100 * MIB, 150 * MIB], both
    assert both["where"] == ["cuda:0", "cuda:1", "cuda:1"] and both["values"] == [5, 6, 7], both


def in_words(size):
    """As PyTorch writes sizes in its errors."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"


def test_a_device_of_2_gib_runs_out_and_pytorch_says_so():
    """As many pieces of 256 MiB as fit into what the context leaves; the figures of the message are those of the driver."""
    said = devices()["out of memory"]
    held = said["pieces"] * 256 * MIB
    assert said["total"] == 2 * GIB and said["pieces"] == said["free"] // (256 * MIB), said
    assert said["free then"] == said["free"] - held and said["count"] == 1, said
    words = ["Tried to allocate 256.00 MiB.", "GPU 0 has a total capacity of 2.00 GiB",
             f"of which {in_words(said['free then'])} is free",
             f"this process has {in_words(2 * GIB - said['free then'])} memory in use",
             f"{in_words(held)} is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated"]
    for one in words:
        assert one in said["message"], (one, said["message"])


def test_memory_is_there_again_after_it_ran_out():
    said = devices()["out of memory"]
    assert said["after a free"] and said["free at last"] == said["free"], said
    reserved, asked = said["cache given up for room"]
    assert asked <= reserved < asked + 2 * MIB, said
    assert "512.00 MiB allowed" in said["fraction"], said["fraction"]


def test_a_segment_that_expands_is_used_again_where_others_are_not():
    """100 MiB, freed, then 150: a segment cannot grow, so that both are there; one that can has 8 pages of 20 MiB."""
    said = devices()
    assert said["by segments"] == [[100 * MIB] * 2, [250 * MIB] * 2, [0, 0]], said["by segments"]
    assert said["by expandable segments"] == [[100 * MIB] * 2, [160 * MIB] * 2, [0, 0]], said["by expandable segments"]


def test_a_pool_of_the_programs_own_has_its_segments():
    assert devices()["pool"] == {"sizes": [30 * MIB], "held": 30 * MIB}, devices()["pool"]


def test_the_streams_pool_counts_what_it_gives():
    said = figures("streamed.py", "2GiB", "backend:cudaMallocAsync")
    assert said["backend"] == "cudaMallocAsync" and said["held"] >= said["allocated"] == 100 * MIB, said
    assert said["freed"] == 0 == said["given back"] and said["pieces"] == said["free"] // (256 * MIB), said


def test_a_program_that_runs_out_is_said_to():
    """It asks for 1 GiB and then for 3, of a device of 2."""
    said, document = rehearsed("alone.py", "2GiB")
    refused = document["rehearsal"]["refused"]
    assert said is None and document["verdict"] == "CANNOT" and document["rehearsal"]["outcome"] == "ran out", document
    assert refused["place"] == "gpu:0" and refused["asked_bytes"] == 3 * GIB, refused
    assert refused["free_bytes"] < GIB and refused["missing_bytes"] == 3 * GIB - refused["free_bytes"], refused


def model():
    return figures("model.py", "H100-80GB")


def test_a_models_weights_are_the_sum_of_its_shapes():
    """Llama of 4 layers, 1024 wide, 16 heads of 64 and 8 of keys and values, in bf16; the rotation's 32 frequencies are
    f32, and transformers 5 has a second copy of them (modeling_llama.py, original_inv_freq)."""
    layer = 1024 * (1024 + 512 + 512 + 1024) + 3 * 1024 * 2816 + 2 * 1024
    copies = 1 if model()["transformers"] < 5 else 2
    assert model()["weights"] == 2 * (2 * 32000 * 1024 + 4 * layer + 1024) + copies * 32 * 4, model()
    assert model()["weights"] <= model()["allocated"] <= model()["weights"] + 8 * MIB, model()


def test_a_forward_pass_leaves_logits_and_cache():
    said, cache = model(), 2 * 4 * 8 * 64 * (4 * 512) * 2
    assert said["logits"] == [4, 512, 32000] and said["cached"] == cache == said["cache"], said
    assert said["logits and cache"] == cache + 4 * 512 * 32000 * 2 and said["left"] == 0, said


def test_generate_ends_and_has_cached_all_but_the_last_token():
    said = model()
    assert said["generated"] == [4, 512 + 16], said
    assert said["generated cache"] == 2 * 4 * 8 * 64 * (4 * (512 + 15)) * 2, said


def test_a_search_in_beams_goes_on_to_its_full_length_and_says_so():
    """4 sequences of 4 beams; the cache of each has the prompt's 32 tokens and all new ones but the last."""
    said, notes = model(), rehearsed("model.py", "H100-80GB")[1]["notes"]
    assert said["searched"] == [4, 32 + 16], said
    assert said["searched cache"] == 2 * 4 * 8 * 64 * (4 * 4 * (32 + 15)) * 2, said
    assert any("search in beams" in note for note in notes), notes


def test_torchrun_ends_as_its_ranks_do_and_each_has_told_all():
    """torchrun makes 1 of the second rank's status 3. What PyTorch reserved is told apart to the last byte."""
    ranks, document = torch_program.rehearse_ranks("ranks.py", "H100-80GB,H100-80GB", statuses=(1, 3))
    assert document["rehearsal"]["exit_status"] == 1, document["rehearsal"]
    for rank, said in enumerate(ranks):
        assert said["sum"] == 1 + 2 and said["reserved"] >= said["held"] == 64 * MIB, said
        (place,) = [place for place in document["places"] if place["place"] == f"gpu:{rank}"]
        told = {row["category"]: row for row in place["rows"] if row["category"] not in ("context", "communication")}
        assert sum(row["allocated_bytes"] for row in told.values()) == said["reserved"], (told, said)
        assert "inferred" not in json.dumps(told), told


def test_buckets_of_gradients_that_are_made_anew_take_the_place_of_the_first():
    """Four layers of 2048 x 2048 floats, and buckets of the same size; that both may be there for a while is told."""
    size = 4 * 2048 * 2048 * 4
    ranks, document = torch_program.rehearse_ranks("gradients.py", "24GiB,24GiB")
    for said in ranks:
        assert said["before"] == 2 * size and said["after"] == said["after"][:1] * 3, said
    assert any("holds up to 64.00 MiB more" in note for note in document["notes"]), document["notes"]


def rows(document, place):
    """Bytes by category, of what PyTorch's allocator holds."""
    (found,) = [one for one in document["places"] if one["place"] == place]
    return {row["category"]: row["allocated_bytes"] for row in found["rows"] if row["category"] != "context"}


def counted(document, place):
    (found,) = [one for one in document["rehearsal"]["allocators"] if one["place"] == place]
    return [found["max_memory_allocated"], found["max_memory_reserved"]]


def test_the_most_that_pytorch_counts_is_what_the_program_prints():
    """The first device's is what it prints at its end. The second's count is started anew, and its largest one is told."""
    said, document = rehearsed("peaks.py", "2GiB,2GiB")
    assert counted(document, "gpu:0") == said["first"], (said, document["rehearsal"]["allocators"])
    assert counted(document, "gpu:1") == said["before"] > said["after"], (said, document["rehearsal"]["allocators"])


def test_tensors_that_were_gone_before_the_last_one_came_are_no_cache():
    """1 GiB beside 64 MiB of weights. Of what was kept after it the 64 MiB lie where it was, and 4,000 bytes in the
    second segment of the allocator's least size, 2 MiB."""
    said, document = rehearsed("peaks.py", "2GiB,2GiB")
    held = rows(document, "gpu:0")
    assert said["first"] == [GIB + 64 * MIB, GIB + 64 * MIB + 2 * MIB], said
    assert held == {"activations": GIB, "weights": 64 * MIB + 4096, "cached": 2 * MIB - 4096}, held


def test_workspaces_of_cublas_do_not_take_the_place_of_gradients():
    """Gradients are as large as weights, in the allocator's units of 512 bytes. A workspace has two times what cuBLAS
    recommends for an H100 at most, 32 MiB. All that was not cached is what PyTorch counts, and perhaps the gradient of a
    bias, which may be made when the last workspace is gone."""
    said, document = rehearsed("layers.py", "H100-80GB")
    held, size = rows(document, "gpu:0"), 8 * (2048 * 2048 + 2048) * 4
    assert held["weights"] == held["training"] == size and 0 < held["workspace"] <= 64 * MIB, (said, held)
    assert sum(held.values()) - held["cached"] - said["allocated"] in (0, 2048 * 4), (said, held)
    assert sum(held.values()) == said["reserved"], (said, held)
    assert counted(document, "gpu:0") == [said["allocated"], said["reserved"]], (said, document["rehearsal"]["allocators"])


def processes():
    return figures("processes.py", "H100-80GB")


def context_bytes(said):
    """What is there of one process when all others have ended, without what PyTorch reserved."""
    return said["alone"] - said["own"]


def test_each_process_takes_a_context():
    """Six processes, of which three hold 512 MiB each."""
    said = processes()
    assert said["taken"] == [512 * MIB] * 3 and context_bytes(said) > 0, said
    assert said["all"] == 6 * context_bytes(said) + said["own of all"] + 3 * 512 * MIB, said


def test_what_ends_gives_its_share_back_however_it_ends():
    said = processes()
    for how, code in (("exit", 3), ("abort", -6), ("kill", -9)):
        assert said["endings"][how] == {"code": code, "given back": 512 * MIB + context_bytes(said)}, (how, said)


def test_a_tensor_that_is_sent_is_there_once():
    said = processes()["sent"]
    assert said["made"] == 256 * MIB == said["shared"] and said["codes"] == [0, 0], said
    assert said["opened"][0] == 256 * MIB, said


def test_a_child_forked_after_cuda_is_refused_and_takes_nothing_with_it():
    said = processes()["forked"]
    assert "Cannot re-initialize CUDA in forked subprocess" in said["words"], said
    assert said["after"] == said["before"] and said["held"] == 64 * MIB, said


if __name__ == "__main__":
    tap.main(globals())
