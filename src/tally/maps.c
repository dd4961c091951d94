/* SPDX-License-Identifier: MIT */
/* Reading maps text out of a recording. The text comes from a file, so nothing in it is believed:
 * numbers may be missing, lines cut, ranges out of order. */
#include "tally/maps.h"
#include "base/array.h"
#include "base/bisect.h"

#include <memtally/error_code.h>
#include <stdlib.h>
#include <string.h>

struct text {
    const char *at;
    const char *end;
};

static int hex(struct text *text, uint64_t *number)
{
    const char *start = text->at;
    *number = 0;
    for (; text->at < text->end; text->at++) {
        char c = *text->at;
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else
            break;
        if (*number >> 60)
            return 0;
        *number = *number << 4 | digit;
    }
    return text->at > start;
}

static int decimal(struct text *text, uint64_t *number)
{
    const char *start = text->at;
    *number = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
        if (*number > (UINT64_MAX - 9) / 10)
            return 0;
        *number = *number * 10 + (uint64_t)(*text->at - '0');
    }
    return text->at > start;
}

static int expect(struct text *text, char c)
{
    if (text->at == text->end || *text->at != c)
        return 0;
    text->at++;
    return 1;
}

static int starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static enum mt_vma_kind kind_of(const char *name)
{
    if (!*name)
        return MT_VMA_ANONYMOUS;
    if (strcmp(name, "[heap]") == 0)
        return MT_VMA_HEAP;
    if (starts_with(name, "[stack"))
        return MT_VMA_STACK;
    if (starts_with(name, "[anon:"))
        return MT_VMA_ANONYMOUS;
    if (starts_with(name, "[anon_shmem:"))
        return MT_VMA_SHARED_MEMORY;
    if (*name == '[')
        return MT_VMA_SPECIAL;
    if (starts_with(name, "/anon_hugepage") || starts_with(name, "/dev/hugepages/"))
        return MT_VMA_HUGETLB;
    if (starts_with(name, "/dev/shm/torch_"))
        return MT_VMA_SHARED_TENSORS;
    if (starts_with(name, "/memfd:") || starts_with(name, "/dev/shm/") ||
        starts_with(name, "/SYSV") || starts_with(name, "/dev/zero"))
        return MT_VMA_SHARED_MEMORY;
    if (starts_with(name, "/dev/"))
        return MT_VMA_DEVICE;
    return MT_VMA_FILE;
}

static char *copy_name(const struct text *text)
{
    static const char deleted[] = " (deleted)";
    size_t length = (size_t)(text->end - text->at);
    size_t tail = sizeof deleted - 1;
    if (length > tail && memcmp(text->end - tail, deleted, tail) == 0)
        length -= tail;
    return strndup(text->at, length);
}

/* "start-end perms offset major:minor inode   name" */
static int parse_line(struct text line, struct mt_vma *vma)
{
    uint64_t major, minor;
    char permissions[4];
    *vma = (struct mt_vma){0};
    if (!hex(&line, &vma->start) || !expect(&line, '-') || !hex(&line, &vma->end) ||
        !expect(&line, ' ') || line.end - line.at < 5 || vma->end <= vma->start)
        return 0;
    memcpy(permissions, line.at, 4);
    line.at += 4;
    if (!expect(&line, ' ') || !hex(&line, &vma->offset) || !expect(&line, ' ') ||
        !hex(&line, &major) || !expect(&line, ':') || !hex(&line, &minor) || !expect(&line, ' ') ||
        !decimal(&line, &vma->inode))
        return 0;
    vma->device = major << 32 | minor;
    vma->readable = permissions[0] == 'r';
    vma->writable = permissions[1] == 'w';
    vma->executable = permissions[2] == 'x';
    vma->shared = permissions[3] == 's';
    while (line.at < line.end && *line.at == ' ')
        line.at++;
    vma->name = copy_name(&line);
    if (!vma->name)
        return -1;
    vma->kind = kind_of(vma->name);
    return 1;
}

