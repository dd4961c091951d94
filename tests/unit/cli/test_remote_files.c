/* SPDX-License-Identifier: MIT */
/* Models behind a server of ours: one that has ranges, and several that do not keep to them. */
#include "cli/remote_files.h"

#include "tests/support/unit.h"

#include "net/http_client.h"
#include "net/http_range.h"

#include <ftw.h>
#include <memtally/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64];
static char base[64]; /* "http://127.0.0.1:PORT" */
static pid_t server;
static int server_input;

static int start_server(void)
{
    int in[2];
    int out[2];
    char port[16] = "";
    if (pipe(in) || pipe(out))
        return -1;
    server = fork();
    if (server == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[0]), close(in[1]), close(out[0]), close(out[1]);
        execlp("python3", "python3", RANGE_SERVER, root, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    server_input = in[1];
    ssize_t n = read(out[0], port, sizeof port - 1);
    close(out[0]);
    if (n <= 0)
        return -1;
    snprintf(base, sizeof base, "http://127.0.0.1:%d", atoi(port));
    return 0;
}

static const char *at(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void write_bytes(const char *name, const void *bytes, size_t length, long hole)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    fclose(file);
    if (hole)
        assert_int_equal(truncate(at(name), (long)length + hole), 0);
}

static int setup(void **state)
{
    (void)state;
    static const char header[] = "{\"model.layers.0.self_attn.k_proj.weight\":{\"dtype\":\"U8\","
                                 "\"shape\":[1000,1000],\"data_offsets\":[0,1000000]}}";
    const struct mt_sample_options options = {.type = MT_WEIGHT_Q4_0, .mode = MT_SAMPLE_SPARSE};
    struct mt_sample_facts facts;
    uint8_t image[8 + sizeof header] = {sizeof header - 1};
    strcpy(root, "/tmp/memtally-remote-XXXXXX");
    if (!mkdtemp(root) || mt_http_start(NULL) || start_server())
        return -1;
    memcpy(image + 8, header, sizeof header);
    write_bytes("model.safetensors", image, sizeof image - 1, 1000000);
    write_bytes("empty.gguf", "", 0, 0);
    return mt_sample_model_write(at("model.gguf"), mt_model_shape_at(0), &options, &facts, NULL);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status, (void)type, (void)walk;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    close(server_input);
    waitpid(server, NULL, 0);
    mt_http_stop();
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Opens what `name` below `how` is; the result, and what came over the network. */
static int open_remote(const char *how, const char *name, struct cli_remote *remote,
                       struct mt_model **model, struct mt_error *error)
{
    char url[512];
    struct mt_model_files files = cli_remote_files(remote);
    snprintf(url, sizeof url, "%s/%s/%s", base, how, name);
    return mt_model_open(url, &files, model, error);
}

static void assert_refused(const char *how, const char *name, int code, const char *words)
{
    struct cli_remote remote = {.endpoint = NULL};
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    int got = open_remote(how, name, &remote, &model, &error);
    mt_model_close(model);
    if (got != code || !strstr(error.text, words) || !strstr(error.text, name))
        fail_msg("%s: %d: %s; expected %d: %s", how, got, error.text, code, words);
}

static void test_only_the_header_of_a_safetensors_file_is_fetched(void **state)
{
    (void)state;
    struct cli_remote remote = {.endpoint = NULL};
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    if (open_remote("good", "model.safetensors", &remote, &model, &error))
        fail_msg("%s", error.text);
    assert_int_equal(mt_model_describe(model)->weight_bytes, 1000000);
    /* One request of 64 KiB for the file; the config.json that it looks for is not there. */
    assert_int_equal(remote.received_bytes, 65536);
    assert_int_equal(remote.requests, 2);
    mt_model_close(model);
}

static void test_a_gguf_file_is_read_as_if_it_lay_here(void **state)
{
    (void)state;
    struct cli_remote remote = {.endpoint = NULL};
    struct mt_model *here = NULL;
    struct mt_model *there = NULL;
    struct mt_error error = {0};
    assert_int_equal(mt_model_open(at("model.gguf"), NULL, &here, &error), 0);
    if (open_remote("good", "model.gguf", &remote, &there, &error))
        fail_msg("%s", error.text);
    const struct mt_model_description *d = mt_model_describe(here);
    assert_int_equal(mt_model_describe(there)->weight_bytes, d->weight_bytes);
    assert_int_equal(mt_model_describe(there)->n_tensors, d->n_tensors);
    /* The header, rounded up to the steps it is asked for in, and no weights. */
    assert_true(remote.received_bytes >= d->header_bytes);
    assert_true(remote.received_bytes <= d->header_bytes + 2 * 512 * 1024);
    assert_true(remote.received_bytes < d->file_bytes / 10);
    mt_model_close(here);
    mt_model_close(there);
}

static void test_a_folder_is_looked_through_by_known_names(void **state)
{
    (void)state;
    struct cli_remote remote = {.endpoint = NULL};
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    if (open_remote("good", "", &remote, &model, &error))
        fail_msg("%s", error.text);
    assert_int_equal(mt_model_describe(model)->format, MT_MODEL_SAFETENSORS);
    mt_model_close(model);
}

static void test_servers_that_do_not_keep_to_ranges(void **state)
{
    (void)state;
    assert_refused("whole", "model.gguf", MT_EUNSUPPORTED, "no range requests");
    assert_refused("shifted", "model.gguf", MT_EFORMAT, "Content-Range");
    assert_refused("longer", "model.gguf", MT_EFORMAT, "more than was asked for");
    assert_refused("early", "model.gguf", MT_ETRUNCATED, "model.gguf");
    assert_refused("liar", "model.gguf", MT_EFORMAT, "before");
    assert_refused("good", "missing.gguf", MT_ENOTFOUND, "not found");
    assert_refused("good", "empty.gguf", MT_EFORMAT, "416");
}

static void test_redirects_lead_to_https_only(void **state)
{
    (void)state;
    assert_refused("elsewhere", "model.gguf", MT_EARG, "http");
}

static void test_plain_http_is_for_this_machine(void **state)
{
    (void)state;
    struct mt_http_file_options options = {0};
    struct mt_http_file *file = NULL;
    assert_int_equal(mt_http_file_open("http://example.org/x", &options, &file, NULL), MT_EARG);
    assert_int_equal(mt_http_file_open("file:///etc/passwd", &options, &file, NULL), MT_EARG);
    assert_int_equal(mt_http_file_open("ftp://127.0.0.1/x", &options, &file, NULL), MT_EARG);
    assert_int_equal(mt_http_file_open("http://127.evil.example/x", &options, &file, NULL),
                     MT_EARG);
    assert_null(file);
}

static void read_log(struct mt_http_response *response)
{
    char url[128];
    snprintf(url, sizeof url, "%s/log", base);
    struct mt_http_request request = {.url = url, .timeout_ms = 20000, .max_body_bytes = 1 << 20};
    assert_int_equal(mt_http_fetch(&request, response, NULL), 0);
}

static void test_the_token_goes_to_the_endpoint_alone(void **state)
{
    (void)state;
    char endpoint[128];
    struct mt_model *model = NULL;
    struct mt_error error = {0};
    struct mt_http_response log;
    snprintf(endpoint, sizeof endpoint, "%s/good", base);
    struct cli_remote remote = {.endpoint = endpoint, .token = "hf_secret"};
    assert_int_equal(open_remote("good", "secret-1", &remote, &model, &error), MT_ENOTFOUND);
    assert_null(strstr(error.text, "hf_secret"));
    assert_int_equal(open_remote("goodness", "secret-2", &remote, &model, &error), MT_ENOTFOUND);
    read_log(&log);
    const char *first = strstr(log.body, "/good/secret-1");
    const char *second = strstr(log.body, "/goodness/secret-2");
    assert_non_null(first);
    assert_non_null(second);
    assert_non_null(strstr(first, "Bearer hf_secret"));
    assert_null(strstr(second, "Bearer"));
    mt_http_response_finish(&log);
}

static void assert_path(const char *name, const char *expected)
{
    struct cli_remote remote = {.endpoint = "https://hub.example"};
    char path[CLI_REMOTE_PATH_MAX] = "";
    int code = cli_remote_path(&remote, name, path, sizeof path, NULL);
    if (expected)
        assert_string_equal(path, expected);
    else
        assert_int_equal(code, MT_EARG);
}

static void test_names_of_a_hub_become_urls(void **state)
{
    (void)state;
    assert_path("org/model", "https://hub.example/org/model/resolve/main/");
    assert_path("org/model/a-q4.gguf", "https://hub.example/org/model/resolve/main/a-q4.gguf");
    assert_path("org/model/x/a.gguf", "https://hub.example/org/model/resolve/main/x/a.gguf");
    assert_path("org/model@v1.0", "https://hub.example/org/model/resolve/v1.0/");
    assert_path("https://elsewhere.example/m.gguf", "https://elsewhere.example/m.gguf");
    assert_path("model", NULL);
    assert_path("../model", NULL);
    assert_path("org/../model", NULL);
    assert_path("org/model/../x", NULL);
    assert_path("org/mo del", NULL);
    assert_path("org/model@a/b", NULL);
    assert_path("org/", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_header_of_a_safetensors_file_is_fetched),
        cmocka_unit_test(test_a_gguf_file_is_read_as_if_it_lay_here),
        cmocka_unit_test(test_a_folder_is_looked_through_by_known_names),
        cmocka_unit_test(test_servers_that_do_not_keep_to_ranges),
        cmocka_unit_test(test_redirects_lead_to_https_only),
        cmocka_unit_test(test_plain_http_is_for_this_machine),
        cmocka_unit_test(test_the_token_goes_to_the_endpoint_alone),
        cmocka_unit_test(test_names_of_a_hub_become_urls),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
