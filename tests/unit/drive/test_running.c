/* SPDX-License-Identifier: MIT */
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memtally/error.h>

#include "drive/running.h"
#include "drive/stage.h"

/* A /proc of processes that are written here; each argument has a '|' behind it. */
static char proc[] = "/tmp/memtally-running-XXXXXX";

static void put_file(int pid, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%d", proc, pid);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%d/%s", proc, pid, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (const char *at = text; *at; at++)
        fputc(*at == '|' ? '\0' : *at, file);
    fclose(file);
}

static void put_process(int pid, int parent, const char *arguments, const char *environment)
{
    char stat_text[64];
    snprintf(stat_text, sizeof stat_text, "%d (a) S %d 0", pid, parent);
    put_file(pid, "stat", stat_text);
    put_file(pid, "cmdline", arguments);
    put_file(pid, "environ", environment);
}

/* The engine of a process with these arguments. */
static const char *engine_of(const char *arguments)
{
    static char name[32];
    put_process(5, 1, arguments, "");
    mt_drive_running_find(proc, 5, name);
    return name;
}

static void test_engines_are_known_by_program_script_module_and_title(void **state)
{
    (void)state;
    assert_string_equal(engine_of("/usr/bin/llama-server|-m|x.gguf|"), "llama.cpp");
    assert_string_equal(engine_of("/usr/bin/python3|/opt/bin/vllm|serve|m|"), "vllm");
    assert_string_equal(engine_of("python|-m|vllm.entrypoints.openai.api_server|"), "vllm");
    assert_string_equal(engine_of("VLLM::EngineCore|"), "vllm");
    assert_string_equal(engine_of("python|-m|sglang.launch_server|--model-path|m|"), "sglang");
    assert_string_equal(engine_of("sglang::scheduler_TP0|"), "sglang");
    assert_string_equal(engine_of("/usr/local/bin/ollama|serve"), "ollama");
    assert_string_equal(engine_of("text-generation-launcher|--json-output"), "tgi");
    assert_string_equal(engine_of("python|/opt/bin/text-generation-server|serve|m|"), "tgi");
    assert_string_equal(engine_of("python|/usr/bin/trtllm-serve|m|"), "trt-llm");
}

static void test_others_are_not(void **state)
{
    (void)state;
    assert_string_equal(engine_of(""), "");
    assert_string_equal(engine_of("||||"), "");
    assert_string_equal(engine_of("vim|llama-server.c|"), "");
    assert_string_equal(engine_of("my-llama-server|"), "");
    assert_string_equal(engine_of("sglang:|"), "");
    assert_string_equal(engine_of("a|b|c|d|e|f|g|llama-server|"), "");
}

static struct mt_drive_running *look(int pid)
{
    static struct mt_drive_running running;
    mt_drive_running_look(proc, pid, 0, &running);
    return &running;
}

static int make_proc(void **state)
{
    (void)state;
    return mkdtemp(proc) ? 0 : -1;
}

static int remove_proc(void **state)
{
    (void)state;
    mt_drive_folder_remove(proc);
    return 0;
}

static void test_of_an_environment_only_listed_names_are_kept(void **state)
{
    (void)state;
    put_process(10, 1, "llama-server|-m|/m.gguf|--api-key|swordfish|-ngl|7|",
                "HF_TOKEN=swordfish|LLAMA_ARG_CTX_SIZE=512|LLAMA_API_KEY=swordfish|HOME=/h|"
                "LLAMA_ARG_CACHE_TYPE_K=q8_0|PATH=/swordfish|");
    const struct mt_drive_running *running = look(10);
    assert_string_equal(running->engine, "llama.cpp");
    assert_string_equal(running->model, "/m.gguf");
    assert_string_equal(running->gpu_layers, "7");
    assert_string_equal(running->kv_type_k, "q8_0");
    assert_string_equal(running->variables[0], "LLAMA_ARG_CTX_SIZE=512");
    assert_string_equal(running->variables[1], "LLAMA_ARG_CACHE_TYPE_K=q8_0");
    assert_null(running->variables[2]);
    assert_null(memmem(running, sizeof *running, "swordfish", 9));
}

