/* SPDX-License-Identifier: MIT */
/* Scores the predictor of llama.cpp against what the engine itself planned (README.md).
 *
 * usage: conformance_oracle [--off] [--only TEXT] [--fusion] [--totals] FLOORS.csv SHAPES_FOLDER
 *        ORACLE.csv...
 *
 * Prints the error board: for each build, family, category and role of a place how many buffers are
 * exact, and how wrong the others are. A floor that is not reached is a failed TAP line. --off
 * names every buffer that is not exact, --only takes the points whose line has TEXT, --fusion is of
 * points whose devices fuse operations, as CUDA's do, --totals adds all families of a build up. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error.h>
#include <memtally/predict.h>

#include "oracle_point.h"

#define SHAPES_MAX 128
#define GROUPS_MAX 2048

static const char *const kind_names[KINDS] = {"weights", "cache", "compute"};

struct shape {
    char name[48];
    struct mt_model *model;
};

struct group {
    char name[96];
    double *errors; /* shares of the buffer, with sign */
    size_t n;
    size_t capacity;
    size_t exact;
    size_t covered;
    size_t below;
};

struct board {
    struct group groups[GROUPS_MAX];
    size_t n;
};

struct scoring {
    const char *folder;
    const char *only;
    int names_off;
    int fuses;
    int totals;
    struct shape shapes[SHAPES_MAX];
    size_t n_shapes;
    struct board board;
    size_t points;
    size_t failed;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "conformance_oracle: %s: %s\n", what, why);
    exit(2);
}

