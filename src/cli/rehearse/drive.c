/* SPDX-License-Identifier: MIT */
/* Waiting for a rehearsed program and driving it where it is a server. */
#include "cli/rehearse/drive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/ticks.h"
#include "cli/rehearse/drive_parts.h"
#include "cli/rehearse/flags.h"
#include "cli/rehearse/ports.h"
#include "cli/rehearse/settled.h"
#include "net/http_client.h"

#define MS        ((uint64_t)1000 * 1000)
#define LOOK_NS   (20 * MS)
#define PORTS_MAX 16
#define PORTS_NS  (250 * MS)
#define OTHER_MS  1000  /* for an answer of a port that may be of anything */
#define OWN_MS    20000 /* of the server's: SGLang writes a token before it calls itself healthy */
#define ASK_NS    (500 * MS) /* at most between two questions whether a server is ready */
#define ASK_PART  32         /* of the time that it has taken so far */

/* A server is reached from this machine alone, without a key or encryption, and takes no port that
 * another one may have. SGLang asks itself at the port that it was given, which is never 0. */
static void shield(struct rehearse_command *command)
{
    static const enum rehearse_flag dropped[] = {REHEARSE_API_KEY, REHEARSE_API_KEY_FILE,
                                                 REHEARSE_SSL_KEY_FILE, REHEARSE_SSL_CERT_FILE,
                                                 REHEARSE_REUSE_PORT};
    char port[16] = "0";
    if (rehearse_is_python_server(command))
        snprintf(port, sizeof port, "%d", rehearse_free_port("/proc"));
    rehearse_flag_set(command, REHEARSE_HOST, "127.0.0.1");
    rehearse_flag_set(command, REHEARSE_PORT, port);
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        rehearse_flag_drop(command, dropped[i]);
}

char **rehearse_drive_argv(char *const *argv, const char *directory)
{
    struct rehearse_command command;
    rehearse_command_copy(argv, &command);
    if (command.program == REHEARSE_LLAMA_SERVER || rehearse_is_python_server(&command))
        shield(&command);
    if (rehearse_flag_value(&command, NULL, REHEARSE_SLOT_SAVE_PATH))
        rehearse_flag_set(&command, REHEARSE_SLOT_SAVE_PATH, directory);
    if (command.failed)
        rehearse_command_finish(&command);
    return command.words;
}

