/* SPDX-License-Identifier: MIT */
/* Replays a captured machine. For tests only. */
#include "tests/support/unit.h"

#include "tests/support/replay.h"
#include "tests/unit/device/replay_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 256 };

struct entry {
    char path[256];
    const char *content;
    size_t length;
    const char *target; /* of a link, or NULL */
    size_t target_length;
    int reason; /* why it cannot be read, or 0 */
    int with_nul;
};

struct replay {
    char *text;
    struct entry entries[MAX_ENTRIES];
    size_t n;
};

static int reason_named(const char *name, size_t length)
{
    static const struct {
        const char *name;
        int reason;
    } reasons[] = {{"EACCES", EACCES}, {"EPERM", EPERM}, {"ENOENT", ENOENT},
                   {"ESRCH", ESRCH},   {"EIO", EIO},     {"EOPNOTSUPP", EOPNOTSUPP}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (strlen(reasons[i].name) == length && memcmp(name, reasons[i].name, length) == 0)
            return reasons[i].reason;
    }
    fail_msg("no such reason: %.*s", (int)length, name);
    return 0;
}

/* Where `mark` is in the line, or NULL. */
static const char *find_mark(const char *line, size_t length, const char *mark)
{
    return memmem(line, length, mark, strlen(mark));
}

static void read_header(const char *line, size_t length, struct entry *entry)
{
    const char *link = find_mark(line, length, " -> ");
    const char *failure = find_mark(line, length, " ! ");
    const char *nul = find_mark(line, length, " (NUL)");
    const char *end = link ? link : failure ? failure : nul ? nul : line + length;
    size_t path_length = (size_t)(end - line);
    memset(entry, 0, sizeof *entry);
    assert_true(path_length < sizeof entry->path);
    memcpy(entry->path, line, path_length);
    entry->with_nul = nul != NULL;
    if (link) {
        entry->target = link + strlen(" -> ");
        entry->target_length = length - path_length - strlen(" -> ");
    } else if (failure) {
        entry->reason = reason_named(failure + strlen(" ! "), length - path_length - strlen(" ! "));
    }
}

static void parse(struct replay *replay)
{
    struct entry *entry = NULL;
    for (char *line = replay->text; *line;) {
        char *end = strchrnul(line, '\n');
        char *next = *end ? end + 1 : end;
        if (strncmp(line, "=== ", 4) == 0) {
            assert_true(replay->n < MAX_ENTRIES);
            entry = &replay->entries[replay->n++];
            read_header(line + 4, (size_t)(end - line - 4), entry);
            entry->content = next;
        } else if (entry) {
            entry->length = (size_t)(next - entry->content);
        }
        line = next;
    }
}

static const struct entry *find(const struct replay *replay, const char *path)
{
    for (size_t i = 0; i < replay->n; i++) {
        if (strcmp(replay->entries[i].path, path) == 0)
            return &replay->entries[i];
    }
    return NULL;
}

static long replay_read_file(void *context, const char *path, char *bytes, size_t capacity)
{
    const struct entry *entry = find(context, path);
    if (!entry || entry->target)
        return -ENOENT;
    if (entry->reason)
        return -entry->reason;
    size_t length = entry->length < capacity ? entry->length : capacity;
    memcpy(bytes, entry->content, length);
    for (size_t i = 0; entry->with_nul && i < length; i++) {
        if (bytes[i] == '\n')
            bytes[i] = '\0';
    }
    return (long)length;
}

static long replay_read_link(void *context, const char *path, char *bytes, size_t capacity)
{
    const struct entry *entry = find(context, path);
    if (!entry)
        return -ENOENT;
    if (entry->reason)
        return -entry->reason;
    if (!entry->target)
        return -EINVAL;
    size_t length = entry->target_length < capacity ? entry->target_length : capacity;
    memcpy(bytes, entry->target, length);
    return (long)length;
}

/* Whether an earlier entry has the same first `length` bytes and so named the same child. */
static int is_named_before(const struct replay *replay, size_t i, size_t length)
{
    for (size_t j = 0; j < i; j++) {
        const char *path = replay->entries[j].path;
        if (strncmp(path, replay->entries[i].path, length) == 0 &&
            (path[length] == '/' || path[length] == '\0'))
            return 1;
    }
    return 0;
}

static int replay_list(void *context, const char *path,
                       int (*each)(void *each_context, const char *name), void *each_context)
{
    const struct replay *replay = context;
    size_t length = strlen(path);
    int found = 0;
    for (size_t i = 0; i < replay->n; i++) {
        const char *child = replay->entries[i].path + length;
        if (strncmp(replay->entries[i].path, path, length) != 0 || *child != '/')
            continue;
        found = 1;
        size_t name_length = strcspn(++child, "/");
        if (is_named_before(replay, i, length + 1 + name_length))
            continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)name_length, child);
        if (each(each_context, name))
            break;
    }
    return found ? 0 : -ENOENT;
}

static uint64_t replay_now_ns(void *context)
{
    (void)context;
    return 1000000000;
}

static struct replay *replay_owning(char *text, struct mt_host_os *os)
{
    struct replay *replay = calloc(1, sizeof *replay);
    assert_non_null(replay);
    assert_non_null(text);
    replay->text = text;
    parse(replay);
    *os = (struct mt_host_os){
        .context = replay,
        .read_file = replay_read_file,
        .read_link = replay_read_link,
        .list = replay_list,
        .now_ns = replay_now_ns,
        .page_bytes = 4096,
        .ticks_per_s = 100,
    };
    return replay;
}

struct replay *replay_text(const char *text, struct mt_host_os *os)
{
    return replay_owning(strdup(text), os);
}

struct replay *replay_open(const char *name, struct mt_host_os *os)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.machine", REPLAY_DIR, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return replay_owning(text, os);
}

void replay_close(struct replay *replay)
{
    free(replay->text);
    free(replay);
}