static struct mt_model *model_of(struct scoring *scoring, const char *name)
{
    for (size_t i = 0; i < scoring->n_shapes; i++)
        if (strcmp(scoring->shapes[i].name, name) == 0)
            return scoring->shapes[i].model;
    if (scoring->n_shapes == SHAPES_MAX)
        die(name, "too many shapes");
    struct shape *shape = &scoring->shapes[scoring->n_shapes++];
    char path[4096];
    struct mt_error error = {0};
    snprintf(shape->name, sizeof shape->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s.gguf", scoring->folder, name);
    if (mt_model_open(path, NULL, &shape->model, &error) < 0)
        die(path, error.text);
    return shape->model;
}

static struct mt_estimate *plan(struct scoring *scoring, const struct point *point)
{
    struct point_settings settings;
    settings_of_point(point, mt_model_describe(model_of(scoring, point->shape)), &settings);
    settings.settings.fusion = scoring->fuses ? MT_SWITCH_AUTO : MT_SWITCH_OFF;
    struct mt_estimate *estimate = NULL;
    struct mt_error error = {0};
    if (mt_estimate_create(model_of(scoring, point->shape), &settings.settings, &estimate, &error) <
        0) {
        printf("# %s: %s\n", point->line, error.text);
        scoring->failed++;
        return NULL;
    }
    return estimate;
}

struct figure {
    double bytes;
    double low;
    double high;
};

/* What is reserved is `compute_buffer`; a server that is ready has grown it. */
static int counts_for(const struct mt_estimate_term *term, enum kind kind, int is_ready)
{
    switch (kind) {
    case MODEL:
        return term->category == MT_CATEGORY_WEIGHTS;
    case CONTEXT:
        return term->category == MT_CATEGORY_KV_CACHE ||
               term->category == MT_CATEGORY_RECURRENT_STATE;
    default:
        return strstr(term->rule, "/compute_buffer") ||
               (is_ready && strstr(term->rule, "/compute_growth"));
    }
}

static struct figure figure_of(const struct mt_estimate *estimate, const char *place,
                               enum kind kind, int is_ready)
{
    struct figure sum = {0};
    for (size_t i = 0; i < estimate->n_terms; i++) {
        const struct mt_estimate_term *term = &estimate->terms[i];
        if (strcmp(term->place, place) != 0 || !counts_for(term, kind, is_ready))
            continue;
        sum.bytes += (double)term->bytes;
        sum.low += (double)term->low_bytes;
        sum.high += (double)term->high_bytes;
    }
    return sum;
}

static struct group *group_of(struct board *board, const char *name)
{
    for (size_t i = 0; i < board->n; i++)
        if (strcmp(board->groups[i].name, name) == 0)
            return &board->groups[i];
    if (board->n == GROUPS_MAX)
        die(name, "too many groups");
    struct group *group = &board->groups[board->n++];
    snprintf(group->name, sizeof group->name, "%s", name);
    return group;
}

static void add(struct group *group, double error, int exact, int covered, int below)
{
    if (group->n == group->capacity) {
        group->capacity = group->capacity ? group->capacity * 2 : 64;
        group->errors = realloc(group->errors, group->capacity * sizeof *group->errors);
        if (!group->errors)
            die(group->name, strerror(errno));
    }
    group->errors[group->n++] = error;
    group->exact += (size_t)exact;
    group->covered += (size_t)covered;
    group->below += (size_t)below;
}

static const char *role_of(const struct point *point, size_t i)
{
    if (!point->devices)
        return "cpu";
    if (i == point->devices)
        return "host";
    if (point->devices == 1)
        return "only";
    return i == 0 ? "first" : i + 1 == point->devices ? "last" : "middle";
}

/* Whole MiB cannot tell more than whole MiB; digits behind the point are worth what they say. */
static double rounding(enum kind kind, double planned)
{
    if (kind != COMPUTE)
        return 1.0;
    return fabs(planned * 100 - round(planned * 100)) < 1e-6 ? 0.0051 : 0.0001;
}

static void score(struct scoring *scoring, const struct point *point, const char *architecture,
                  enum kind kind, size_t i, const struct figure *figure)
{
    double planned = point->planned[kind][i];
    if (isnan(planned))
        return;
    double ours = figure->bytes / MIB;
    double slack = rounding(kind, planned);
    double difference = ours - planned;
    if (kind != COMPUTE) /* those were cut off, not rounded */
        difference = ours < planned ? ours - planned : ours - planned < 1 ? 0 : ours - planned - 1;
    int exact = fabs(difference) <= slack || fabs(difference) <= planned * EXACT_SHARE;
    int covered = figure->low / MIB <= planned + slack && figure->high / MIB >= planned - slack;
    int below = figure->high / MIB < planned - slack;
    double error = planned > 0 ? difference / planned : ours > 0 ? 1.0 : 0.0;
    const char *all = strcmp(point->layers, "all") == 0 ? "all" : "part";
    char name[96];
    snprintf(name, sizeof name, "%s %s %s %s %s", point->build, architecture, kind_names[kind],
             role_of(point, i), all);
    if (!scoring->totals)
        add(group_of(&scoring->board, name), exact ? 0 : error, exact, covered, below);
    snprintf(name, sizeof name, "%s * %s %s %s", point->build, kind_names[kind],
             !point->devices       ? "cpu"
             : i == point->devices ? "host"
                                   : "device",
             all);
    add(group_of(&scoring->board, name), exact ? 0 : error, exact, covered, below);
    if (!exact && scoring->names_off)
        printf("# off %+8.3f%% %10.4f for %10.4f MiB %s %s %s\n", error * 100, ours, planned,
               kind_names[kind], role_of(point, i), point->line);
}

static void score_point(struct scoring *scoring, const struct point *point)
{
    struct mt_estimate *estimate = plan(scoring, point);
    if (!estimate)
        return;
    const char *architecture = mt_model_describe(model_of(scoring, point->shape))->architecture;
    int is_ready = strcmp(point->tool, "server-ready") == 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i <= point->devices; i++) {
            char place[16] = "host";
            if (i < point->devices)
                snprintf(place, sizeof place, "gpu:%zu", i);
            struct figure figure = figure_of(estimate, place, (enum kind)kind, is_ready);
            score(scoring, point, architecture, (enum kind)kind, i, &figure);
        }
    scoring->points++;
    mt_estimate_destroy(estimate);
}

