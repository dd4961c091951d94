# SPDX-License-Identifier: MIT
# What lies where a model was meant is named for what it is, with what to do about it.
printf '\211PNG\r\n\032\n\000\000\000\rIHDR' >png.gguf
printf '<!DOCTYPE html>\n<html><head>' >page.gguf
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n' >pointer.gguf
printf 'PK\003\004\024\000\000\000\000\000' >pytorch_model.bin
printf 'Entry not found' >refused.gguf
head -c 4096 /dev/zero >zeros.gguf
header='{"model.embed_tokens.weight":{"dtype":"F16","shape":[64,64],"data_offsets":[0,8192]}}'
{
    printf '\125\000\000\000\000\000\000\000%s' "$header"
    head -c 8192 /dev/zero
} >safetensors.gguf
for file in png.gguf page.gguf pointer.gguf pytorch_model.bin refused.gguf zeros.gguf; do
    memtally estimate "$file" 2>&1
    memtally profile "$file" 2>&1
done
memtally profile safetensors.gguf 2>&1
memtally estimate safetensors.gguf --json | grep 'By its content'
# A part of a model, too.
mkdir folder
cp pointer.gguf folder/model.safetensors
memtally estimate folder 2>&1
exit 0
