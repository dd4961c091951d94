# SPDX-License-Identifier: MIT
# A name is looked up in Ollama's store; so is what a Modelfile is made from.
store=$PWD/store
manifests=$store/manifests/registry.ollama.ai/library/tiny
digest=$(printf '%064d' 7)
mkdir -p "$manifests" "$store/blobs"
memtally sample-model custom "$store/blobs/sha256-$digest" --sparse --quiet --layers 2 --embedding-length 64 \
    --ff-length 128 --heads 4 --vocabulary 512
printf '{"schemaVersion": 2, "layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:%s"}]}' \
    "$digest" > "$manifests/latest"
printf '# a comment\nFROM tiny\n' > Modelfile
export OLLAMA_MODELS="$store"
memtally estimate ollama:tiny --context 256 --engine ollama | grep -E '^(engine|weights)' | sed 's|  *| |g' | cut -d ' ' -f 1-3
memtally estimate Modelfile --context 256 | grep '^weights' | sed 's|  *| |g' | cut -d ' ' -f 1-3
memtally estimate ollama:tinny 2>&1 | sed "s|$store|STORE|"
memtally estimate ollama:tinny 2> errors
echo "exit $?"
memtally estimate ollama:../../x
echo "exit $?" >&2
unset OLLAMA_MODELS
mkdir -p .ollama
mv store .ollama/models
memtally estimate ollama:tiny:latest --context 256 | grep '^weights' | sed 's|  *| |g' | cut -d ' ' -f 1-3
mkdir elsewhere
for from in ./missing.gguf ../missing.gguf missing.gguf tinny; do
    echo "FROM $from" > elsewhere/Modelfile
    memtally estimate elsewhere/Modelfile 2>&1 | sed "s|$HOME|HOME|"
done
