/* SPDX-License-Identifier: MIT */
/* Reading tables that the helper in Python leaves. They are of the program's process, and may say
 * anything. */
#include "pytorch/torch_table.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <memtally/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"

#define FILE_MOST ((off_t)64 << 20)
#define ROWS_MOST ((size_t)1 << 20)

static const struct mt_torch_table_column layers[] = {
    [MT_LAYER_ROOT] = {"root", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_MODULE] = {"module", MT_TORCH_TABLE_TEXT},
    [MT_LAYER_CLASS] = {"class", MT_TORCH_TABLE_TEXT},
    [MT_LAYER_KIND] = {"kind", MT_TORCH_TABLE_TEXT},
    [MT_LAYER_DEPTH] = {"depth", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_CALLS] = {"calls", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_WEIGHTS_HOST] = {"weights_host_bytes", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_WEIGHTS_DEVICE] = {"weights_device_bytes", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_CACHE_HOST] = {"cache_host_bytes", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_CACHE_DEVICE] = {"cache_device_bytes", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_FORWARD_HOST] = {"forward_peak_host_bytes", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_FORWARD_DEVICE] = {"forward_peak_device_bytes", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_BACKWARD_HOST] = {"backward_peak_host_bytes", MT_TORCH_TABLE_COUNT},
    [MT_LAYER_BACKWARD_DEVICE] = {"backward_peak_device_bytes", MT_TORCH_TABLE_COUNT},
};

static const struct mt_torch_table_column operations[] = {
    [MT_OPERATION_NAME] = {"operation", MT_TORCH_TABLE_TEXT},
    [MT_OPERATION_SHAPES] = {"shapes", MT_TORCH_TABLE_TEXT},
    [MT_OPERATION_COUNT] = {"count", MT_TORCH_TABLE_COUNT},
    [MT_OPERATION_OWN_HOST] = {"own_host_bytes", MT_TORCH_TABLE_SIGNED},
    [MT_OPERATION_TOTAL_HOST] = {"total_host_bytes", MT_TORCH_TABLE_COUNT},
    [MT_OPERATION_OWN_DEVICE] = {"own_device_bytes", MT_TORCH_TABLE_SIGNED},
    [MT_OPERATION_TOTAL_DEVICE] = {"total_device_bytes", MT_TORCH_TABLE_COUNT},
};

static const struct {
    const char *name;
    const struct mt_torch_table_column *columns;
    size_t n;
} kinds[] = {
    [MT_TORCH_TABLE_LAYERS] = {"layers", layers, sizeof layers / sizeof *layers},
    [MT_TORCH_TABLE_OPERATIONS] = {"operations", operations,
                                   sizeof operations / sizeof *operations},
};

int mt_torch_table_number(const struct mt_torch_table_row *row, size_t column, int64_t *number)
{
    char *end;
    errno = 0;
    long long value = strtoll(row->text[column], &end, 10);
    int is_number = end != row->text[column] && !*end && !errno;
    *number = is_number ? value : 0;
    return is_number;
}

/* A row of as many fields as there are columns, whose figures are such. */
static int is_row(const struct mt_torch_table *told, const struct mt_torch_table_row *row, size_t n)
{
    int64_t number;
    if (n != told->n_columns)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (told->columns[i].type != MT_TORCH_TABLE_TEXT && strcmp(row->text[i], "-") != 0 &&
            (!mt_torch_table_number(row, i, &number) ||
             (number < 0 && told->columns[i].type != MT_TORCH_TABLE_SIGNED)))
            return 0;
    return 1;
}

static int add_row(struct mt_torch_table *told, uint32_t pid, char *line)
{
    struct mt_torch_table_row row = {.pid = pid};
    size_t n = 0;
    for (char *field = line; field && n <= told->n_columns; n++) {
        char *tab = strchr(field, '\t');
        if (tab)
            *tab++ = 0;
        if (n < told->n_columns)
            row.text[n] = field;
        field = tab;
    }
    if (!is_row(told, &row, n) || told->n_rows == ROWS_MOST) {
        told->n_skipped++;
        return 0;
    }
    if (mt_array_reserve(told->rows, told->n_rows, told->capacity, 64) < 0)
        return MT_ENOMEM;
    told->rows[told->n_rows++] = row;
    return 0;
}

