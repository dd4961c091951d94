# SPDX-License-Identifier: MIT
# The table, with a bar for each device; other policies beside it; pins; the words of other engines.
memtally sample-model llama-3.1-8b model.gguf --sparse --quiet --type q4_k
memtally place model.gguf --device 4GiB,4GiB --context 8192 --compare
memtally place model.gguf --device 6GiB,6GiB --context 4096 --pin 'blk\.0\.=1' | tail -1
memtally place model.gguf --device 3GiB --context 4096 | tail -1
memtally place model.gguf --engine ollama --device 16GiB | tail -1
cat > config.json <<END
{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
 "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16", "max_position_embeddings": 8192,
 "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": false}
END
for engine in vllm@0.33.0 sglang@0.5.23 exllamav3 transformers@4.57.6; do
    memtally place config.json --engine "$engine" --device 24GiB,16GiB --objective balance --context 2048 | tail -1
done
# Each product of tensor and pipeline parallel sizes, with the copies that the cards hold.
memtally place config.json --engine vllm@0.33.0 --device 4x24GiB --context 2048 | grep -A9 'tensor parallel'
# A picture, and a page with it; both are well-formed, whatever the model is called.
mv model.gguf 'a<b>&c.gguf'
memtally place 'a<b>&c.gguf' --device 4GiB,4GiB --format svg -o picture.svg
memtally place 'a<b>&c.gguf' --device 4GiB,4GiB --format html -o page.html
python3 - <<END
from html.parser import HTMLParser
from xml.etree import ElementTree
picture = ElementTree.parse("picture.svg").getroot()
bars = [one for one in picture.iter("{http://www.w3.org/2000/svg}rect") if one.get("height") == "26"]
print(len(bars), picture[0].text)
text = []
parser = HTMLParser()
parser.handle_data = text.append
parser.feed(open("page.html", encoding="utf-8").read())
print("a<b>&c.gguf" in "".join(text))
END
# Links, counts of experts, a host that is too small.
memtally place 'a<b>&c.gguf' --device 3x3GiB --context 8192 --link gpu0-gpu2=nvlink | grep -A1 path
memtally sample-model qwen3-30b-a3b moe.gguf --sparse --quiet --type q4_k
for layer in 0 1; do for expert in 0 1 2 3; do echo "$layer,$expert,$((8 - expert))"; done; done > counts.csv
memtally place moe.gguf --device 2x24GiB --context 4096 --compare --expert-traffic counts.csv | grep -A6 policy
memtally place config.json --engine transformers@4.57.6 --device 8GiB --host 4GiB --context 1024 | sed -n 1,9p
memtally place moe.gguf --device H100-80GB,RTX4090 --context 4096 --objective speed | grep -A2 speed
# Without copies of its inputs llama.cpp needs less of each card.
memtally place 'a<b>&c.gguf' --device 4GiB,4GiB --no-copies | tail -1
# Each stage has a layer, though the embedding is larger than both.
sed 's/"num_hidden_layers": 32/"num_hidden_layers": 2/; s/128256/512000/' config.json > two.json
memtally place two.json --engine vllm@0.33.0 --device 2x24GiB --objective balance --context 2048 | tail -1
