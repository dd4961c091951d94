/* SPDX-License-Identifier: MIT */
/* Folders on disk as the cache of Hugging Face and Ollama's store lay them out. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <memtally/model.h>
#include <memtally/model_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG                                                                                     \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":%d,\"hidden_size\":64,"                       \
    "\"num_attention_heads\":8}"

static char root[64];

static int setup(void **state)
{
    (void)state;
    strcpy(root, "/tmp/memtally-folder-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *at(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void make_parents(const char *path)
{
    char text[512];
    snprintf(text, sizeof text, "%s", path);
    for (char *slash = text + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(text, 0777);
        *slash = '/';
    }
}

static void write_file(const char *name, const char *text)
{
    const char *path = at(name);
    make_parents(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_config(const char *name, int layers)
{
    char text[256];
    snprintf(text, sizeof text, CONFIG, layers);
    write_file(name, text);
}

static void write_gguf(const char *name)
{
    const char *path = at(name);
    const struct mt_sample_options options = {.type = MT_WEIGHT_Q4_0, .mode = MT_SAMPLE_SPARSE};
    struct mt_sample_facts facts;
    make_parents(path);
    assert_int_equal(mt_sample_model_write(path, mt_model_shape_at(0), &options, &facts, NULL), 0);
}

/* Layers of what lies there. */
static uint64_t layers_of(const char *name)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    if (mt_model_open(at(name), NULL, &model, &error))
        fail_msg("%s", error.text);
    uint64_t n = mt_model_describe(model)->n_layers;
    mt_model_close(model);
    return n;
}

static void assert_refused(const char *name, int code, const char *words)
{
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    assert_int_equal(mt_model_open(at(name), NULL, &model, &error), code);
    if (!strstr(error.text, words))
        fail_msg("\"%s\" lacks \"%s\"", error.text, words);
}

static void test_a_folder_with_a_config(void **state)
{
    (void)state;
    write_config("m/config.json", 3);
    assert_int_equal(layers_of("m"), 3);
    assert_int_equal(layers_of("m/"), 3);
}

static void test_the_cache_by_its_reference_through_symbolic_links(void **state)
{
    (void)state;
    write_config("models--a--b/blobs/1111", 5);
    write_config("models--a--b/blobs/2222", 6);
    write_file("models--a--b/refs/main", "new");
    write_file("models--a--b/snapshots/old/x", "");
    write_file("models--a--b/snapshots/new/x", "");
    assert_int_equal(symlink("../../blobs/1111", at("models--a--b/snapshots/old/config.json")), 0);
    assert_int_equal(symlink("../../blobs/2222", at("models--a--b/snapshots/new/config.json")), 0);
    assert_int_equal(layers_of("models--a--b"), 6);
    assert_int_equal(layers_of("models--a--b/snapshots/old"), 5);
    assert_int_equal(unlink(at("models--a--b/refs/main")), 0);
    assert_refused("models--a--b", MT_EARG, "2 snapshots");
    assert_int_equal(nftw(at("models--a--b/snapshots/old"), remove_entry, 16, FTW_DEPTH), 0);
    assert_int_equal(layers_of("models--a--b"), 6);
}

static void test_a_reference_cannot_lead_outside(void **state)
{
    (void)state;
    write_config("secret/config.json", 9);
    write_config("models--a--b/snapshots/new/config.json", 2);
    write_file("models--a--b/refs/main", "../../secret");
    assert_int_equal(layers_of("models--a--b"), 2);
}

static void test_several_gguf_models_are_for_the_user_to_choose_from(void **state)
{
    (void)state;
    write_gguf("g/model-q4_0.gguf");
    write_file("g/mmproj-f16.gguf", "GGUF");
    assert_true(layers_of("g") > 0);
    write_file("g/model-q8_0.gguf", "GGUF");
    assert_refused("g", MT_EARG, "2 GGUF models, name one: ");
    write_file("h/m-00002-of-00003.gguf", "GGUF");
    assert_refused("h", MT_ETRUNCATED, "m-00002-of-00003.gguf");
    write_file("e/readme", "");
    assert_refused("e", MT_ENOTFOUND, "holds no GGUF file");
}

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void write_manifest(const char *name, const char *digest, const char *more)
{
    char text[600];
    snprintf(
        text, sizeof text,
        "{\"schemaVersion\":2,\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.license"
        "\",\"digest\":\"sha256:00\"},{\"mediaType\":\"application/vnd.ollama.image.model\","
        "\"digest\":\"%s\"}%s]}",
        digest, more);
    write_file(name, text);
}

#define PROJECTOR ",{\"mediaType\":\"application/vnd.ollama.image.projector\"}"

