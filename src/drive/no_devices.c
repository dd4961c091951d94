/* SPDX-License-Identifier: MIT */
/* Why no process of a program took the pretended devices, and what would work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job.h"
#include "last_words.h"
#include "ports.h"
#include "program_file.h"
#include "words.h"

#define DESCENDANTS_MAX 1024

#define SAY(result, ...) snprintf((result)->why, sizeof(result)->why, __VA_ARGS__)

/* Whether a file is memtally: it knows ggml's names, and is none. */
static int is_memtally(const char *path)
{
    struct stat own;
    struct stat other;
    return stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 &&
           own.st_ino == other.st_ino && own.st_dev == other.st_dev;
}

/* Whether a process has ggml in it, and not the pretended devices. */
static int has_bare_ggml(pid_t pid)
{
    char path[64];
    char *line = NULL;
    size_t size = 0;
    int has_engine = 0;
    int is_pretending = 0;
    snprintf(path, sizeof path, "/proc/%ld/maps", (long)pid);
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &size, file) > 0) {
        has_engine |= strstr(line, "/libggml") != NULL;
        is_pretending |= strstr(line, "/libmemtally-pretend-ggml") != NULL;
    }
    free(line);
    if (file)
        fclose(file);
    return has_engine && !is_pretending;
}

void mt_drive_look_for_ggml(struct mt_drive_result *result)
{
    pid_t pids[DESCENDANTS_MAX];
    size_t n = mt_drive_descendants("/proc", getpid(), pids, DESCENDANTS_MAX);
    for (size_t i = 0; i < n; i++)
        result->has_bare_ggml |= has_bare_ggml(pids[i]);
}

/* How the program ended, for the end of a sentence. */
static const char *end_of(const struct mt_drive_result *result, char text[64])
{
    if (result->status.running)
        snprintf(text, 64, "was stopped by memtally after %.0f s",
                 (double)result->status.elapsed_ns / 1e9);
    else if (result->status.signal)
        snprintf(text, 64, "was killed by signal %d", result->status.signal);
    else
        snprintf(text, 64, "ended with status %d", result->status.exit_code);
    return text;
}

#define LINE_BYTES 240

static int has_failed(const struct mt_drive_result *result)
{
    return !result->status.running && result->status.exit_code != 0;
}

/* Why a program's ggml took no device, or nothing came into the program at all. Returns 0 where the
 * object came in and met no ggml. */
static int explain_ggml(const char *name, struct mt_drive_result *result)
{
    const struct mt_rehearsal_status *status = &result->status;
    char end[64];
    if (status->refusal)
        SAY(result,
            "the ggml of %.80s takes no pretended devices: %.150s; known are builds of llama.cpp "
            "from 8881 to 11739, with shared libraries",
            name, status->refusal);
    else if (result->has_bare_ggml)
        SAY(result,
            "%.80s runs a ggml that the pretended devices did not reach: something took LD_PRELOAD "
            "or MEMTALLY_REHEARSAL out of the environment (env -i, env -u) or set an LD_PRELOAD of "
            "its own",
            name);
    else if (!status->n_preloaded && strstr(result->words, "ASan runtime does not come first"))
        SAY(result,
            "%.80s is built with the address sanitizer, which must be loaded before anything else; "
            "set ASAN_OPTIONS=verify_asan_link_order=0",
            name);
    else if (!status->n_preloaded)
        SAY(result,
            "the pretended devices could not be loaded into %.80s: its interpreter or what it "
            "starts is linked statically, has rights of its own or is of another architecture",
            name);
    else if (status->api_version && has_failed(result))
        SAY(result, "%.80s has ggml in it and %s before it took a device", name,
            end_of(result, end));
    else if (status->api_version)
        SAY(result,
            "%.80s has ggml in it and took no device: it was built without loading of backends "
            "(ggml_backend_load) or hides it; rehearse a build with shared libraries "
            "(-DBUILD_SHARED_LIBS=ON)",
            name);
    else
        return 0;
    return 1;
}

/* The same by the program's file, which ggml may be linked into. */
static int explain_file(const char *name, char *const *environment, struct mt_drive_result *result)
{
    char path[PATH_MAX];
    if (!mt_drive_find_in_path(name, environment, path))
        return 0;
    if (is_memtally(path))
        SAY(result,
            "memtally itself has no ggml, and a rehearsal of its own would have devices of its "
            "own; rehearse the engine");
    else if (mt_drive_has_ggml(path))
        SAY(result,
            "%.80s has ggml linked into it, out of reach of devices from outside; rehearse a "
            "build with shared libraries (-DBUILD_SHARED_LIBS=ON)",
            name);
    else
        return 0;
    return 1;
}

/* A program that had the devices and took none, by how it ended. */
static void explain_end(const char *name, struct mt_drive_result *result)
{
    char end[64];
    char line[LINE_BYTES];
    int has_line =
        mt_drive_last_line(*result->said ? result->said : result->words, line, sizeof line);
    if (has_failed(result))
        SAY(result, "%.80s %s before it %s%s%s", name, end_of(result, end),
            result->has_cuda ? "took a device" : "loaded ggml", has_line ? "; it said: " : "",
            has_line ? line : "");
    else if (result->status.running)
        SAY(result,
            "%.80s %s (--timeout, or a minute without a sign of work), and no process of it had "
            "%s by then",
            name, end_of(result, end), result->has_cuda ? "taken a device" : "loaded ggml");
    else if (result->has_cuda)
        SAY(result,
            "no process of %.80s took a device, of CUDA or of ggml: it needs none, never came to "
            "it, or was started without the LD_PRELOAD that brings the devices (env -i, a script "
            "that sets its own)",
            name);
    else
        SAY(result,
            "no process of %.80s loaded ggml: it is not built on it, never needed it, or was "
            "started without the LD_PRELOAD that brings the devices (env -i, a script that sets "
            "its own)",
            name);
}

/* Most programs that met no device were given none. */
static void add_hint(const struct mt_drive_job *job, struct mt_drive_result *result)
{
    size_t length = strlen(result->why);
    if (!job->n_devices && length < sizeof result->why)
        snprintf(result->why + length, sizeof result->why - length,
                 "; without --device there are no pretended GPUs: name them, as --device 24GiB or "
                 "--device H100-80GB");
}

void mt_drive_explain_no_devices(const struct mt_drive_job *job, struct mt_drive_result *result)
{
    const char *name = job->argv[0];
    if (result->has_cuda && mt_drive_explain_no_cuda(job, result))
        return;
    if (explain_ggml(name, result) || explain_file(name, job->environment, result))
        return;
    explain_end(name, result);
    add_hint(job, result);
}
