/* SPDX-License-Identifier: MIT */
/* What a file is, by its first bytes: a model, or something else in a model's place. Reads no
 * file. */
#include "model/model.h"

#include <ctype.h>
#include <string.h>

/* A file that begins with these bytes, from `offset` on. */
struct magic {
    size_t offset;
    const char *bytes;
    size_t length;
    struct mt_file_kind kind;
};

#define CONVERT_HF "convert its folder with llama.cpp's convert_hf_to_gguf.py where GGUF is wanted"
#define PYTORCH    "name the folder with its config.json, or save it as safetensors"
#define UNPACK     "unpack it"
#define OLD_GGML                                                                                   \
    "llama.cpp has read GGUF since August 2023; its convert_llama_ggml_to_gguf.py makes one of it"

#define AT(offset, bytes, what, advice)                                                            \
    {                                                                                              \
        offset, bytes, sizeof bytes - 1,                                                           \
        {                                                                                          \
            what, advice                                                                           \
        }                                                                                          \
    }

static const struct magic magics[] = {
    AT(0, "GGUF", "a GGUF file", NULL),
    AT(0, "version https://git-lfs.github.com/spec", "a pointer of git-lfs",
       "fetch the file that it stands for with 'git lfs pull' in the repository"),
    AT(0, "\x89PNG\r\n", "a PNG image", NULL),
    AT(0, "\xff\xd8\xff", "a JPEG image", NULL),
    AT(0, "GIF8", "a GIF image", NULL),
    AT(0, "%PDF-", "a PDF document", NULL),
    AT(0, "PK\3\4", "a zip archive, as PyTorch writes its checkpoints", PYTORCH),
    AT(0, "\x80\2", "a pickle, as PyTorch once wrote its checkpoints", PYTORCH),
    AT(0, "\x89HDF\r\n", "an HDF5 file, as Keras writes its weights", NULL),
    AT(0, "\x1f\x8b", "packed with gzip", UNPACK),
    AT(0, "\x28\xb5\x2f\xfd", "packed with zstd", UNPACK),
    AT(0, "BZh", "packed with bzip2", UNPACK),
    AT(0,
       "\xfd"
       "7zXZ",
       "packed with xz", UNPACK),
    AT(0, "7z\xbc\xaf", "a 7-Zip archive", UNPACK),
    AT(257, "ustar", "a tar archive", UNPACK),
    AT(0, "lmgg", "a GGML file, older than GGUF", OLD_GGML),
    AT(0, "fmgg", "a GGML file, older than GGUF", OLD_GGML),
    AT(0, "tjgg", "a GGML file, older than GGUF", OLD_GGML),
    AT(0, "algg", "an adapter of GGML, older than GGUF", OLD_GGML),
    AT(4, "TFL3", "a TensorFlow Lite model", NULL),
    AT(0,
       "\x7f"
       "ELF",
       "a program", NULL),
    AT(0, "#!", "a script", NULL),
    AT(0, "MEMTALLY", "a recording of memtally", "show it with 'memtally report'"),
    AT(0, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "full of zeros",
       "fetch the file again: such a download never came, or was written over"),
};

static const struct mt_file_kind safetensors = {"a safetensors file", CONVERT_HF};
static const struct mt_file_kind html = {
    "an HTML page",
    "fetch the file itself: on huggingface.co its address has /resolve/ where the page's has "
    "/blob/"};
static const struct mt_file_kind json = {"JSON", NULL};

static int begins_page(const char *text, size_t length)
{
    static const char *const begins[] = {"<!doctype html", "<html", "<head", "<?xml"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (length >= strlen(begins[i]) && strncasecmp(text, begins[i], strlen(begins[i])) == 0)
            return 1;
    return 0;
}

static size_t skip_blanks(const char *text, size_t length)
{
    size_t at = length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < length && isspace((unsigned char)text[at]))
        at++;
    return at;
}

const struct mt_file_kind *mt_file_kind_of(const void *bytes, size_t length)
{
    const char *text = bytes;
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (length >= magics[i].offset + magics[i].length &&
            memcmp(text + magics[i].offset, magics[i].bytes, magics[i].length) == 0)
            return &magics[i].kind;
    if (length > 8 && text[8] == '{' && text[7] == 0 && text[6] == 0)
        return &safetensors;
    size_t at = skip_blanks(text, length);
    if (begins_page(text + at, length - at))
        return &html;
    return at < length && (text[at] == '{' || text[at] == '[') ? &json : NULL;
}
