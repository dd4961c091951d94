/* SPDX-License-Identifier: MIT */
/* Sentences of the loader, of PyTorch and of engines, and what they come to. Those of engines stand
 * in their tables. */
#include "words.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sentences.h"

#define SAY(result, ...) snprintf((result)->why, sizeof(result)->why, __VA_ARGS__)

/* Appends the end of a file, without zeros, to a text. */
static size_t read_end(const char *folder, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    struct stat status;
    size_t n = 0;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX)
        return 0;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        off_t from = status.st_size > (off_t)size ? status.st_size - (off_t)size : 0;
        ssize_t got = pread(fd, text, size, from);
        for (ssize_t i = 0; i < got; i++)
            if (text[i])
                text[n++] = text[i];
    }
    close(fd);
    return n;
}

void mt_drive_read_refusal(struct mt_drive_result *result)
{
    size_t half = sizeof result->said / 2 - 1;
    size_t n = read_end(result->folder, "output", result->said, half);
    result->said[n++] = '\n';
    n += read_end(result->folder, "errors", result->said + n, half);
    result->said[n] = '\0';
}

/* The name of a library that the loader or Python missed: what stands before ": cannot open". */
static int missing_library(const char *said, char name[64])
{
    const char *at = strstr(said, ": cannot open shared object file");
    if (!at)
        return 0;
    const char *begin = at;
    while (begin > said && !strchr(" \n:'\"", begin[-1]))
        begin--;
    snprintf(name, 64, "%.*s", (int)(at - begin), begin);
    return *name != '\0';
}

/* A library of CUDA's: it is pretended in some versions, or not at all. */
static int is_of_cuda(const char *name)
{
    static const char *const begins[] = {"libcu", "libnv", "libnccl", "libcudnn"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(name, begins[i], strlen(begins[i])))
            return 1;
    return 0;
}

static const char *hidden_by(const struct mt_drive_job *job)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES=";
    char *const *at = job->environment;
    for (; at && *at; at++)
        if (!strncmp(*at, name, sizeof name - 1) &&
            (!(*at)[sizeof name - 1] || (*at)[sizeof name - 1] == '-'))
            return *at;
    return NULL;
}

static void explain_private(struct mt_drive_result *result)
{
    const char *library = result->status.private_library;
    SAY(result,
        "%.95s brings NVIDIA's own runtime with it, linked statically or in a package of its own, "
        "and that asks whether the driver is NVIDIA's: it cannot be rehearsed; a build that links "
        "libcudart.so can",
        library ? library : "a library of the program");
}

int mt_drive_explain_private(struct mt_drive_result *result)
{
    static const char *const words[] = {"named symbol not found", "cudaErrorSymbolNotFound"};
    int is_told = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is_told |= strstr(result->said, words[i]) != NULL;
    if (!is_told || !result->status.n_private || result->outcome != MT_DRIVE_FAILS)
        return 0;
    explain_private(result);
    return 1;
}

int mt_drive_explain_no_cuda(const struct mt_drive_job *job, struct mt_drive_result *result)
{
    const struct mt_rehearsal_status *status = &result->status;
    const char *name = job->argv[0];
    char library[64];
    if (result->refusal && !status->n_contexts)
        SAY(result,
            "%.20s has no room for the context of a process: it takes %" PRIu64 " MiB, and %" PRIu64
            " MiB are free",
            result->refusal->place, result->refusal->bytes >> 20,
            result->refusal->free_bytes >> 20);
    else if (status->n_private && !status->n_contexts)
        explain_private(result);
    else if (missing_library(result->said, library) && is_of_cuda(library))
        SAY(result,
            "%.80s needs %.60s, which a rehearsal does not have: it knows the libraries of CUDA 12 "
            "and 13",
            name, library);
    else if (hidden_by(job))
        SAY(result, "%.80s sees no device, because %.60s is set; unset it, or name devices in it",
            name, hidden_by(job));
    else if (status->n_askings && !status->n_contexts && !status->running && !status->exit_code &&
             !status->signal)
        SAY(result,
            "%.80s asked CUDA or NVML what devices there are and took none: it made no context, so "
            "there is nothing to tally",
            name);
    else
        return 0;
    return 1;
}

