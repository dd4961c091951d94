/* SPDX-License-Identifier: MIT */
/* Waiting for a rehearsed program and driving it where it is a server. */
#include "serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <memtally/error_code.h>
#include <memtally/rehearsal_events.h>

#include "base/ticks.h"
#include "flags.h"
#include "net/http_client.h"
#include "ports.h"
#include "serve_internal.h"
#include "settled.h"

#define MS        ((uint64_t)1000 * 1000)
#define LOOK_NS   (20 * MS)
#define PORTS_MAX 16
#define PORTS_NS  (250 * MS)
#define OTHER_MS  1000  /* for an answer of a port that may be of anything */
#define OWN_MS    20000 /* of the server's: SGLang writes a token before it calls itself healthy */
#define ASK_NS    (500 * MS) /* at most between two questions whether a server is ready */
#define ASK_PART  32         /* of the time that it has taken so far */

/* A server is reached from this machine alone, without a key or encryption, and takes no port that
 * another one may have. Some ask themselves at the port that they were given, which is never 0. */
static void shield(struct mt_drive_command *command)
{
    static const enum mt_drive_flag dropped[] = {MT_DRIVE_API_KEY, MT_DRIVE_API_KEY_FILE,
                                                 MT_DRIVE_SSL_KEY_FILE, MT_DRIVE_SSL_CERT_FILE,
                                                 MT_DRIVE_REUSE_PORT};
    char port[16] = "0";
    if (mt_drive_command_is(command, "server.port", "given"))
        snprintf(port, sizeof port, "%d", mt_drive_free_port("/proc"));
    mt_drive_flag_set(command, MT_DRIVE_HOST, "127.0.0.1");
    mt_drive_flag_set(command, MT_DRIVE_PORT, port);
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        mt_drive_flag_drop(command, dropped[i]);
}

char **mt_drive_argv(char *const *argv, const char *directory)
{
    struct mt_drive_command command;
    mt_drive_command_copy(argv, &command);
    if (command.program == MT_DRIVE_SERVER)
        shield(&command);
    if (mt_drive_flag_value(&command, NULL, MT_DRIVE_SLOT_SAVE_PATH))
        mt_drive_flag_set(&command, MT_DRIVE_SLOT_SAVE_PATH, directory);
    return mt_drive_command_take(&command);
}

