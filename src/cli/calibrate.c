/* SPDX-License-Identifier: MIT */
/* Measuring this machine's cards, each in a process of its own: what the driver takes for it goes
 * when it ends. */
#include "cli/calibrate.h"

#include <errno.h>
#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/units.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fail_errno.h"
#include "cli/card_store.h"
#include "cli/command.h"
#include "cli/console.h"
#include "emit/json.h"

#define PATIENCE_MS 60000 /* a driver that does not come up */

/* What the child says. */
struct answer {
    int result;
    struct mt_calibration card;
    struct mt_error error;
};

static void measure(int index, int fd)
{
    struct answer answer;
    memset(&answer, 0, sizeof answer);
    answer.error.offset = MT_NO_OFFSET;
    answer.result = mt_calibrate(index, &answer.card, &answer.error);
    const char *at = (const char *)&answer;
    for (size_t left = sizeof answer; left;) {
        ssize_t n = write(fd, at + sizeof answer - left, left);
        if (n <= 0)
            break;
        left -= (size_t)n;
    }
    _exit(0);
}

/* Whether all of the answer came. */
static int read_answer(int fd, struct answer *answer)
{
    size_t got = 0;
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    while (got < sizeof *answer) {
        int ready = poll(&waiting, 1, PATIENCE_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t n = ready > 0 ? read(fd, (char *)answer + got, sizeof *answer - got) : -1;
        if (n <= 0)
            return 0;
        got += (size_t)n;
    }
    return 1;
}

static int measure_apart(int index, struct mt_calibration *card, struct mt_error *error)
{
    struct answer answer;
    int ends[2];
    if (pipe(ends) != 0)
        return mt_fail_errno(error, errno, "a pipe");
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        measure(index, ends[1]);
    }
    close(ends[1]);
    int is_whole = child > 0 && read_answer(ends[0], &answer);
    close(ends[0]);
    if (child > 0) {
        if (!is_whole)
            kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    if (!is_whole)
        return mt_fail(error, MT_EIO, MT_NO_OFFSET,
                       "device %d does not answer: a call of CUDA's driver did not return; see "
                       "nvidia-smi",
                       index);
    *card = answer.card;
    if (answer.result < 0 && error)
        *error = answer.error;
    return answer.result;
}

/* Device after device, until there is no further one. */
static int measure_all(struct cli_cards *cards, struct mt_error *error)
{
    int result = 0;
    cards->n = 0;
    while (result == 0 && cards->n < CLI_CARDS_KEPT) {
        result = measure_apart((int)cards->n, &cards->card[cards->n], error);
        cards->n += result == 0;
    }
    return result == MT_ENOTFOUND && cards->n ? 0 : result;
}

static void put_size(struct mt_strbuf *out, const char *name, uint64_t bytes)
{
    char size[MT_SIZE_TEXT];
    if (bytes != MT_UNKNOWN)
        mt_strbuf_printf(out, "  %-28s %12s\n", name, mt_format_size(bytes, size));
}

static void put_card(struct mt_strbuf *out, size_t index, const struct mt_calibration *card)
{
    mt_strbuf_printf(out, "gpu:%zu  %s, driver for CUDA %" PRIu32 ".%" PRIu32 "\n", index,
                     card->name, card->driver_version / 1000, card->driver_version % 1000 / 10);
    put_size(out, "context of a process", card->context_bytes);
    put_size(out, "a first kernel", card->module_bytes);
    put_size(out, "a handle of cuBLAS", card->blas_bytes);
    put_size(out, "a first product of matrices", card->blas_code_bytes);
    put_size(out, "a node of a graph", card->graph_node_bytes);
    if (card->nvml_total_bytes > card->total_bytes)
        put_size(out, "held back of every process", card->nvml_total_bytes - card->total_bytes);
    if (card->is_disturbed)
        mt_strbuf_puts(out,
                       "  Other programs used the card meanwhile: measure again without them.\n");
}

static void put_table(struct mt_strbuf *out, const struct cli_cards *cards, const char *path)
{
    for (size_t i = 0; i < cards->n; i++)
        put_card(out, i, &cards->card[i]);
    mt_strbuf_printf(
        out, "Estimates and rehearsals of %s take these from now on; they are kept in %s.\n",
        cards->n == 1 ? "this card" : "these cards", path);
}

static void put_figure(struct mt_json *json, const char *name, uint64_t figure)
{
    if (figure == MT_UNKNOWN)
        mt_json_text(json, name, NULL);
    else
        mt_json_count(json, name, figure);
}

static void put_json(struct mt_strbuf *out, const struct cli_cards *cards)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "calibration");
    mt_json_begin_array(&json, "cards");
    for (size_t i = 0; i < cards->n; i++) {
        const struct mt_calibration *card = &cards->card[i];
        mt_json_begin_object(&json, NULL);
        mt_json_text(&json, "name", card->name);
        mt_json_text(&json, "uuid", card->uuid);
        mt_json_count(&json, "driver_version", card->driver_version);
        mt_json_count(&json, "total_bytes", card->total_bytes);
        mt_json_count(&json, "nvml_total_bytes", card->nvml_total_bytes);
        put_figure(&json, "context_bytes", card->context_bytes);
        put_figure(&json, "module_bytes", card->module_bytes);
        put_figure(&json, "blas_bytes", card->blas_bytes);
        put_figure(&json, "blas_code_bytes", card->blas_code_bytes);
        put_figure(&json, "graph_node_bytes", card->graph_node_bytes);
        mt_json_bool(&json, "disturbed", card->is_disturbed);
        mt_json_end(&json);
    }
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

int cli_calibrate(int is_json)
{
    struct cli_cards cards;
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_strbuf out = {0}, path = {0};
    int result = measure_all(&cards, &error);
    if (result == 0)
        result = cli_cards_keep(&cards, &error);
    if (result < 0) {
        cli_complain("doctor: %s", error.text);
        return CLI_EXIT_CANNOT;
    }
    cli_cards_path(&path, NULL);
    if (is_json)
        put_json(&out, &cards);
    else
        put_table(&out, &cards, mt_strbuf_text(&path));
    int code = cli_print(&out);
    mt_strbuf_finish(&path);
    mt_strbuf_finish(&out);
    return code;
}
