/* SPDX-License-Identifier: MIT */
/* memtally run: a program under the recorder. Its standard streams and its status stay its own. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <memtally/error.h>
#include <memtally/run.h>
#include <memtally/units.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/document/loaded.h"
#include "cli/document/shell.h"
#include "cli/document/torch_table.h"
#include "cli/forward.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "cli/rehearse/recorded.h"
#include "cli/shared_options.h"
#include "cli/words.h"
#include "drive/layer.h"
#include "drive/objects.h"

#define POLL_MS 100

struct run_options {
    const char *output;
    int depth;
    int stacks;
    double picture_share;
    int no_python;
    int layers;
    int operations;
    struct cli_texts devices;
    int quiet;
};

#define AT(member) offsetof(struct run_options, member)

static const struct cli_option run_options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = CLI_DIRECTORY,
     .argument = "DIR",
     .offset = AT(output),
     .help = "the folder to record into, which must not hold a recording; by default a new "
             "memtally-PROGRAM-DATE-TIME in the current directory"},
    CLI_OPTION_DEPTH(
        AT(depth),
        "default: every mapping, engine buffer and block of at least 64 KiB, smaller ones "
        "counted and sampled; full: every single event"),
    CLI_OPTION_STACKS(
        AT(stacks),
        "how to take call stacks: by frame pointers, by unwinding (slower, also through code "
        "without frame pointers; libunwind opens descriptors of its own), or not at all"),
    CLI_OPTION_PICTURE_SHARE(
        AT(picture_share),
        "how much of the run time pictures of the resident pages may take; 20 ms are always "
        "allowed"),
    {.name = "no-python",
     .kind = CLI_FLAG,
     .offset = AT(no_python),
     .help = "leave Python alone; memtally then cannot say what PyTorch's memory is for"},
    {.name = "layers",
     .kind = CLI_FLAG,
     .offset = AT(layers),
     .help = "record what each layer of PyTorch's models holds and takes: weights, cache, and "
             "the most of a forward and of a backward pass"},
    {.name = "operations",
     .kind = CLI_FLAG,
     .offset = AT(operations),
     .help = "record what each operator of PyTorch takes, by the shapes of its inputs"},
    CLI_OPTION_ON(
        AT(devices),
        "run CMD on devices that are not there, which compute nothing, and record what it "
        "takes of them: each by the name of a GPU, as H100-80GB, or by its memory, as 24GiB "
        "or 2x24GiB"),
    CLI_OPTION_QUIET(AT(quiet), "print neither progress nor the breakdown at the end"),
    {0},
};

/* One run from its folder to its breakdown. */
struct session {
    const struct run_options *options;
    char folder[PATH_MAX];
    int folder_is_new; /* made here, and to be removed if nothing is recorded */
    char recorder[PATH_MAX];
    char site[PATH_MAX];               /* for Python; "" where it is left alone */
    struct rehearse_recorded *devices; /* that are pretended, or NULL */
    char *const *environment;
    struct cli_progress progress;
};

static int choose_folder(struct session *session, const char *program)
{
    const char *named = session->options->output;
    if (named) {
        if (snprintf(session->folder, sizeof session->folder, "%s", named) < PATH_MAX)
            return CLI_EXIT_OK;
        cli_complain("run: the name of the folder is too long");
        return CLI_EXIT_FAILED;
    }
    int failed = cli_make_recording_folder(program, session->folder, sizeof session->folder);
    session->folder_is_new = !failed;
    if (!failed)
        return CLI_EXIT_OK;
    cli_complain("run: cannot make the folder %s: %s; choose another with -o DIR", session->folder,
                 strerror(failed));
    return CLI_EXIT_FAILED;
}

static int prepare(struct session *session, char *const *argv)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int code = cli_check_program(argv[0]);
    if (code)
        return code;
    if (mt_drive_find_recorder(environ, session->recorder, sizeof session->recorder, &error)) {
        cli_fail(&error);
        return CLI_EXIT_FAILED;
    }
    if (!session->options->no_python)
        mt_drive_find_site(session->site, sizeof session->site);
    return choose_folder(session, argv[0]);
}

static int pretend(struct session *session, char *const *argv)
{
    session->environment = environ;
    if (!session->options->devices.n)
        return CLI_EXIT_OK;
    int code = rehearse_open_recorded("run", &session->options->devices, NULL, argv, environ,
                                      &session->devices, &session->environment);
    return code == CLI_EXIT_OK || code == CLI_EXIT_USAGE ? code : CLI_EXIT_FAILED;
}

static void forget_folder(const struct session *session)
{
    if (session->folder_is_new)
        rmdir(session->folder);
}

static int start(struct session *session, char *const *argv, struct mt_run **run)
{
    double share = session->options->picture_share / 100;
    const struct mt_run_options options = {
        .directory = session->folder,
        .recorder_path = session->recorder,
        .python_site = *session->site ? session->site : NULL,
        .tells_layers = session->options->layers,
        .tells_operations = session->options->operations,
        .depth = (enum mt_depth)session->options->depth,
        .stacks = (enum mt_stacks)session->options->stacks,
        .picture_share = share > 0 ? share : 1e-9, /* 0 would ask for the default */
        .argv = argv,
        .environment = session->environment,
        .stdout_fd = -1,
        .stderr_fd = -1,
    };
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (mt_run_start(&options, run, &error) == 0)
        return CLI_EXIT_OK;
    forget_folder(session);
    cli_fail(&error);
    return CLI_EXIT_FAILED;
}

static void show_status(struct cli_progress *progress, const struct mt_run_status *status)
{
    char resident[MT_SIZE_TEXT];
    cli_progress_show(progress, "memtally: running  %.1f s  %s resident  %" PRIu64 " process%s",
                      (double)status->elapsed_ns / 1e9,
                      mt_format_size(status->resident_bytes, resident), status->n_processes,
                      status->n_processes == 1 ? "" : "es");
}