void rehearse_drive_argv_free(char **argv)
{
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

static int is_interrupted(const struct rehearse_drive *drive)
{
    return drive->settings->interrupted && *drive->settings->interrupted;
}

int rehearse_drive_look(struct rehearse_drive *drive, uint64_t timeout_ns)
{
    struct rehearse_drive_report *report = drive->report;
    if (drive->code == MT_OK)
        drive->code = mt_rehearse_wait(drive->rehearsal, timeout_ns, &report->status, drive->error);
    if (drive->settings->echo)
        rehearse_echo_show(drive->settings->echo, drive->settings->listener);
    if (drive->code != MT_OK)
        return 0;
    if (!report->status.running) {
        report->end = REHEARSE_ENDED;
        return 0;
    }
    if (is_interrupted(drive)) {
        report->end = REHEARSE_INTERRUPTED;
        return 0;
    }
    return 1;
}

/* Whether it is time to look for ports: the program was seen to listen, or it is a while since the
 * last look, for a process that nothing is preloaded into. */
static int may_listen(struct rehearse_drive *drive)
{
    const struct mt_rehearse_event *event;
    while (!drive->listens &&
           (event = mt_rehearse_event_at(drive->rehearsal, drive->n_looked_at)) != NULL) {
        drive->listens = event->kind == MT_REHEARSE_MARK && strcmp(event->name, "listen") == 0;
        drive->n_looked_at++;
    }
    uint64_t now_ns = mt_monotonic_ns();
    if (!drive->listens && now_ns < drive->next_ports_ns)
        return 0;
    drive->next_ports_ns = now_ns + PORTS_NS;
    return 1;
}

/* A question costs the server time, and the machine a port for a minute. */
uint64_t rehearse_ask_pause_ns(uint64_t waited_ns)
{
    uint64_t pause_ns = waited_ns / ASK_PART;
    return pause_ns < ASK_NS ? pause_ns : ASK_NS;
}

static int may_ask(struct rehearse_drive *drive)
{
    uint64_t now_ns = mt_monotonic_ns();
    if (now_ns < drive->next_ask_ns)
        return 0;
    drive->next_ask_ns = now_ns + rehearse_ask_pause_ns(now_ns - drive->start_ns);
    return 1;
}

static int is_answering(struct rehearse_drive *drive, int port)
{
    struct rehearse_endpoint endpoint = {port, drive->endpoint.prefix};
    uint64_t timeout_ms = port == drive->own_port ? OWN_MS : OTHER_MS;
    int status = 0;
    if (rehearse_ask(&endpoint, "/health", NULL, timeout_ms, &status, NULL, NULL) != MT_OK ||
        (status != 200 && status != 503))
        return 0;
    drive->endpoint = endpoint;
    drive->report->is_server = 1;
    drive->report->is_ready = status == 200;
    return 1;
}

/* The ports to ask: that which the server was given, else all that the program listens on. Servers
 * of Python listen on others too, where a question of ours would be taken for one of their
 * processes. */
static size_t ports_to_ask(const struct rehearse_drive *drive, int ports[PORTS_MAX])
{
    size_t n = rehearse_listening_ports("/proc", getpid(), ports, PORTS_MAX);
    if (!drive->own_port)
        return n;
    for (size_t i = 0; i < n; i++)
        if (ports[i] == drive->own_port) {
            ports[0] = drive->own_port;
            return 1;
        }
    return 0;
}

/* Asks for the server's health. llama.cpp's server listens before it has loaded the model, and
 * answers 503 until it has. */
static int finds_server(struct rehearse_drive *drive)
{
    int ports[PORTS_MAX];
    if (!may_ask(drive))
        return 0;
    if (drive->report->is_server && is_answering(drive, drive->endpoint.port))
        return drive->report->is_ready;
    if (!may_listen(drive))
        return 0;
    size_t n = ports_to_ask(drive, ports);
    if (n > 0 && !drive->http_started)
        drive->http_started = mt_http_start(NULL) == MT_OK;
    for (size_t i = 0; drive->http_started && i < n; i++)
        if (is_answering(drive, ports[i]))
            return drive->report->is_ready;
    return 0;
}

/* A program that shows no sign of work for long is stuck: no event, and no readiness. */
static int waits_too_long(const struct rehearse_drive *drive, uint64_t start_ns)
{
    const struct mt_rehearse_status *status = &drive->report->status;
    uint64_t waited_ns = mt_monotonic_ns() - start_ns;
    uint64_t quiet_ns = status->quiet_ns < waited_ns ? status->quiet_ns : waited_ns;
    uint64_t limit_ns = drive->settings->limit_ns;
    return quiet_ns > drive->start_limit_ns || (limit_ns && waited_ns > limit_ns);
}

/* Waits until a server is ready. Returns 0 where there is none to drive. */
static int wait_until_ready(struct rehearse_drive *drive)
{
    uint64_t start_ns = mt_monotonic_ns();
    struct rehearse_work work = {0};
    while (rehearse_drive_look(drive, LOOK_NS)) {
        uint64_t now_ns = mt_monotonic_ns();
        if (finds_server(drive))
            return 1;
        if (waits_too_long(drive, start_ns)) {
            drive->report->end = REHEARSE_STUCK;
            drive->report->works_on =
                rehearse_work_goes_on(&work, now_ns, rehearse_cpu_ns("/proc", getpid()));
            return 0;
        }
        rehearse_work_look(&work, now_ns, getpid());
        mt_drive_say(drive->settings->listener, "%s: %zu buffers, %.1f s",
                     drive->settings->label ? drive->settings->label : "rehearsing",
                     drive->report->status.n_events,
                     (double)drive->report->status.elapsed_ns / 1e9);
    }
    return 0;
}

/* A server of embeddings takes a micro-batch no larger than its batch. */
static uint64_t embedding_batch(const struct rehearse_command *command, char *const *environment)
{
    uint64_t batch =
        rehearse_flag_number(rehearse_flag_value(command, environment, REHEARSE_BATCH), 2048);
    uint64_t ubatch =
        rehearse_flag_number(rehearse_flag_value(command, environment, REHEARSE_UBATCH), 512);
    return ubatch < batch ? ubatch : batch;
}

static void serve(struct rehearse_drive *drive)
{
    struct rehearse_drive_report *report = drive->report;
    mt_rehearse_mark(drive->rehearsal, "ready");
    report->n_events_ready = report->status.n_events;
    report->end = REHEARSE_SERVED;
    if (drive->settings->n_requests > 0)
        rehearse_drive_requests(drive);
    rehearse_drive_look(drive, 0);
}

int rehearse_drive(struct mt_rehearsal *rehearsal, const struct rehearse_drive_settings *settings,
                   struct rehearse_drive_report *report, struct mt_error *error)
{
    struct rehearse_command command;
    struct rehearse_drive drive = {
        .rehearsal = rehearsal, .settings = settings, .report = report, .error = error};
    drive.start_ns = mt_monotonic_ns();
    drive.next_ports_ns = drive.start_ns + PORTS_NS;
    *report = (struct rehearse_drive_report){0};
    rehearse_command_copy(settings->argv, &command);
    const char *prefix = rehearse_flag_value(&command, settings->environment, REHEARSE_API_PREFIX);
    drive.endpoint.prefix = prefix ? prefix : "";
    drive.saves_slots =
        rehearse_flag_value(&command, settings->environment, REHEARSE_SLOT_SAVE_PATH) != NULL;
    drive.embeds = rehearse_flag_value(&command, settings->environment, REHEARSE_EMBEDDING) != NULL;
    drive.ranks = rehearse_flag_value(&command, settings->environment, REHEARSE_RERANK) != NULL;
    if (rehearse_is_python_server(&command))
        drive.own_port = (int)rehearse_flag_number(
            rehearse_flag_value(&command, settings->environment, REHEARSE_PORT), 0);
    drive.ubatch = embedding_batch(&command, settings->environment);
    drive.start_limit_ns = settings->start_ns ? settings->start_ns : REHEARSE_DEFAULT_START_NS;
    drive.drive_limit_ns = settings->drive_ns ? settings->drive_ns : REHEARSE_DEFAULT_DRIVE_NS;
    if (wait_until_ready(&drive))
        serve(&drive);
    if (drive.http_started)
        mt_http_stop();
    rehearse_command_finish(&command);
    return drive.code;
}
