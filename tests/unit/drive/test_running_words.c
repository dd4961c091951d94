/* SPDX-License-Identifier: MIT */
/* What a server's words mean in bytes. Expected figures are sums of the model's shape by hand: it
 * has 4 layers of 256, 4 heads of 64 of which 2 keep keys and values, 512 inside, 4096 tokens. */
#include "tests/support/unit.h"

#include <memtally/model.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drive/running.h"

#define MIB       ((uint64_t)1 << 20)
#define TOKEN     (4 * 2 * 2 * 64 * 2u) /* layers, keys and values, heads, head, bytes */
#define WEIGHTS   (2 * (2 * 4096 * 256 + 4 * PER_LAYER + 256u))
#define PER_LAYER (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256)
#define ROTARY    (2 * 4096 * 64u) /* vLLM keeps the sines and cosines of all positions */

static char folder[] = "/tmp/memtally-words-XXXXXX"; /* of a config.json */
static char gguf[64];                                /* beside it */
static char config[64];

static int make_models(void **state)
{
    (void)state;
    const struct mt_model_shape shape = {.layers = 4,
                                         .embedding_length = 256,
                                         .ff_length = 512,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .vocabulary = 4096};
    const struct mt_sample_options options = {.mode = MT_SAMPLE_SPARSE};
    struct mt_sample_facts facts;
    if (!mkdtemp(folder))
        return -1;
    snprintf(gguf, sizeof gguf, "%s.gguf", folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    FILE *file = fopen(config, "w");
    if (!file)
        return -1;
    fputs("{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], "
          "\"hidden_size\": 256, \"num_hidden_layers\": 4, \"intermediate_size\": 512, "
          "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 4096, "
          "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", "
          "\"max_position_embeddings\": 4096}",
          file);
    fclose(file);
    return mt_sample_model_write(gguf, &shape, &options, &facts, NULL);
}

static int remove_models(void **state)
{
    (void)state;
    unlink(gguf);
    unlink(config);
    return rmdir(folder);
}

/* A tally of what was seen: libraries, weights that are mapped, and devices of which no more than
 * the size is known; or nothing of the mappings. */
struct seen {
    const char *library;
    const char *driver;
    int is_hidden;
    int has_ended; /* before it could be looked at */
    uint64_t mapped_weights;
    size_t n_devices;
    const char *devices[4];
    uint64_t device_bytes;
};

struct tally {
    struct mt_tally tally;
    struct mt_tally_place places[5];
    struct mt_tally_row rows[2];
    struct mt_tally_detail libraries[2];
    struct mt_tally_process process;
};

static void make_tally(struct tally *made, const struct seen *seen)
{
    *made = (struct tally){.tally = {.places = made->places,
                                     .n_places = 1 + seen->n_devices,
                                     .processes = &made->process,
                                     .n_processes = 1}};
    made->process.n_places = !seen->has_ended;
    made->process.picture_time_ns = seen->is_hidden || seen->has_ended ? MT_UNKNOWN : 0;
    made->libraries[0].name = seen->library;
    made->libraries[1].name = seen->driver;
    made->rows[0] = (struct mt_tally_row){.category = MT_CATEGORY_RUNTIME,
                                          .resident_bytes = 64 * MIB,
                                          .n_details = !seen->library ? 0
                                                       : seen->driver ? 2
                                                                      : 1,
                                          .details = made->libraries};
    made->rows[1] = (struct mt_tally_row){.category = MT_CATEGORY_WEIGHTS,
                                          .resident_bytes = seen->mapped_weights};
    made->places[0] = (struct mt_tally_place){
        .place = "host", .rows = made->rows, .n_rows = seen->mapped_weights ? 2 : 1};
    for (size_t i = 0; i < seen->n_devices; i++)
        made->places[1 + i] = (struct mt_tally_place){.place = seen->devices[i],
                                                      .total_resident_bytes = seen->device_bytes,
                                                      .capacity_bytes = seen->device_bytes * 2};
}

static struct mt_drive_words words_on(const struct mt_drive_running *running, const char *model,
                                      const struct seen *seen)
{
    struct tally made;
    struct mt_drive_words words;
    struct mt_drive_running_header header = {0};
    make_tally(&made, seen);
    if (model)
        mt_drive_running_header_open(NULL, model, &header);
    mt_drive_running_words(running, &header, &made.tally, &words);
    mt_drive_running_header_close(&header);
    for (size_t i = 0; i < words.n; i++)
        assert_true(words.items[i].provenance != MT_PROVENANCE_EXACT);
    return words;
}

/* The sum of the words on a category; MT_UNKNOWN where the word is that nobody knows. */
static uint64_t bytes_of(const struct mt_drive_words *words, const char *place,
                         enum mt_category category, enum mt_provenance provenance)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < words->n; i++) {
        const struct mt_tally_word *word = &words->items[i];
        if (word->category != category || strcmp(word->place, place) != 0)
            continue;
        if (word->bytes == MT_UNKNOWN)
            return MT_UNKNOWN;
        assert_int_equal(word->provenance, provenance);
        bytes += word->bytes;
    }
    return bytes;
}

