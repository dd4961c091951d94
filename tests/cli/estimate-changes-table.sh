# SPDX-License-Identifier: MIT
# The table of what differs between two versions: its rows add up to its last line, and that to the two estimates.
cat >config.json <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
 "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256,
 "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": false}
END
card="--device H100-80GB --context 16384 --batched-tokens 8192 --sequences 256 --eager"
memtally estimate config.json --changes vllm@0.19.1..0.33.0 $card >table
memtally estimate config.json --changes vllm@0.19.1..0.33.0 $card --json >document
memtally estimate config.json --changes vllm@0.19.1..0.33.0 $card --format csv >rows
python3 - <<'END'
import csv
import json
import re

table = open("table").read()
document = json.load(open("document"))
rows = list(csv.DictReader(open("rows", newline="")))
moves = [one for one in document["changes"] if one["change_tokens"] or any(place["change_bytes"] for place in one["places"])]
shown = re.findall(r"^(\w+) +(\d\S+) +(\S+ \S+) +(\S+)$", table, re.MULTILINE)
print("rows", len(shown) > 1, [(rule, since) for rule, since, _, _ in shown] == [(one["rule"], one["since"]) for one in moves])
print("their tokens", [int(tokens) for _, _, _, tokens in shown] == [one["change_tokens"] for one in moves])
device = [sum(place["change_bytes"] for place in one["places"]) for one in moves]
print("their bytes", [size for _, _, size, _ in shown] == [f"{n / 2**20:+.2f} MiB" if n else "0 B" for n in device])
together = re.search(r"^together +(\S+) MiB +(\S+)$", table, re.MULTILINE)
print("together", together.group(1) == f"{sum(device) / 2**20:+.2f}", int(together.group(2)) == sum(one["change_tokens"] for one in moves))
before, after = (document[side]["pool_tokens"] for side in ("before", "after"))
print("tokens", f"tokens       {before} -> {after}\n" in table, after - before == sum(one["change_tokens"] for one in moves) != 0)
print("the others", f"{len(document['changes']) - len(moves)} other rules differ" in table)
print("as CSV each change has each place:", len(rows) == sum(len(one["places"]) for one in document["changes"]))
END