static void score_file(struct scoring *scoring, const char *path)
{
    char line[2048];
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file))
        die(path, "cannot be read");
    while (fgets(line, sizeof line, file)) {
        struct point point = {0};
        if (scoring->only && !strstr(line, scoring->only))
            continue;
        if (read_point(line, &point) < 0)
            die(path, line);
        score_point(scoring, &point);
    }
    fclose(file);
}

static int by_size(const void *a, const void *b)
{
    double x = fabs(*(const double *)a);
    double y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct group *)a)->name, ((const struct group *)b)->name);
}

static double exact_percent(const struct group *group)
{
    return 100.0 * (double)group->exact / (double)group->n;
}

static void print_board(struct board *board)
{
    qsort(board->groups, board->n, sizeof *board->groups, by_name);
    printf("# %-44s %6s %7s %8s %8s %8s %7s %5s\n", "build family category role layers", "n",
           "exact%", "median%", "p95%", "worst%", "band%", "below");
    for (size_t i = 0; i < board->n; i++) {
        struct group *g = &board->groups[i];
        qsort(g->errors, g->n, sizeof *g->errors, by_size);
        printf("# %-44s %6zu %7.2f %8.3f %8.3f %+8.2f %7.2f %5zu\n", g->name, g->n,
               exact_percent(g), 100 * fabs(g->errors[g->n / 2]),
               100 * fabs(g->errors[(size_t)((double)g->n * 0.95)]), 100 * g->errors[g->n - 1],
               100.0 * (double)g->covered / (double)g->n, g->below);
    }
}

/* A floor: group, the least percentage that is exact, of bands that cover, and the most buffers
 * whose band lies below what was planned. */
static int check_floor(struct board *board, char *line, int number)
{
    char name[96];
    char *at = line;
    if (next_field(&at, name, sizeof name) < 0)
        return 1;
    double exact = strtod(at, &at);
    double covered = strtod(at + 1, &at);
    double below = strtod(at + 1, &at);
    const struct group *g = group_of(board, name);
    int ok = g->n && exact_percent(g) >= exact &&
             100.0 * (double)g->covered / (double)g->n >= covered && (double)g->below <= below;
    printf("%sok %d - %s: at least %.2f%% exact, %.2f%% in their bands, at most %.0f below\n",
           ok ? "" : "not ", number, name, exact, covered, below);
    return !ok;
}

static int check_floors(struct board *board, const char *path)
{
    char line[512];
    int n = 0;
    int failed = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        die(path, strerror(errno));
    while (fgets(line, sizeof line, file))
        if (line[0] != '#' && line[0] != '\n')
            failed += check_floor(board, line, ++n);
    fclose(file);
    printf("1..%d\n", n);
    return failed;
}

static void finish(struct scoring *scoring)
{
    for (size_t i = 0; i < scoring->n_shapes; i++)
        mt_model_close(scoring->shapes[i].model);
    for (size_t i = 0; i < scoring->board.n; i++)
        free(scoring->board.groups[i].errors);
}

int main(int argc, char **argv)
{
    static struct scoring scoring;
    int at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--off") == 0)
            scoring.names_off = 1;
        else if (strcmp(argv[at], "--fusion") == 0)
            scoring.fuses = 1;
        else if (strcmp(argv[at], "--totals") == 0)
            scoring.totals = 1;
        else if (strcmp(argv[at], "--only") == 0 && at + 1 < argc)
            scoring.only = argv[++at];
        else
            die(argv[at], "no such option");
    }
    if (argc - at < 3)
        die("usage", "conformance_oracle [--off] [--only TEXT] [--fusion] [--totals] FLOORS SHAPES "
                     "ORACLE...");
    scoring.folder = argv[at + 1];
    for (int i = at + 2; i < argc; i++)
        score_file(&scoring, argv[i]);
    print_board(&scoring.board);
    printf("# %zu points, %zu could not be planned\n", scoring.points, scoring.failed);
    int failed = scoring.failed > 0;
    if (!scoring.only)
        failed += check_floors(&scoring.board, argv[at]);
    finish(&scoring);
    return failed != 0;
}