static struct mt_drive_running server(const char *engine)
{
    struct mt_drive_running running = {.ranks = 1};
    snprintf(running.engine, sizeof running.engine, "%s", engine);
    snprintf(running.rules, sizeof running.rules, "%s", engine);
    return running;
}

static void assert_unknown(const struct mt_drive_words *words, const char *place)
{
    assert_true(bytes_of(words, place, MT_CATEGORY_WEIGHTS, 0) == MT_UNKNOWN);
    assert_true(bytes_of(words, place, MT_CATEGORY_KV_CACHE, 0) == MT_UNKNOWN);
    assert_true(bytes_of(words, place, MT_CATEGORY_ACTIVATIONS, 0) == MT_UNKNOWN);
}

/* That nobody knows of any of the places, which are ended by NULL, and of no other one. */
static void assert_unknown_in(const struct mt_drive_words *words, const char *const *places)
{
    size_t n = 0;
    for (; places[n]; n++)
        assert_unknown(words, places[n]);
    assert_int_equal(words->n, 3 * n);
}

static void test_of_a_program_that_computes_models_all_is_unknown(void **state)
{
    (void)state;
    static const struct {
        struct seen seen;
        const char *places[4];
        const char *why;
    } cases[] = {
        {{.library = "libz.so"}, {NULL}, ""},
        {{.library = "libz.so", .driver = "libcuda.so.1"}, {NULL}, "has of that was not seen"},
        {{.library = "libtorch_cpu.so"}, {"host"}, "a model or a library that computes models"},
        {{.library = "onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so"},
         {"host"},
         "a model or a library that computes models"},
        /* It may have a model on the host and on a device that nobody measured. */
        {{.library = "libtorch_cpu.so", .driver = "libcuda.so.1"},
         {"host", "gpu:?"},
         "a model or a library that computes models"},
        {{.library = "libllama.so", .n_devices = 2, .devices = {"gpu:0", "gpu:1"}},
         {"host", "gpu:0", "gpu:1"},
         "a model or a library that computes models"},
        {{.is_hidden = 1}, {"host"}, "not all of its mappings were seen"},
        {{.has_ended = 1}, {NULL}, ""},
        /* Whatever it is, it has some of a device. */
        {{.library = "libz.so", .n_devices = 1, .devices = {"gpu:0000:00:02.0/host"}},
         {"gpu:0000:00:02.0/host"},
         "and not what for"},
    };
    const struct mt_drive_running nobody = {.ranks = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_drive_words words = words_on(&nobody, NULL, &cases[i].seen);
        assert_unknown_in(&words, cases[i].places);
        assert_true(*cases[i].why ? strstr(words.why, cases[i].why) != NULL : !*words.why);
    }
}

static void test_mapped_weights_of_the_host_tell_nothing_of_a_device(void **state)
{
    (void)state;
    const struct mt_drive_running nobody = {.ranks = 1};
    struct mt_drive_words words = words_on(
        &nobody, NULL,
        &(struct seen){
            .library = "libllama.so", .mapped_weights = MIB, .n_devices = 1, .devices = {"gpu:0"}});
    assert_unknown(&words, "gpu:0");
    assert_true(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, 0) == MT_UNKNOWN);
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_WEIGHTS, 0), 0);
}