static int by_start(const void *a, const void *b)
{
    const struct mt_vma *x = a;
    const struct mt_vma *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* A text that was read while the process changed may show a range twice; the first is kept. */
static void sort_and_separate(struct mt_maps *maps)
{
    size_t kept = 0;
    if (maps->n)
        qsort(maps->vmas, maps->n, sizeof *maps->vmas, by_start);
    for (size_t i = 0; i < maps->n; i++) {
        struct mt_vma *vma = &maps->vmas[i];
        if (kept && maps->vmas[kept - 1].end > vma->start) {
            vma->offset += maps->vmas[kept - 1].end - vma->start;
            vma->start = maps->vmas[kept - 1].end;
        }
        if (vma->start >= vma->end) {
            free(vma->name);
            continue;
        }
        maps->vmas[kept++] = *vma;
    }
    maps->n = kept;
}

static int add(struct mt_maps *maps, size_t *capacity, const struct mt_vma *vma)
{
    if (mt_array_reserve(maps->vmas, maps->n, *capacity, 128) < 0)
        return MT_ENOMEM;
    maps->vmas[maps->n++] = *vma;
    return 0;
}

int mt_maps_parse(const char *text, size_t length, struct mt_maps *maps)
{
    struct mt_maps made = {0};
    size_t capacity = 0;
    const char *end = text + length;
    if (mt_array_reserve(made.vmas, 0, capacity, 128) < 0)
        return MT_ENOMEM;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        struct mt_vma vma;
        if (!stop)
            stop = end;
        int parsed = parse_line((struct text){line, stop}, &vma);
        if (parsed > 0 && add(&made, &capacity, &vma) < 0) {
            free(vma.name);
            parsed = -1;
        }
        if (parsed < 0) {
            mt_maps_finish(&made);
            return MT_ENOMEM;
        }
        made.lines_bad += parsed == 0;
        line = stop + 1;
    }
    sort_and_separate(&made);
    *maps = made;
    return 0;
}

void mt_maps_finish(struct mt_maps *maps)
{
    for (size_t i = 0; i < maps->n; i++)
        free(maps->vmas[i].name);
    free(maps->vmas);
    *maps = (struct mt_maps){0};
}

int mt_maps_copy(const struct mt_maps *maps, struct mt_maps *copy)
{
    struct mt_maps made = {.lines_bad = maps->lines_bad};
    size_t capacity = 0;
    if (mt_array_reserve(made.vmas, 0, capacity, 128) < 0)
        return MT_ENOMEM;
    for (size_t i = 0; i < maps->n; i++) {
        struct mt_vma vma = maps->vmas[i];
        vma.name = strdup(vma.name);
        if (!vma.name || add(&made, &capacity, &vma) < 0) {
            free(vma.name);
            mt_maps_finish(&made);
            return MT_ENOMEM;
        }
    }
    *copy = made;
    return 0;
}

const struct mt_vma *mt_maps_at_or_after(const struct mt_maps *maps, uint64_t address)
{
    struct mt_bisect place = {.end = maps->n};
    while (mt_bisect_next(&place))
        mt_bisect_turn(&place, maps->vmas[place.middle].end <= address);
    return maps->vmas + place.first;
}

const struct mt_vma *mt_maps_find(const struct mt_maps *maps, uint64_t address)
{
    if (!maps->n)
        return NULL;
    const struct mt_vma *vma = mt_maps_at_or_after(maps, address);
    return vma < maps->vmas + maps->n && vma->start <= address ? vma : NULL;
}

uint64_t mt_field_bytes(const char *text, size_t length, const char *name)
{
    size_t name_length = strlen(name);
    const char *end = text + length;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        if ((size_t)(stop - line) > name_length && memcmp(line, name, name_length) == 0 &&
            line[name_length] == ':') {
            struct text rest = {line + name_length + 1, stop};
            uint64_t kib;
            while (rest.at < rest.end && (*rest.at == ' ' || *rest.at == '\t'))
                rest.at++;
            if (decimal(&rest, &kib) && kib < UINT64_MAX / 1024)
                return kib * 1024;
            return UINT64_MAX;
        }
        line = stop + 1;
    }
    return UINT64_MAX;
}

uint64_t mt_vma_file(const struct mt_vma *vma)
{
    uint64_t key = vma->inode + vma->device * 0x9e3779b97f4a7c15u;
    return key == UINT64_MAX ? 0 : key; /* no key of a table */
}

void mt_mapped_file_note(struct mt_mapped_file *file, const struct mt_vma *vma, size_t claim)
{
    if (file->end != vma->start || file->file != mt_vma_file(vma))
        file->start = vma->start;
    file->end = vma->end;
    file->file = mt_vma_file(vma);
    file->claim = vma->writable ? claim : 0;
}

int mt_mapped_file_is_zeroed(const struct mt_mapped_file *file, const struct mt_vma *vma,
                             int is_recorded)
{
    return vma->kind == MT_VMA_ANONYMOUS && file->claim && vma->start == file->end &&
           (is_recorded || vma->end - vma->start <= file->end - file->start);
}
