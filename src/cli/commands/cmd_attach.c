/* SPDX-License-Identifier: MIT */
/* memtally attach: where the memory of a process is that already runs, seen from outside. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <memtally/error.h>
#include <memtally/run.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/budget/needs.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/container.h"
#include "cli/document/document.h"
#include "cli/document/loaded.h"
#include "cli/document/server_words.h"
#include "cli/interrupt.h"
#include "cli/moment.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "cli/shared_options.h"
#include "cli/words.h"
#include "drive/running.h"
#include "drive/stage.h"
#include "net/http_client.h"

#define POLL_MS 100

struct attach_options {
    int format;
    const char *lasts;
    const char *at;
    int all;
    const char *output;
    double picture_share;
    int no_endpoint;
    const char *container;
};

#define AT(member) offsetof(struct attach_options, member)

static const struct cli_option attach_options[] = {
    {.name = "for",
     .kind = CLI_TEXT,
     .argument = "TIME",
     .fallback = "0",
     .offset = AT(lasts),
     .help = "watch the process for this time, as in 30s or 5m, or until it ends or you press "
             "Ctrl-C; 0 takes one look"},
    CLI_FORMAT_OPTIONS(AT(format), cli_format_names, CLI_FORMAT_JSON, "how to write the report"),
    CLI_OPTION_AT(
        AT(at),
        "the moment of the watched time to show: peak, steady, exit, or a time since its start "
        "such as 3.5s"),
    CLI_OPTION_ALL(AT(all), "in a table: every detail and process, not the first few only"),
    {.name = "output",
     .letter = 'o',
     .kind = CLI_DIRECTORY,
     .argument = "DIR",
     .offset = AT(output),
     .help = "keep what memtally saw in this folder, for 'memtally report'; it must not hold a "
             "recording"},
    {.name = "picture-share",
     .kind = CLI_REAL,
     .argument = "PERCENT",
     .fallback = "0.3",
     .least = 0,
     .most = 100,
     .offset = AT(picture_share),
     .help = "how much of a core pictures of the resident pages may take while memtally watches; "
             "all else takes 0.17 % at most"},
    {.name = "no-endpoint",
     .kind = CLI_FLAG,
     .offset = AT(no_endpoint),
     .help = "do not ask the server of a known engine what it has loaded"},
    {.name = "container",
     .kind = CLI_TEXT,
     .argument = "NAME",
     .offset = AT(container),
     .help = "attach to all processes of this container of Docker or Podman, or to one of "
             "containerd by its id, in place of a PID"},
    {0},
};

/* ---- watching ---- */

static int watch(struct mt_run *run, uint64_t lasts_ns, const volatile sig_atomic_t *caught,
                 struct mt_error *error)
{
    struct mt_run_status status = {.running = 1};
    struct cli_progress progress;
    int result = 0;
    cli_progress_init(&progress, 1);
    do {
        result = mt_run_poll(run, lasts_ns ? POLL_MS : 0, &status, error);
        char resident[MT_SIZE_TEXT];
        if (lasts_ns)
            cli_progress_show(&progress, "memtally: watching %d  %.1f s  %s resident",
                              mt_run_pid(run), (double)status.elapsed_ns / 1e9,
                              mt_format_size(status.resident_bytes, resident));
    } while (result == 0 && status.running && !*caught && status.elapsed_ns < lasts_ns);
    cli_progress_clear(&progress);
    return result;
}

#define ASK_MS 1000

/* What is attached to. */
struct target {
    int pid;
    struct mt_container *container; /* whose first process that is, or NULL */
};

/* A server of a container writes to its engine's log. */
static void read_log(const struct target *target, struct cli_server_words *said)
{
    struct mt_http_response log;
    if (!target->container || !mt_drive_running_wants_log(&said->running) ||
        mt_container_log(target->container, &log, NULL) != MT_OK)
        return;
    mt_drive_running_take_log(log.body, log.length, &said->running);
    mt_http_response_finish(&log);
}

static int attach(const struct attach_options *options, const struct target *target,
                  const char *folder, uint64_t lasts_ns, struct cli_server_words *said,
                  struct mt_error *error)
{
    const volatile sig_atomic_t *caught = cli_catch_signals();
    const double share = options->picture_share / 100;
    const struct mt_attach_options asked = {
        .directory = folder,
        .pid = target->pid,
        .group = target->container ? target->container->id : NULL,
        .picture_share = share > 0 ? share : 1e-9,
    };
    struct mt_run_result end;
    struct mt_run *run;
    int result = mt_attach_start(&asked, &run, error);
    if (result < 0)
        return result;
    int may_ask = !options->no_endpoint && mt_http_start(NULL) == MT_OK;
    cli_server_words_look(said, target->pid, may_ask ? ASK_MS : 0);
    if (may_ask) {
        read_log(target, said);
        mt_http_stop();
    }
    result = watch(run, lasts_ns, caught, error);
    int finished = mt_run_finish(run, NULL, NULL, &end, result == 0 ? error : NULL);
    return result < 0 ? result : finished;
}

static int show(const struct attach_options *options, const struct target *target,
                const char *folder, struct cli_server_words *said, const struct mt_moment *moment,
                struct mt_error *error)
{
    const struct cli_load_options load = {.moment = *moment, .is_told = 1};
    struct cli_terminal terminal = cli_terminal_of(STDOUT_FILENO);
    struct cli_loaded loaded = {0};
    struct mt_strbuf out = {0};
    int code = CLI_EXIT_OK;
    int result = cli_load(&loaded, folder, &load, error);
    if (result == 0) {
        if (options->all)
            loaded.document.details_shown = 0;
        if (!options->output)
            loaded.document.recording = NULL;
        loaded.document.container = target->container;
        result = cli_server_words_put(said, loaded.tally, &loaded.document, error);
    }
    if (result == 0) {
        result = cli_document_render(&loaded.document, (enum cli_format)options->format, &terminal,
                                     &out, error);
    }
    code = result < 0 ? cli_fail(error) : cli_write_output(&out, NULL);
    mt_strbuf_finish(&out);
    cli_unload(&loaded);
    return code;
}