void mt_drive_argv_free(char **argv)
{
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

/* Whether it is time to look for ports: the program was seen to listen, or it is a while since the
 * last look, for a process that nothing is preloaded into. */
static int may_listen(struct mt_drive_state *drive)
{
    const struct mt_rehearsal_event *event;
    while (!drive->listens &&
           (event = mt_rehearsal_event_at(drive->rehearsal, drive->n_looked_at)) != NULL) {
        drive->listens = event->kind == MT_REHEARSAL_MARK && strcmp(event->name, "listen") == 0;
        drive->n_looked_at++;
    }
    uint64_t now_ns = mt_monotonic_ns();
    if (!drive->listens && now_ns < drive->next_ports_ns)
        return 0;
    drive->next_ports_ns = now_ns + PORTS_NS;
    return 1;
}

/* A question costs the server time, and the machine a port for a minute. */
uint64_t mt_drive_ask_pause_ns(uint64_t waited_ns)
{
    uint64_t pause_ns = waited_ns / ASK_PART;
    return pause_ns < ASK_NS ? pause_ns : ASK_NS;
}

static int may_ask(struct mt_drive_state *drive)
{
    uint64_t now_ns = mt_monotonic_ns();
    if (now_ns < drive->next_ask_ns)
        return 0;
    drive->next_ask_ns = now_ns + mt_drive_ask_pause_ns(now_ns - drive->start_ns);
    return 1;
}

static int is_answering(struct mt_drive_state *drive, int port)
{
    struct mt_drive_endpoint endpoint = {port, drive->endpoint.prefix};
    uint64_t timeout_ms = port == drive->own_port ? OWN_MS : OTHER_MS;
    char path[MT_DRIVE_ENGINE_TEXT];
    int status = 0;
    if (mt_drive_ask(&endpoint, mt_drive_path(drive, "health", path), NULL, timeout_ms, &status,
                     NULL, NULL) != MT_OK ||
        (status != 200 && status != 503))
        return 0;
    drive->endpoint = endpoint;
    drive->report->is_server = 1;
    drive->report->is_ready = status == 200;
    return 1;
}

/* The ports to ask: that which the server was given, else all that the program listens on. Some
 * listen on others too, where a question of ours would be taken for one of their
 * processes. */
static size_t ports_to_ask(const struct mt_drive_state *drive, int ports[PORTS_MAX])
{
    size_t n = mt_drive_listening_ports("/proc", getpid(), ports, PORTS_MAX);
    if (!drive->own_port)
        return n;
    for (size_t i = 0; i < n; i++)
        if (ports[i] == drive->own_port) {
            ports[0] = drive->own_port;
            return 1;
        }
    return 0;
}

/* Asks for the server's health. One that listens before it has loaded the model answers 503 until
 * it has. */
static int finds_server(struct mt_drive_state *drive)
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
static int waits_too_long(const struct mt_drive_state *drive, uint64_t start_ns)
{
    const struct mt_rehearsal_status *status = &drive->report->status;
    uint64_t waited_ns = mt_monotonic_ns() - start_ns;
    uint64_t quiet_ns = status->quiet_ns < waited_ns ? status->quiet_ns : waited_ns;
    uint64_t limit_ns = drive->settings->limit_ns;
    return quiet_ns > drive->start_limit_ns || (limit_ns && waited_ns > limit_ns);
}

/* Waits until a server is ready. Returns 0 where there is none to drive. */
static int wait_until_ready(struct mt_drive_state *drive)
{
    uint64_t start_ns = mt_monotonic_ns();
    struct mt_drive_work work = {0};
    while (mt_drive_look(drive, LOOK_NS)) {
        uint64_t now_ns = mt_monotonic_ns();
        if (finds_server(drive))
            return 1;
        if (waits_too_long(drive, start_ns)) {
            drive->report->end = MT_DRIVE_STUCK;
            drive->report->works_on =
                mt_drive_work_goes_on(&work, now_ns, mt_drive_cpu_ns("/proc", getpid()));
            return 0;
        }
        mt_drive_work_look(&work, now_ns, getpid());
        mt_drive_say(drive->settings->listener, "%s: %zu buffers, %.1f s",
                     drive->settings->label ? drive->settings->label : "rehearsing",
                     drive->report->status.n_events,
                     (double)drive->report->status.elapsed_ns / 1e9);
    }
    return 0;
}

/* A server of embeddings takes a micro-batch no larger than its batch. */
static uint64_t embedding_batch(const struct mt_drive_command *command, char *const *environment)
{
    uint64_t batch =
        mt_drive_flag_number(mt_drive_flag_value(command, environment, MT_DRIVE_BATCH), 2048);
    uint64_t ubatch =
        mt_drive_flag_number(mt_drive_flag_value(command, environment, MT_DRIVE_UBATCH), 512);
    return ubatch < batch ? ubatch : batch;
}

static void serve(struct mt_drive_state *drive)
{
    struct mt_drive_report *report = drive->report;
    mt_rehearsal_mark(drive->rehearsal, "ready");
    report->n_events_ready = report->status.n_events;
    report->end = MT_DRIVE_SERVED;
    if (drive->settings->n_requests > 0)
        mt_drive_requests(drive);
    mt_drive_look(drive, 0);
}

int mt_drive_to_end(struct mt_rehearsal *rehearsal, const struct mt_drive_settings *settings,
                    struct mt_drive_report *report, struct mt_error *error)
{
    struct mt_drive_command command;
    struct mt_drive_state drive = {
        .rehearsal = rehearsal, .settings = settings, .report = report, .error = error};
    drive.start_ns = mt_monotonic_ns();
    drive.next_ports_ns = drive.start_ns + PORTS_NS;
    *report = (struct mt_drive_report){0};
    mt_drive_command_copy(settings->argv, &command);
    drive.engine = command.engine;
    const char *prefix = mt_drive_flag_value(&command, settings->environment, MT_DRIVE_API_PREFIX);
    drive.endpoint.prefix = prefix ? prefix : "";
    drive.saves_slots =
        mt_drive_flag_value(&command, settings->environment, MT_DRIVE_SLOT_SAVE_PATH) != NULL;
    drive.embeds = mt_drive_flag_value(&command, settings->environment, MT_DRIVE_EMBEDDING) != NULL;
    drive.ranks = mt_drive_flag_value(&command, settings->environment, MT_DRIVE_RERANK) != NULL;
    if (mt_drive_command_is(&command, "server.port", "given"))
        drive.own_port = (int)mt_drive_flag_number(
            mt_drive_flag_value(&command, settings->environment, MT_DRIVE_PORT), 0);
    drive.ubatch = embedding_batch(&command, settings->environment);
    drive.start_limit_ns = settings->start_ns ? settings->start_ns : MT_DRIVE_DEFAULT_START_NS;
    drive.drive_limit_ns = settings->drive_ns ? settings->drive_ns : MT_DRIVE_DEFAULT_DRIVE_NS;
    if (wait_until_ready(&drive))
        serve(&drive);
    if (drive.http_started)
        mt_http_stop();
    mt_drive_command_finish(&command);
    return drive.code;
}