static void test_tokens_of_a_pool_times_the_bytes_of_one(void **state)
{
    (void)state;
    struct mt_drive_running vllm = server("vllm");
    snprintf(vllm.version, sizeof vllm.version, "0.11.0");
    vllm.context_tokens = 512;
    vllm.cache_tokens = 16000;
    const struct {
        struct seen seen;
        const char *place;
    } cases[] = {
        {{0}, "host"},
        {{.library = "libcuda.so.1"}, "gpu:?"},
        {{.library = "libcuda.so.1", .n_devices = 1, .devices = {"gpu:0"}}, "gpu:0"},
        /* What a driver holds of the machine's memory for a device is none. */
        {{.library = "libcuda.so.1", .n_devices = 1, .devices = {"gpu:0000:00:02.0/host"}},
         "gpu:?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mt_drive_words words = words_on(&vllm, folder, &cases[i].seen);
        assert_int_equal(
            bytes_of(&words, cases[i].place, MT_CATEGORY_KV_CACHE, MT_PROVENANCE_DERIVED),
            16000 * TOKEN);
        assert_int_equal(
            bytes_of(&words, cases[i].place, MT_CATEGORY_WEIGHTS, MT_PROVENANCE_DERIVED),
            WEIGHTS + ROTARY);
        assert_string_equal(words.why, "");
    }
}

static void test_each_rank_has_its_part(void **state)
{
    (void)state;
    const struct seen two = {.n_devices = 2, .devices = {"gpu:0", "gpu:1"}};
    const struct seen three = {.n_devices = 3, .devices = {"gpu:0", "gpu:1", "gpu:2"}};
    struct mt_drive_running sglang = server("sglang");
    sglang.ranks = 2;
    sglang.cache_tokens = 16000;
    struct mt_drive_words words = words_on(&sglang, folder, &two);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            bytes_of(&words, two.devices[i], MT_CATEGORY_KV_CACHE, MT_PROVENANCE_DERIVED),
            16000 * TOKEN / 2);
    words = words_on(&sglang, folder, &(struct seen){0}); /* nobody measured a device */
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, MT_PROVENANCE_DERIVED),
                     16000 * TOKEN);
    words = words_on(&sglang, folder, &three);
    assert_unknown(&words, "gpu:0");
    assert_non_null(strstr(words.why, "which of 3 devices"));
    sglang.ranks = 17;
    words = words_on(&sglang, folder, &two);
    assert_unknown(&words, "gpu:0");
    assert_non_null(strstr(words.why, "more than 16 ranks"));
}

static void
test_a_process_that_has_less_of_a_device_than_its_server_says_has_not_its_cache(void **state)
{
    (void)state;
    struct seen seen = {.n_devices = 1, .devices = {"gpu:0"}};
    struct mt_drive_running sglang = server("sglang");
    sglang.cache_tokens = 16000;
    seen.device_bytes = 16000 * TOKEN + 2 * WEIGHTS; /* the worker, with a context */
    struct mt_drive_words words = words_on(&sglang, folder, &seen);
    assert_int_equal(bytes_of(&words, "gpu:0", MT_CATEGORY_KV_CACHE, MT_PROVENANCE_DERIVED),
                     16000 * TOKEN);
    seen.device_bytes = 2 * WEIGHTS; /* another of its programs, which has a context alone */
    words = words_on(&sglang, folder, &seen);
    assert_unknown(&words, "gpu:0");
    assert_non_null(strstr(words.why, "and this process has"));
}

static void test_without_a_header_the_engines_own_word_counts(void **state)
{
    (void)state;
    struct mt_drive_running sglang = server("sglang");
    sglang.cache_tokens = 16000;
    sglang.cache_bytes = 30 * MIB;
    sglang.weight_bytes = 20 * MIB;
    const char *const paths[] = {NULL, "/nowhere/at/all"};
    for (size_t i = 0; i < 2; i++) {
        struct mt_drive_words words = words_on(&sglang, paths[i], &(struct seen){0});
        assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, MT_PROVENANCE_INFERRED),
                         30 * MIB);
        assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_WEIGHTS, MT_PROVENANCE_INFERRED),
                         20 * MIB);
        assert_true(strlen(words.why) > 0);
    }
    /* So many tokens are in no machine: the other word counts. */
    sglang.cache_tokens = UINT64_MAX / 16;
    struct mt_drive_words words = words_on(&sglang, folder, &(struct seen){0});
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, MT_PROVENANCE_INFERRED),
                     30 * MIB);
}

static struct mt_drive_running llama_server(void)
{
    struct mt_drive_running llama = server("llama.cpp");
    snprintf(llama.version, sizeof llama.version, "b11434-abc");
    llama.context_tokens = 1024;
    llama.sequences = 3;
    llama.has_sequences = 1;
    return llama;
}

static void test_cells_of_llama_cpp_follow_from_the_header(void **state)
{
    (void)state;
    struct mt_drive_running llama = llama_server();
    const struct seen mapped = {.mapped_weights = 8 * MIB};
    struct mt_drive_words words = words_on(&llama, gguf, &mapped);
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, MT_PROVENANCE_DERIVED),
                     3 * 1024 * TOKEN);
    /* The mappings tell of the weights already. */
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_WEIGHTS, 0), 0);
    assert_true(bytes_of(&words, "host", MT_CATEGORY_ACTIVATIONS, 0) == MT_UNKNOWN);
    llama.is_unified = 1; /* the sequences share its cells */
    words = words_on(&llama, gguf, &mapped);
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, MT_PROVENANCE_DERIVED),
                     1024 * TOKEN);
    snprintf(llama.kv_type_k, sizeof llama.kv_type_k, "q8_0");
    snprintf(llama.kv_type_v, sizeof llama.kv_type_v, "q8_0");
    words = words_on(&llama, gguf, &mapped);
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, MT_PROVENANCE_DERIVED),
                     1024 * TOKEN / 2 * 34 / 32); /* 34 bytes for 32 values */
}