/* The file's text, with an end; NULL where it is none, which is counted. */
static char *read_text(struct mt_torch_table *told, const char *path)
{
    struct stat info;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= FILE_MOST) {
        size_t size = (size_t)info.st_size;
        text = malloc(size + 1);
        ssize_t got = text ? read(fd, text, size) : 0;
        if (text)
            text[got > 0 ? got : 0] = 0;
    }
    if (fd >= 0)
        close(fd);
    told->n_skipped += !text;
    return text;
}

/* The first line says what it is; the second has the columns' names, by which a later version may
 * be told. */
static int read_rows(struct mt_torch_table *told, enum mt_torch_table_kind kind, uint32_t pid,
                     char *text)
{
    char first[40];
    int result = 0;
    size_t number = 0;
    snprintf(first, sizeof first, "memtally-%s 1", kinds[kind].name);
    for (char *line = text; result == 0 && line; number++) {
        char *end = strchr(line, '\n');
        if (!end) /* cut short */
            break;
        *end = 0;
        if (number == 0 && strcmp(line, first) != 0) {
            told->n_skipped++;
            break;
        }
        if (number > 1)
            result = add_row(told, pid, line);
        line = end + 1;
    }
    return result;
}

static int read_file(struct mt_torch_table *told, enum mt_torch_table_kind kind, uint32_t pid,
                     const char *path)
{
    char **grown = realloc(told->files, (told->n_files + 1) * sizeof *grown);
    if (!grown)
        return MT_ENOMEM;
    told->files = grown;
    char *text = read_text(told, path);
    if (!text)
        return 0;
    told->files[told->n_files++] = text;
    return read_rows(told, kind, pid, text);
}

/* The process id in "KIND-PID.tsv", 0 where it is no such name. */
static uint32_t pid_in(const char *name, const char *kind)
{
    size_t length = strlen(kind);
    char *end;
    if (strncmp(name, kind, length) != 0 || name[length] != '-')
        return 0;
    unsigned long pid = strtoul(name + length + 1, &end, 10);
    return strcmp(end, ".tsv") == 0 && pid <= UINT32_MAX ? (uint32_t)pid : 0;
}

static int pid_order(const struct dirent **a, const struct dirent **b)
{
    size_t x = strlen((*a)->d_name);
    size_t y = strlen((*b)->d_name);
    return x != y ? (x < y ? -1 : 1) : strcmp((*a)->d_name, (*b)->d_name);
}

int mt_torch_table_read(const char *directory, enum mt_torch_table_kind kind,
                        struct mt_torch_table *told, struct mt_error *error)
{
    struct dirent **names = NULL;
    *told = (struct mt_torch_table){.columns = kinds[kind].columns, .n_columns = kinds[kind].n};
    int n = scandir(directory, &names, NULL, pid_order);
    int result = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        uint32_t pid = pid_in(names[i]->d_name, kinds[kind].name);
        int length = snprintf(path, sizeof path, "%s/%s", directory, names[i]->d_name);
        if (result == 0 && pid && length > 0 && (size_t)length < sizeof path)
            result = read_file(told, kind, pid, path);
        free(names[i]);
    }
    free(names);
    if (result < 0) {
        mt_torch_table_finish(told);
        return mt_fail(error, result, MT_NO_OFFSET, "%s: %s", directory, mt_error_sentence(result));
    }
    return 0;
}

void mt_torch_table_finish(struct mt_torch_table *told)
{
    for (size_t i = 0; i < told->n_files; i++)
        free(told->files[i]);
    free(told->files);
    free(told->rows);
    *told = (struct mt_torch_table){0};
}
