/* SPDX-License-Identifier: MIT */
/* Complaints: a sentence to stderr for people, and the same as JSON to stdout for programs that
 * asked for JSON. A command complains where it stands and knows nothing of the second; what it said
 * is kept until it has ended, in the file's only variable. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error.h>

#include "cli/command.h"
#include "cli/console.h"
#include "emit/json.h"
#include "emit/text.h"

#define DETAILS_MAX    32
#define SENTENCE_BYTES 1024

/* The first complaint, with what was said after it. `code` is 0 where only the exit code tells what
 * kind it is. */
static struct {
    int is_made;
    int code;
    uint64_t offset;
    char sentence[SENTENCE_BYTES];
    char *details[DETAILS_MAX]; /* owned */
    size_t n_details;
} complaint;

static void keep_detail(const char *text, size_t length)
{
    if (!complaint.is_made || complaint.n_details == DETAILS_MAX)
        return;
    char *copy = strndup(text, length);
    if (copy)
        complaint.details[complaint.n_details++] = copy;
}

static void keep(int code, uint64_t offset, const char *text)
{
    if (complaint.is_made) {
        keep_detail(text, strlen(text));
        return;
    }
    complaint.is_made = 1;
    complaint.code = code;
    complaint.offset = offset;
    snprintf(complaint.sentence, sizeof complaint.sentence, "%s", text);
}

/* What came from a file or from argv must not steer the terminal. */
static void say(char *text)
{
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    fprintf(stderr, "memtally: %s\n", text);
}

void cli_complain(const char *format, ...)
{
    char text[SENTENCE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    keep(0, MT_NO_OFFSET, text);
    say(text);
}

void cli_complain_lines(const char *text, const char *before, int utf8)
{
    while (*text) {
        struct mt_strbuf line = {0};
        struct mt_strbuf escaped = {0};
        size_t length = strcspn(text, "\n");
        mt_strbuf_append(&line, text, length);
        mt_text_escape(&escaped, mt_strbuf_text(&line), utf8);
        fprintf(stderr, "%s%s\n", before, mt_strbuf_text(&escaped));
        keep_detail(text, length);
        mt_strbuf_finish(&escaped);
        mt_strbuf_finish(&line);
        text += length + (text[length] == '\n');
    }
}

int cli_exit_of(int error_code)
{
    switch (error_code) {
    case MT_OK:
        return CLI_EXIT_OK;
    case MT_EARG:
    case MT_ENOTFOUND:
    case MT_EFORMAT:
    case MT_ETRUNCATED:
    case MT_EVERSION:
    case MT_ECORRUPT:
    case MT_EBUSY:
        return CLI_EXIT_USAGE;
    case MT_EPERM:
    case MT_EUNSUPPORTED:
    case MT_ENOMEM:
        return CLI_EXIT_CANNOT;
    default:
        return CLI_EXIT_NO;
    }
}

int cli_fail(const struct mt_error *error)
{
    const char *text = error->text[0] ? error->text : mt_error_sentence(error->code);
    char said[SENTENCE_BYTES];
    keep(error->code, error->text[0] ? error->offset : MT_NO_OFFSET, text);
    if (error->offset != MT_NO_OFFSET && error->text[0])
        snprintf(said, sizeof said, "%s (at byte %" PRIu64 ")", text, error->offset);
    else
        snprintf(said, sizeof said, "%s", text);
    say(said);
    return cli_exit_of(error->code);
}

/* What an exit code says of the kind of a failure that nothing else is known of. */
static int error_code_of(int exit_code)
{
    switch (exit_code) {
    case CLI_EXIT_USAGE:
        return MT_EARG;
    case CLI_EXIT_CANNOT:
        return MT_EUNSUPPORTED;
    case CLI_EXIT_NOT_EXECUTABLE:
        return MT_EPERM;
    case CLI_EXIT_NOT_FOUND:
        return MT_ENOTFOUND;
    default:
        return exit_code > 128 ? MT_ECANCELLED : MT_ECHILD;
    }
}

static void write_json(const char *command, int exit_code, struct mt_strbuf *out)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "error");
    mt_json_text(&json, "command", command);
    mt_json_begin_object(&json, "error");
    mt_json_text(&json, "code",
                 mt_error_name(complaint.code ? complaint.code : error_code_of(exit_code)));
    mt_json_text(&json, "sentence", complaint.sentence);
    mt_json_count(&json, "byte", complaint.offset);
    mt_json_count(&json, "exit_status", (uint64_t)exit_code);
    mt_json_begin_array(&json, "details");
    for (size_t i = 0; i < complaint.n_details; i++)
        mt_json_text(&json, NULL, complaint.details[i]);
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

static void forget(void)
{
    for (size_t i = 0; i < complaint.n_details; i++)
        free(complaint.details[i]);
    memset(&complaint, 0, sizeof complaint);
}

int cli_conclude(const char *command, int wants_json, int exit_code, struct mt_strbuf *out)
{
    int is_written = complaint.is_made && wants_json && exit_code != CLI_EXIT_OK;
    if (is_written)
        write_json(command, exit_code, out);
    forget();
    return is_written;
}
