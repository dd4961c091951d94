/* SPDX-License-Identifier: MIT */
/* The writer of speedscope documents. */
#include "emit/speedscope.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "emit/text.h"

struct document {
    json_t *numbers; /* frame -> its number */
    json_t *frames;
    json_t *samples;
    json_t *weights;
    int failed;
};

static void put(struct document *document, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) < 0)
        document->failed = 1;
}

static void append(struct document *document, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) < 0)
        document->failed = 1;
}

/* Where " (file:line)" begins; NULL where the frame has no such end. Names of C++ and of folders
 * have brackets too: it is the bracket that closes at the end. */
static const char *find_file(const char *frame, const char **colon)
{
    size_t length = strlen(frame);
    if (length < 2 || frame[length - 1] != ')')
        return NULL;
    size_t at = length - 1;
    while (at && frame[at - 1] >= '0' && frame[at - 1] <= '9')
        at--;
    if (at == length - 1 || at < 2 || frame[at - 1] != ':')
        return NULL;
    *colon = frame + at - 1;
    size_t depth = 1;
    while (at-- > 1 && depth) {
        depth += frame[at] == ')';
        depth -= frame[at] == '(';
        if (!depth && frame[at - 1] == ' ')
            return frame + at - 1;
    }
    return NULL;
}

static json_t *frame_object(struct document *document, const char *frame)
{
    const char *colon = NULL;
    const char *file = find_file(frame, &colon);
    json_t *object = json_object();
    put(document, object, "name",
        json_stringn(frame, file ? (size_t)(file - frame) : strlen(frame)));
    if (file) {
        put(document, object, "file", json_stringn(file + 2, (size_t)(colon - file - 2)));
        put(document, object, "line", json_integer(strtoll(colon + 1, NULL, 10)));
    }
    return object;
}

static json_t *frame_number(struct document *document, const char *frame)
{
    struct mt_strbuf repaired = {0};
    mt_text_repair(&repaired, frame && *frame ? frame : "[unknown]");
    const char *key = mt_strbuf_text(&repaired);
    json_t *known = json_object_get(document->numbers, key);
    size_t number = known ? (size_t)json_integer_value(known) : json_array_size(document->frames);
    if (!known) {
        put(document, document->numbers, key, json_integer((json_int_t)number));
        append(document, document->frames, frame_object(document, key));
    }
    document->failed |= mt_strbuf_failed(&repaired);
    mt_strbuf_finish(&repaired);
    return json_integer((json_int_t)number);
}

static void add_stack(struct document *document, const struct mt_speedscope_stack *stack)
{
    json_t *sample = json_array();
    if (stack->place)
        append(document, sample, frame_number(document, stack->place));
    if (!stack->complete)
        append(document, sample, frame_number(document, "[truncated]"));
    for (size_t i = stack->n_frames; i-- > 0;)
        append(document, sample, frame_number(document, stack->frames[i]));
    append(document, document->samples, sample);
    append(document, document->weights, json_integer((json_int_t)stack->bytes));
}

static int write_piece(const char *bytes, size_t length, void *out)
{
    mt_strbuf_append(out, bytes, length);
    return mt_strbuf_failed(out) ? -1 : 0;
}

static json_t *make_profile(struct document *document, const char *name, uint64_t bytes)
{
    json_t *profile = json_object();
    put(document, profile, "type", json_string("sampled"));
    put(document, profile, "name", json_string(name));
    put(document, profile, "unit", json_string("bytes"));
    put(document, profile, "startValue", json_integer(0));
    put(document, profile, "endValue", json_integer((json_int_t)bytes));
    put(document, profile, "samples", document->samples);
    put(document, profile, "weights", document->weights);
    return profile;
}

void mt_speedscope(struct mt_strbuf *out, const char *name,
                   const struct mt_speedscope_stack *stacks, size_t n)
{
    struct document document = {json_object(), json_array(), json_array(), json_array(), 0};
    json_t *root = json_object();
    json_t *shared = json_object();
    json_t *profiles = json_array();
    struct mt_strbuf title = {0};
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        add_stack(&document, &stacks[i]);
        bytes += stacks[i].bytes;
    }
    mt_text_repair(&title, name);
    put(&document, root, "$schema",
        json_string("https://www.speedscope.app/file-format-schema.json"));
    put(&document, shared, "frames", document.frames);
    put(&document, root, "shared", shared);
    append(&document, profiles, make_profile(&document, mt_strbuf_text(&title), bytes));
    put(&document, root, "profiles", profiles);
    put(&document, root, "activeProfileIndex", json_integer(0));
    put(&document, root, "exporter", json_string("memtally"));
    if (document.failed || json_dump_callback(root, write_piece, out, JSON_COMPACT))
        out->failed = 1;
    mt_strbuf_puts(out, "\n");
    json_decref(document.numbers);
    json_decref(root);
    mt_strbuf_finish_part(&title, out);
}
