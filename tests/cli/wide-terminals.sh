# SPDX-License-Identifier: MIT
# A table uses the columns that a terminal has, running text at most 100 of them; without a terminal,
# and in a file, there are 80.
mkdir -p a-folder-with-a-rather-long-name-for-a-model-of-eight-billion-parameters
model=a-folder-with-a-rather-long-name-for-a-model-of-eight-billion-parameters/llama-3.1-8b-instruct.gguf
memtally sample-model llama-3.1-8b "$model" --sparse --quiet
widest()
{
    sed '/^Command line/,/^ *\r*$/d' | python3 -c 'import sys; print(max(len(line.rstrip()) for line in sys.stdin))'
}
for columns in 80 130 300; do
    printf '%s columns: ' "$columns"
    script -qec "stty cols $columns; memtally estimate --best-quant $model $model -d 24GiB; memtally help estimate" \
        /dev/null </dev/null >shown
    widest <shown
    printf 'names whole: '
    grep -c "$model  " shown
done
# Six contexts do not go beside each other: further ones stand below.
memtally sample-model llama-3.1-8b eight.gguf --sparse --quiet
script -qec "stty cols 40; memtally estimate eight.gguf --matrix -d 24GiB" /dev/null </dev/null >shown
printf '40 columns, a matrix: '
[ "$(widest <shown)" -le 40 ] && grep -c '^q8_0 ' shown
printf 'no terminal: '
memtally estimate --best-quant "$model" "$model" -d 24GiB | widest
exit 0
