# SPDX-License-Identifier: MIT
# A name on a hub is found where Hugging Face's programs keep what they fetched, and nothing is fetched.
weights() {
    memtally estimate "$@" --context 256 2>&1 | grep -E '^(weights|memtally)' | sed "s|  *| |g; s|$HOME|HOME|g" |
        sed 's|^\(weights [^ ]* [^ ]*\).*|\1|'
}
model=$HOME/.cache/huggingface/hub/models--org--tiny
mkdir -p "$model/refs" "$model/snapshots/0a1b" "$model/snapshots/2c3d"
printf 0a1b > "$model/refs/main"
printf 2c3d > "$model/refs/v2"
memtally sample-model custom "$model/snapshots/0a1b/tiny.gguf" --sparse --quiet --layers 2 --embedding-length 64 \
    --ff-length 128 --heads 4 --vocabulary 512
memtally sample-model custom "$model/snapshots/2c3d/tiny.gguf" --sparse --quiet --layers 4 --embedding-length 64 \
    --ff-length 128 --heads 4 --vocabulary 512
echo 'by its name, its file, its revisions'
weights org/tiny
weights org/tiny/tiny.gguf
weights org/tiny@v2
weights org/tiny/tiny.gguf@2c3d
echo 'what is not there'
weights org/tiny/other.gguf
weights org/tiny@v3
weights org/other
echo 'the cache is elsewhere'
mkdir -p home cache
mv .cache/huggingface/hub home/hub
HF_HOME=$PWD/home weights org/tiny
mv home/hub/models--org--tiny cache/
HF_HOME=$PWD/home HF_HUB_CACHE=$PWD/cache weights org/tiny
HF_HOME=$PWD/home weights org/tiny
mkdir -p xdg/huggingface
mv cache xdg/huggingface/hub
XDG_CACHE_HOME=$PWD/xdg weights org/tiny
echo 'a path goes first'
mkdir org
cp xdg/huggingface/hub/models--org--tiny/snapshots/2c3d/tiny.gguf org/tiny
XDG_CACHE_HOME=$PWD/xdg weights org/tiny