static void test_a_manifest_of_ollama_leads_to_its_blob(void **state)
{
    (void)state;
    char path[512];
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    write_gguf("store/blobs/sha256-" HEX);
    write_manifest("store/manifests/registry.ollama.ai/library/llama3.2/1b", "sha256:" HEX,
                   PROJECTOR);
    assert_int_equal(mt_ollama_manifest_path(at("store"), "llama3.2:1b", path, sizeof path), 0);
    if (mt_model_open(path, NULL, &model, &error))
        fail_msg("%s", error.text);
    const struct mt_model_description *d = mt_model_describe(model);
    assert_int_equal(d->format, MT_MODEL_GGUF);
    assert_non_null(strstr(d->notes[d->n_notes - 1], "projector"));
    mt_model_close(model);
    assert_int_equal(unlink(at("store/blobs/sha256-" HEX)), 0);
    assert_refused("store/manifests/registry.ollama.ai/library/llama3.2/1b", MT_ENOTFOUND,
                   "blobs/sha256-" HEX);
}

static void test_a_manifest_cannot_lead_outside_of_its_store(void **state)
{
    (void)state;
    const char *name = "store/manifests/h/n/m/t";
    write_manifest(name, "sha256:../../../secret", "");
    assert_refused(name, MT_EFORMAT, "digest");
    write_file(name, "{\"schemaVersion\":2,\"layers\":[]}");
    assert_refused(name, MT_EFORMAT, "application/vnd.ollama.image.model");
    write_file(name, "{\"schemaVersion\":2,\"layers\":3}");
    assert_refused(name, MT_EFORMAT, "array");
}

static void assert_manifest(const char *name, const char *expected)
{
    char path[256] = "";
    int code = mt_ollama_manifest_path("/s", name, path, sizeof path);
    if (!expected)
        assert_int_equal(code, MT_EARG);
    else
        assert_string_equal(path, expected);
}

static void test_names_of_ollama(void **state)
{
    (void)state;
    char small[16];
    assert_manifest("llama3.2", "/s/manifests/registry.ollama.ai/library/llama3.2/latest");
    assert_manifest("llama3.2:1b", "/s/manifests/registry.ollama.ai/library/llama3.2/1b");
    assert_manifest("me/mine:x", "/s/manifests/registry.ollama.ai/me/mine/x");
    assert_manifest("hf.co/me/mine:Q4_K_M", "/s/manifests/hf.co/me/mine/Q4_K_M");
    assert_manifest("host:5000/me/mine", "/s/manifests/host:5000/me/mine/latest");
    assert_manifest("", NULL);
    assert_manifest("a/../b", NULL);
    assert_manifest("a//b", NULL);
    assert_manifest("a/b/c/d", NULL);
    assert_manifest("a:", NULL);
    assert_manifest("a b", NULL);
    assert_int_equal(mt_ollama_manifest_path("/s", "llama3.2", small, sizeof small), MT_ELIMIT);
}

static void assert_from(const char *text, int code, const char *expected)
{
    char from[32] = "";
    assert_int_equal(mt_ollama_modelfile_from(text, strlen(text), from, sizeof from), code);
    assert_string_equal(from, expected);
}

static void test_the_from_line_of_a_modelfile(void **state)
{
    (void)state;
    assert_from("# comment\nFROM ./model.gguf\nPARAMETER x 1\n", 0, "./model.gguf");
    assert_from("  from\t\"llama3.2:1b\" \r\n", 0, "llama3.2:1b");
    assert_from("SYSTEM FROM x\n", MT_ENOTFOUND, "");
    assert_from("FROMAGE brie\n", MT_ENOTFOUND, "");
    assert_from("FROM   \n", MT_EFORMAT, "");
    assert_from("FROM a-name-that-is-longer-than-what-there-is-room-for\n", MT_EFORMAT, "");
    assert_from("SYSTEM \"\"\"\nFROM here\n\"\"\"\nFROM there\n", 0, "there");
    assert_from("SYSTEM \"\"\"one line\"\"\"\nFROM here\n", 0, "here");
    assert_from("", MT_ENOTFOUND, "");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_folder_with_a_config),
        TEST(test_the_cache_by_its_reference_through_symbolic_links),
        TEST(test_a_reference_cannot_lead_outside),
        TEST(test_several_gguf_models_are_for_the_user_to_choose_from),
        TEST(test_a_manifest_of_ollama_leads_to_its_blob),
        TEST(test_a_manifest_cannot_lead_outside_of_its_store),
        cmocka_unit_test(test_names_of_ollama),
        cmocka_unit_test(test_the_from_line_of_a_modelfile),
    };
    return RUN_TESTS(tests);
}