/* A line that is drawn again and again would tear what the program writes to the same terminal. */
static int shares_our_terminal(void)
{
    struct stat ours;
    struct stat programs;
    return isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && fstat(STDERR_FILENO, &ours) == 0 &&
           fstat(STDOUT_FILENO, &programs) == 0 && ours.st_rdev == programs.st_rdev;
}

/* Watches until the last process has ended. Where watching fails the program goes on without. */
static void watch(struct session *session, struct mt_run *run)
{
    struct mt_run_status status = {.running = 1};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    while (status.running) {
        if (mt_run_poll(run, POLL_MS, &status, &error)) {
            cli_progress_clear(&session->progress);
            cli_fail(&error);
            return;
        }
        if (session->devices)
            rehearse_poll_recorded(session->devices);
        if (status.running)
            show_status(&session->progress, &status);
    }
}

static void show_packing(void *context, double share)
{
    struct session *session = context;
    cli_progress_show(&session->progress, "memtally: packing the recording, %.0f %%", share * 100);
}

static void put_hint(const struct session *session, struct mt_strbuf *out)
{
    mt_strbuf_puts(out, out->length ? "\nmemtally report " : "memtally report ");
    cli_put_shell_word(out, session->folder);
    mt_strbuf_puts(out, "\n");
}

/* The breakdown goes to stderr, because stdout is the program's. */
static void print_breakdown(const struct session *session)
{
    struct cli_loaded loaded = {0};
    const struct cli_load_options options = {.moment = {MT_MOMENT_PEAK, 0}};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_strbuf out = {0};
    struct cli_terminal terminal = cli_terminal_of(STDERR_FILENO);
    if (cli_load(&loaded, session->folder, &options, &error))
        cli_fail(&error);
    else
        cli_document_summary(&loaded.document, &terminal, &out);
    put_hint(session, &out);
    fputs(mt_strbuf_text(&out), stderr);
    mt_strbuf_finish(&out);
    cli_unload(&loaded);
}

static int finish(struct session *session, struct mt_run *run)
{
    struct mt_run_result result = {.exit_code = CLI_EXIT_FAILED};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    int failed = mt_run_finish(run, show_packing, session, &result, &error);
    cli_progress_clear(&session->progress);
    if (failed)
        cli_fail(&error);
    if (!session->options->quiet)
        print_breakdown(session);
    if (!session->options->quiet && session->options->layers)
        cli_print_torch_table("run", session->folder, MT_TORCH_TABLE_LAYERS, stderr);
    if (!session->options->quiet && session->options->operations)
        cli_print_torch_table("run", session->folder, MT_TORCH_TABLE_OPERATIONS, stderr);
    return result.exit_code;
}

static int run_run(const struct cli_call *call)
{
    struct session session = {.options = call->options};
    struct mt_run *run;
    int is_told = session.options->layers || session.options->operations;
    if (is_told && session.options->no_python) {
        cli_complain("run: --layers and --operations need what --no-python leaves out; leave "
                     "--no-python out");
        return CLI_EXIT_USAGE;
    }
    int code = prepare(&session, call->operands);
    if (code)
        return code;
    code = pretend(&session, call->operands);
    if (code) {
        forget_folder(&session);
        return code;
    }
    cli_progress_init(&session.progress, !session.options->quiet && !shares_our_terminal());
    cli_forward_begin();
    code = start(&session, call->operands, &run);
    if (code == CLI_EXIT_OK) {
        cli_forward_to(run);
        watch(&session, run);
        cli_forward_to(NULL);
        code = finish(&session, run);
        if (session.devices)
            rehearse_explain_recorded("run", session.devices);
    }
    rehearse_close_recorded(session.devices);
    return code;
}

static const char *const description[] = {
    "Runs CMD with the recorder in it and watches its process tree. memtally records what CMD "
    "allocates, maps and holds into a folder. The folder is readable even if CMD crashes or is "
    "killed. CMD's output and its status stay its own.",
    "When CMD has ended, memtally prints a short breakdown by category at the peak to standard "
    "error. 'memtally report' shows the rest.",
    "memtally passes on to CMD the signals SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2 and "
    "SIGWINCH, and stays to finish the recording.",
    "The recorder cannot enter a program that is linked statically or runs with another user's "
    "rights. memtally watches such a program from outside, and the report says so.",
    "With --on the program runs on GPUs that this machine need not have: they give out addresses "
    "without memory, compute nothing, and refuse what such a device would refuse. memtally hides "
    "the real ones from it. The program's output is its own, but its kernels compute no results.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally run -- llama-bench -m model.gguf", "Where the memory of a benchmark goes."},
    {"memtally run -o rec --stacks unwind -- python3 train.py",
     "Records into the folder rec, with call stacks through any code."},
    {"memtally run --on H100-80GB -- python3 train.py",
     "What a program of PyTorch takes of a device that this machine does not have."},
    {0},
};

static const struct cli_status statuses[] = {
    {"status of CMD", "CMD was run; 128+n if signal n killed it"},
    {"2", "wrong usage"},
    {"125", "memtally itself failed"},
    {"126", "CMD was found and cannot be run"},
    {"127", "CMD was not found"},
    {0},
};

const struct cmd_entry cmd_run = {
    .name = "run",
    .synopsis = "[options] [--] CMD [ARGUMENT...]",
    .summary = "run a program and record where its memory goes",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = run_options,
    .options_size = sizeof(struct run_options),
    .operands = CLI_OPERANDS_PROGRAM,
    .least_operands = 1,
    .run = run_run,
};
