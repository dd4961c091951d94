# SPDX-License-Identifier: MIT
# Types by contexts at once, each point the same as an estimate by itself.
mkdir tmp
export TMPDIR=$PWD/tmp
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet
cat >config.json <<END
{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
 "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
 "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": true}
END
memtally estimate model.gguf --matrix --device 20GiB
echo "exit $?"
memtally estimate config.json --matrix --device 2GiB -f csv | cut -d , -f 1-3
memtally estimate config.json --matrix --engine vllm --device 8GiB -c 8192 --json |
    python3 -c 'import json, sys
for point in json.load(sys.stdin)["points"]:
    print(point["type"], point["context_tokens"], point["place"], point["verdict"])'
memtally estimate model.gguf --matrix --device 1MiB >out
echo "exit $?"
memtally estimate model.gguf config.json --matrix -c 4096 | tail -n 2 | cut -d ' ' -f 1
# A file that cannot be read is a row with its error; the others are answered. Where none can be read,
# that is the answer.
printf '<html>' >bad.gguf
memtally estimate bad.gguf model.gguf --matrix -d 20GiB -c 4096
echo "exit $?"
memtally estimate bad.gguf model.gguf --matrix -d 1MiB -c 4096 --json >out
echo "exit $?"
python3 -c 'import json
of = json.load(open("out"))
print([point["verdict"] for point in of["points"]], of["failures"])'
memtally estimate bad.gguf model.gguf --matrix -d 20GiB -c 4096 -f csv
memtally estimate bad.gguf nowhere.gguf --matrix 2>&1
echo "exit $?"
memtally estimate model.gguf --matrix --engine-path /usr/bin 2>&1
memtally estimate model.gguf --matrix --best-quant 2>&1
memtally estimate model.gguf --matrix --engine llama.cpp@new 2>&1
python3 - <<'END'
import json, subprocess


def said(*words):
    return json.loads(subprocess.run(["memtally", "estimate", *words, "--json"], capture_output=True, check=False).stdout)


points = said("model.gguf", "--matrix", "--device", "20GiB")["points"]
same = 0
for point in points:
    alone = said("model.gguf", "--device", "20GiB", "-c", str(point["context_tokens"]), "--kv-type", point["type"])
    place = next(place for place in alone["places"] if place["place"] == point["place"])
    assert all(point[key] == place[key] for key in ("total_allocated_bytes", "total_low_bytes", "total_high_bytes")), point
    assert point["verdict"] == alone["verdict"], point
    same += 1
print(same, "of", len(points), "points are as by themselves")
END
ls tmp
