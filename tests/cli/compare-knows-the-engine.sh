# SPDX-License-Identifier: MIT
# A recording that does not name its engine is compared with the rules of the one that it looks like: a
# program with PyTorch in it is not llama.cpp, nor is one whose model llama.cpp does not load.
mkdir model
cat >model/config.json <<END
{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
 "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
 "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": true}
END
memtally sample-model smollm-135m model.gguf --sparse --quiet
# A library by the name of PyTorch's, as far as a recording knows.
cat >torch.py <<END
import ctypes, os, re, shutil

ctypes.CDLL("libm.so.6")
if not os.path.exists("libtorch_cpu.so"):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        shutil.copy(re.search(r"/\S*/libm\.so\.6", maps.read())[0], "libtorch_cpu.so")
ctypes.CDLL("./libtorch_cpu.so")
END
memtally run -q -o plain -- true
memtally run -q -o torch -- python3 torch.py
memtally run -q -o vllm -- python3 torch.py vllm serve
engine()
{
    memtally compare "$@" --estimate --json | python3 -c '
import json, sys
document = json.load(sys.stdin)
print(document["b"]["engine"], any("does not name its engine" in note for note in document["notes"]))'
}
engine plain --model model.gguf
engine plain --model model
engine torch --model model
engine torch --model model.gguf
memtally compare vllm --model model --estimate 2>&1
exit 0