/* ---- the command ---- */

static int read_pid(const char *text, int *pid)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || !*text || *end || number <= 0 || number > INT_MAX) {
        cli_complain("attach: '%s' is not the number of a process, as in 'memtally attach 4711'; "
                     "'pgrep -a llama-server' finds one",
                     text);
        return CLI_EXIT_USAGE;
    }
    *pid = (int)number;
    return CLI_EXIT_OK;
}

/* Opens the container and closes libcurl, which is begun again where an endpoint is asked. */
static int find_container(const char *name, struct target *target)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (mt_http_start(&error) != MT_OK)
        return cli_fail(&error);
    int code = cli_open_container(name, &target->container);
    mt_http_stop();
    if (code == CLI_EXIT_OK)
        target->pid = target->container->pid;
    return code;
}

static int find_target(const struct cli_call *call, struct target *target)
{
    const struct attach_options *options = call->options;
    const char *pid = call->operands[0];
    if (!pid == !options->container) {
        cli_complain(pid ? "attach: give either a PID or --container, not both"
                         : "attach: give a PID, as in 'memtally attach 4711', or --container NAME");
        return CLI_EXIT_USAGE;
    }
    return pid ? read_pid(pid, &target->pid) : find_container(options->container, target);
}

static int watch_and_show(const struct attach_options *options, const struct target *target,
                          const char *folder, uint64_t lasts_ns, const struct mt_moment *moment)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct cli_server_words *said = calloc(1, sizeof *said);
    if (!said) {
        cli_complain("attach: out of memory");
        return CLI_EXIT_CANNOT;
    }
    int result = attach(options, target, folder, lasts_ns, said, &error);
    int code = result < 0 ? cli_fail(&error) : show(options, target, folder, said, moment, &error);
    cli_server_words_finish(said);
    free(said);
    return code;
}

static int run_target(const struct attach_options *options, const struct target *target)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_moment moment;
    char folder[PATH_MAX];
    uint64_t lasts_ns;
    if (budget_parse_time(options->lasts, &lasts_ns) < 0) {
        cli_complain("attach: '%s' is no time, as in --for 30s", options->lasts);
        return CLI_EXIT_USAGE;
    }
    int result = cli_parse_moment(options->at, &moment, &error);
    if (result == 0)
        result = cli_choose_folder(options->output, "attach", folder, &error);
    if (result < 0)
        return cli_fail(&error);
    int code = watch_and_show(options, target, folder, lasts_ns, &moment);
    if (!options->output)
        mt_drive_folder_remove(folder);
    return code;
}

static int run_attach(const struct cli_call *call)
{
    struct target target = {0};
    int code = find_target(call, &target);
    if (code == CLI_EXIT_OK)
        code = run_target(call->options, &target);
    mt_container_close(target.container);
    return code;
}

static const char *const description[] = {
    "Shows where the memory of a process and its descendants is, without having started them: by "
    "category, as far as it can be seen from outside. memtally reads what the kernel says of their "
    "mappings and resident pages. It does not stop them and writes nothing to them.",
    "From outside memtally tells mapped model files, libraries, stacks, the heap and other "
    "anonymous memory apart. It cannot tell used heap from free heap, nor what the heap is for; "
    "with 'memtally run' it can. Each device that the process holds memory of is a place of its "
    "own. Its bytes come from NVIDIA's list of processes, or from what the drivers amdgpu, i915, "
    "xe and nouveau say of the process's open files.",
    "If the process is llama-server, Ollama, vLLM, SGLang, TGI or TensorRT-LLM, memtally also asks "
    "its endpoint on this machine for its version, model, context and cache, for at most a second. "
    "If that of TGI or TensorRT-LLM does not tell of the cache, a line of the log may. The "
    "bytes follow from the model's header and the rules of the engine's version (derived), or are "
    "the engine's own word (inferred). memtally takes them out of the memory whose use it did not "
    "see. If memtally cannot know weights, cache or activations, they are unknown. It reads only "
    "those variables of the environment that stand for the engine's flags or name folders of "
    "models.",
    "With --container it shows all processes of a container. memtally asks the socket that "
    "DOCKER_HOST names and those of Docker and Podman, each for at most a second. It finds a "
    "container that no socket knows by 12 digits of its id or more.",
    "Other users' processes show their sizes only, unless memtally runs as root or with "
    "CAP_SYS_PTRACE. The report names such processes.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally attach $(pidof llama-server)", "Where its memory is now."},
    {"memtally attach --container ollama", "The same of all processes of a container."},
    {"memtally attach 4711 --for 1m -o seen", "The peak of a minute, kept in the folder seen."},
    {0},
};

const struct cmd_entry cmd_attach = {
    .name = "attach",
    .synopsis = "[options] PID|--container NAME",
    .summary = "show where the memory of a running process is",
    .description = description,
    .examples = examples,
    .options = attach_options,
    .options_size = sizeof(struct attach_options),
    .operands = CLI_OPERANDS_PROCESS,
    .least_operands = 0,
    .most_operands = 1,
    .run = run_attach,
};