static int explain(struct mt_drive_result *result, int of_foresight)
{
    struct mt_drive_sentence sentence;
    char value[24] = "";
    if (!mt_drive_sentence_find(result->said, of_foresight, &sentence))
        return 0;
    const char *number = *sentence.number ? strstr(result->said, sentence.number) : NULL;
    int lacks_number = *sentence.number && !number;
    if (number)
        snprintf(value, sizeof value, " %ld", strtol(number + strlen(sentence.number), NULL, 10));
    SAY(result, "%s, as the engine itself says%s%s%s", sentence.why,
        lacks_number ? "" : "; what would fit: ", lacks_number ? "" : sentence.change, value);
    return 1;
}

int mt_drive_explain_engine(struct mt_drive_result *result)
{
    return explain(result, 0);
}

int mt_drive_explain_foresight(struct mt_drive_result *result)
{
    return explain(result, 1);
}

/* Lines of a traceback that are of the program itself, not of what it imports. */
static int is_own_code(const char *path, size_t length)
{
    static const char *const foreign[] = {
        "/site-packages/", "/dist-packages/", "/memtally/pretend/", "/memtally/watch/",
        "/lib/python",     "/bin/",           "/rehearse_", /* our own programs */
        "<frozen "};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (memmem(path, length, foreign[i], strlen(foreign[i])))
            return 0;
    return 1;
}

int mt_drive_python_place(const char *said, char *text, size_t size)
{
    static const char begin[] = "File \"";
    static const char middle[] = "\", line ";
    int found = 0;
    for (const char *at = said; (at = strstr(at, begin)) != NULL;) {
        const char *path = at + sizeof begin - 1;
        size_t length = strcspn(path, "\"\n");
        at = path + length;
        if (strncmp(at, middle, sizeof middle - 1) != 0 || !is_own_code(path, length))
            continue;
        long line = strtol(at + sizeof middle - 1, NULL, 10);
        const char *slash = memrchr(path, '/', length);
        const char *name = slash ? slash + 1 : path;
        snprintf(text, size, "at line %ld of %.*s", line, (int)(path + length - name), name);
        found = 1;
    }
    return found;
}

/* The number, with its point, that ends at `end`. */
static int number_before(const char *said, const char *end, char number[16])
{
    const char *begin = end;
    while (begin > said && (strchr("0123456789.", begin[-1])))
        begin--;
    snprintf(number, 16, "%.*s", (int)(end - begin), begin);
    return end > begin && end - begin < 16;
}

/* What the engine wanted for its cache and what it had, "" where it does not say. */
static void find_wanted(const char *said, char text[64])
{
    size_t length;
    size_t had_length;
    const char *wanted = mt_drive_words_find(said, "says.wanted", &length);
    const char *had = wanted ? mt_drive_words_find(wanted, "says.there", &had_length) : NULL;
    const char *had_end = had ? strstr(had, " GiB)") : NULL;
    char numbers[2][16];
    text[0] = '\0';
    while (wanted && wanted > said && wanted[-1] == ' ')
        wanted--;
    if (had_end && number_before(said, wanted, numbers[0]) &&
        number_before(had, had_end, numbers[1]))
        snprintf(text, 64, "%s GiB are wanted, %s GiB are there", numbers[0], numbers[1]);
}

/* The phase of the engine that began last: it is in it, or past it. */
static void find_last_phase(struct mt_rehearsal *rehearsal, char text[128])
{
    struct mt_rehearsal_phase phase;
    uint64_t begun_ns = 0;
    text[0] = '\0';
    if (rehearsal)
        mt_rehearsal_refresh(rehearsal);
    for (size_t i = 0; rehearsal && mt_rehearsal_phase_at(rehearsal, i, &phase) == 0; i++) {
        if (phase.begin_ns < begun_ns)
            continue;
        begun_ns = phase.begin_ns;
        snprintf(text, 128, "%s the engine's phase '%.80s'",
                 phase.end_ns == UINT64_MAX ? "in" : "after", phase.name);
    }
}

void mt_drive_add_circumstances(struct mt_drive_result *result)
{
    char wanted[64];
    char phase[128];
    size_t length = strlen(result->why);
    find_wanted(result->said, wanted);
    find_last_phase(result->rehearsal, phase);
    if (*wanted || *phase)
        snprintf(result->why + length, sizeof result->why - length, " (%s%s%s)", wanted,
                 *wanted && *phase ? ", " : "", phase);
}