static void test_what_the_server_does_not_say_is_said(void **state)
{
    (void)state;
    struct mt_drive_running llama = llama_server();
    const struct seen small = {.n_devices = 1, .devices = {"gpu:0"}, .device_bytes = 10 * MIB};
    const struct seen two = {.n_devices = 2, .devices = {"gpu:0", "gpu:1"}};
    struct mt_drive_words words = words_on(&llama, gguf, &small);
    assert_unknown(&words, "gpu:0");
    assert_non_null(strstr(words.why, "how many layers lie on the device"));
    words = words_on(&llama, gguf, &two);
    assert_unknown(&words, "gpu:0");
    assert_non_null(strstr(words.why, "which of 2 devices"));
    words = words_on(&llama, NULL, &(struct seen){0});
    assert_unknown(&words, "host");
    assert_non_null(strstr(words.why, "which model file"));
    llama.context_tokens = 0; /* nobody answered */
    words = words_on(&llama, gguf, &(struct seen){.mapped_weights = 8 * MIB});
    assert_true(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, 0) == MT_UNKNOWN);
}

static void test_layers_on_a_device_that_nobody_measured_are_unknown(void **state)
{
    (void)state;
    struct mt_drive_running llama = llama_server();
    const struct seen unseen = {.library = "libllama.so", .driver = "libcuda.so.1"};
    const char *const places[] = {"host", "gpu:?", NULL};
    struct mt_drive_words words = words_on(&llama, gguf, &unseen);
    assert_unknown_in(&words, places);
    assert_non_null(strstr(words.why, "the driver of a device"));
    snprintf(llama.gpu_layers, sizeof llama.gpu_layers, "0");
    words = words_on(&llama, gguf, &unseen);
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_KV_CACHE, MT_PROVENANCE_DERIVED),
                     3 * 1024 * TOKEN);
    struct mt_drive_running vllm = server("vllm");
    vllm.cache_tokens = 16000;
    words = words_on(&vllm, folder, &(struct seen){.is_hidden = 1});
    assert_unknown_in(&words, (const char *const[]){"host", NULL});
    assert_non_null(strstr(words.why, "whether it uses a device"));
}

static void test_what_is_loaded_in_all_counts_where_nothing_tells_its_parts(void **state)
{
    (void)state;
    struct mt_drive_running ollama = server("ollama");
    ollama.is_told_loaded = 1;
    ollama.loaded_bytes = 100 * MIB;
    ollama.loaded_device_bytes = 60 * MIB;
    struct mt_drive_words words = words_on(&ollama, NULL, &(struct seen){0});
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_RUNTIME, MT_PROVENANCE_INFERRED),
                     40 * MIB);
    assert_int_equal(bytes_of(&words, "gpu:?", MT_CATEGORY_RUNTIME, MT_PROVENANCE_INFERRED),
                     60 * MIB);
    assert_unknown(&words, "host");
    assert_unknown(&words, "gpu:?");
    ollama.loaded_device_bytes = ollama.loaded_bytes;
    words = words_on(&ollama, NULL, &(struct seen){.n_devices = 1, .devices = {"gpu:0"}});
    assert_unknown(&words, "gpu:0");
    assert_int_equal(bytes_of(&words, "host", MT_CATEGORY_WEIGHTS, 0), 0);
    words = words_on(&ollama, NULL, &(struct seen){.n_devices = 2, .devices = {"gpu:0", "gpu:1"}});
    assert_int_equal(bytes_of(&words, "gpu:0", MT_CATEGORY_RUNTIME, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_a_program_that_computes_models_all_is_unknown),
        cmocka_unit_test(test_mapped_weights_of_the_host_tell_nothing_of_a_device),
        cmocka_unit_test(test_tokens_of_a_pool_times_the_bytes_of_one),
        cmocka_unit_test(test_each_rank_has_its_part),
        cmocka_unit_test(
            test_a_process_that_has_less_of_a_device_than_its_server_says_has_not_its_cache),
        cmocka_unit_test(test_without_a_header_the_engines_own_word_counts),
        cmocka_unit_test(test_cells_of_llama_cpp_follow_from_the_header),
        cmocka_unit_test(test_what_the_server_does_not_say_is_said),
        cmocka_unit_test(test_layers_on_a_device_that_nobody_measured_are_unknown),
        cmocka_unit_test(test_what_is_loaded_in_all_counts_where_nothing_tells_its_parts),
    };
    return cmocka_run_group_tests_name("running_words", tests, make_models, remove_models);
}