static void test_a_worker_is_told_by_the_program_above_it(void **state)
{
    (void)state;
    put_process(20, 1, "python|/opt/bin/vllm|serve|org/model|-tp|2|", "HF_HOME=/hub|");
    put_process(21, 20, "python|-c|from multiprocessing.spawn import spawn_main|", "");
    put_process(22, 21, "VLLM::Worker_TP0|", "");
    const struct mt_drive_running *running = look(22);
    assert_string_equal(running->engine, "vllm");
    assert_int_equal(running->pid, 20);
    assert_string_equal(running->model, "org/model");
    assert_int_equal(running->ranks, 2);
    assert_string_equal(running->variables[0], "HF_HOME=/hub");
    /* Another engine's program above it is not its own. */
    put_process(30, 1, "sglang|serve|--model-path|other|", "");
    put_process(31, 30, "VLLM::EngineCore|", "");
    running = look(31);
    assert_int_equal(running->pid, 31);
    assert_string_equal(running->model, "");
}

static void test_a_runner_counts_for_the_memory_of_its_engine(void **state)
{
    (void)state;
    put_process(40, 1, "/usr/bin/ollama|serve|", "OLLAMA_MODELS=/models|");
    put_process(41, 40, "/usr/lib/ollama/llama-server|--model|/models/blobs/sha256-1|-np|3|", "");
    const struct mt_drive_running *running = look(40);
    assert_string_equal(running->engine, "ollama");
    assert_string_equal(running->rules, "llama.cpp");
    assert_string_equal(running->model, "/models/blobs/sha256-1");
    assert_int_equal(running->pid, 41);
    assert_true(running->has_sequences);
}

static void link_of(int pid, const char *name, const char *target)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%d/%s", proc, pid, name);
    assert_int_equal(symlink(target, path), 0);
}

static void test_paths_are_those_of_the_servers_folder_and_root(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct mt_drive_running_files opened;
    put_process(70, 1, "llama-server|", "");
    put_file(70, "model.gguf", "x"); /* in the folder that is its root */
    link_of(70, "root", ".");
    link_of(70, "cwd", "/app");
    mt_drive_running_files_open(proc, &(struct mt_drive_running){.pid = 70}, &opened);
    assert_true(mt_drive_running_path(&opened, "models/a.gguf", path));
    assert_string_equal(path, "/app/models/a.gguf");
    assert_true(mt_drive_running_path(&opened, "/model.gguf", path));
    assert_string_equal(path, "/model.gguf");
    const struct mt_model_files *files = &opened.files;
    struct mt_model_source source;
    struct mt_error error;
    assert_int_not_equal(files->open(files->argument, "/etc/passwd", &source, &error), MT_OK);
    int code = files->open(files->argument, "/model.gguf", &source, &error);
    assert_int_not_equal(code, MT_ENOTFOUND);
    if (code == MT_OK)
        source.close(source.argument);
    else
        print_message("not tried, the kernel opens nothing below a folder: %s\n", error.text);
    mt_drive_running_files_close(&opened);
    opened.folder[0] = '\0'; /* it may not be seen */
    assert_false(mt_drive_running_path(&opened, "models/a.gguf", path));
}

/* A server whose root is a folder of ours: the kernel's name for where it works has that before it.
 */
static void test_a_folder_is_named_from_the_servers_root(void **state)
{
    (void)state;
    static const struct {
        int pid;
        const char *root, *cwd, *folder;
    } cases[] = {
        {80, "/srv/jail", "/srv/jail/app", "/app"},
        {81, "/srv/jail", "/srv/jail", "/"},
        {82, "/srv/jail", "/srv/jailer/app", "/srv/jailer/app"},
        {83, "/", "/srv/jail/app", "/srv/jail/app"},
    };
    struct mt_drive_running_files opened;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_process(cases[i].pid, 1, "llama-server|", "");
        link_of(cases[i].pid, "root", cases[i].root);
        link_of(cases[i].pid, "cwd", cases[i].cwd);
        mt_drive_running_files_open(proc, &(struct mt_drive_running){.pid = cases[i].pid}, &opened);
        assert_string_equal(opened.folder, cases[i].folder);
        mt_drive_running_files_close(&opened);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines_are_known_by_program_script_module_and_title),
        cmocka_unit_test(test_others_are_not),
        cmocka_unit_test(test_of_an_environment_only_listed_names_are_kept),
        cmocka_unit_test(test_a_worker_is_told_by_the_program_above_it),
        cmocka_unit_test(test_a_runner_counts_for_the_memory_of_its_engine),
        cmocka_unit_test(test_paths_are_those_of_the_servers_folder_and_root),
        cmocka_unit_test(test_a_folder_is_named_from_the_servers_root),
    };
    return cmocka_run_group_tests(tests, make_proc, remove_proc);
}
