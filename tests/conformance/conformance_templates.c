/* SPDX-License-Identifier: MIT */
/* Scores graph templates against what the engine itself planned, also of families that the library
 * knows by code: there template, code and engine must agree.
 *
 * usage: conformance_templates [--off] [--file TEMPLATES] FLOORS.csv FOLDER ORACLE.csv [FOLDER
 * ORACLE.csv]...
 *
 * A floor: group, the least percentage of buffers that are exact (0.05 %), and within 1 %. Points
 * whose template doubts itself are scored apart: there, exact means within its band. Each family
 * has a line of its own; with --file its templates are read, else the library's own are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/error.h>

#include "oracle_point.h"
#include "predict/llama/internal.h"
#include "predict/template/template.h"

enum { DEVICE_ALL, DEVICE_PART, HOST_ALL, HOST_PART, DOUBTED, UNTAKEN, GROUPS };
static const char *const group_names[GROUPS] = {"device all", "device part", "host all",
                                                "host part",  "doubted",     "untaken"};

#define FAMILIES_MAX 256
#define TEXT_MAX     (4u << 20)

struct group {
    size_t n;
    size_t exact;
    size_t within;
};

struct family {
    char name[48];
    struct group group;
    double worst; /* percent */
};

struct scoring {
    struct group groups[GROUPS];
    struct family families[FAMILIES_MAX];
    size_t n_families;
    char *text; /* of --file */
    size_t text_length;
    size_t points;
    size_t without; /* points whose family has no template in that build */
    int names_off;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "conformance_templates: %s: %s\n", what, why);
    exit(2);
}

/* What the template says, for the batch and for single tokens: the larger of both. */
static int planned_by_template(const struct mt_llama_plan *plan, struct mt_llama_template_use *use,
                               struct mt_graph_buffer *buffers, struct mt_error *error)
{
    struct mt_graph_buffer single[MT_GRAPH_DEVICES_MAX + 1] = {0};
    int result = mt_llama_template_reserve(plan, use, buffers, error);
    if (result < 0 || plan->all_on_devices || plan->in->settings->program == MT_PROGRAM_FIT_PARAMS)
        return result;
    use->single_tokens = 1;
    result = mt_llama_template_reserve(plan, use, single, error);
    for (size_t i = 0; result == 0 && i <= plan->n_devices; i++)
        if (single[i].bytes > buffers[i].bytes)
            buffers[i] = single[i];
    return result;
}

static struct family *family_of(struct scoring *scoring, const char *name)
{
    for (size_t i = 0; i < scoring->n_families; i++)
        if (strcmp(scoring->families[i].name, name) == 0)
            return &scoring->families[i];
    if (scoring->n_families == FAMILIES_MAX)
        die(name, "too many families");
    struct family *family = &scoring->families[scoring->n_families++];
    snprintf(family->name, sizeof family->name, "%s", name);
    return family;
}

static void count(struct group *group, int exact, int within)
{
    group->n++;
    group->exact += (size_t)exact;
    group->within += (size_t)within;
}

static void score(struct scoring *scoring, const struct point *point, struct family *family,
                  const struct mt_graph_buffer *buffers, unsigned doubt_percent)
{
    int part = strcmp(point->layers, "all") != 0;
    for (size_t i = 0; i <= point->devices; i++) {
        double planned = point->planned[COMPUTE][i];
        if (isnan(planned) || !point->devices)
            continue;
        double ours = (double)buffers[i].bytes / MIB;
        double slack = fabs(planned * 100 - round(planned * 100)) < 1e-6 ? 0.0051 : 0.0001;
        double off = fabs(ours - planned);
        int exact = off <= slack || off <= planned * EXACT_SHARE;
        int within = exact || off <= planned * 0.01;
        int which = (i == point->devices ? HOST_ALL : DEVICE_ALL) + part;
        if (doubt_percent == MT_TEMPLATE_UNTAKEN) {
            count(&scoring->groups[UNTAKEN], exact, within);
            continue;
        }
        if (doubt_percent)
            count(&scoring->groups[DOUBTED], off <= ours * doubt_percent / 100 + slack, within);
        else
            count(&scoring->groups[which], exact, within);
        count(&family->group, exact, within);
        if (!exact && planned > 0 && off / planned * 100 > family->worst)
            family->worst = off / planned * 100;
        if (!exact && scoring->names_off)
            printf("# off %+.3f%% buffer %zu: %s\n", (ours - planned) / planned * 100, i,
                   point->line);
    }
}

static void score_point(struct scoring *scoring, const struct point *point,
                        const struct mt_model *model)
{
    struct mt_graph_buffer buffers[MT_GRAPH_DEVICES_MAX + 1] = {0};
    struct point_settings settings;
    struct mt_engine engine;
    struct mt_llama_plan plan;
    struct mt_error error = {0};
    const struct mt_model_description *d = mt_model_describe(model);
    settings_of_point(point, d, &settings);
    const struct mt_predict_input in = {model, d, &settings.settings, &engine};
    if (mt_engine_find(settings.engine, &engine, &error) < 0 ||
        mt_llama_complete(model, &engine, &settings.settings, &error) < 0 ||
        mt_llama_plan_init(&plan, &in, &error) < 0)
        die(point->line, error.text);
    struct mt_llama_template_use use = {.file = scoring->text, .file_length = scoring->text_length};
    int result = planned_by_template(&plan, &use, buffers, &error);
    scoring->points++;
    if (result == 0)
        score(scoring, point, family_of(scoring, d->architecture), buffers, use.doubt_percent);
    else {
        scoring->without++;
        if (scoring->names_off)
            printf("# none, %s: %s\n", error.text, point->line);
    }
    mt_llama_plan_finish(&plan);
}

static void score_file(struct scoring *scoring, const char *folder, const char *path)
{
    char line[2048];
    char name[48] = "";
    struct mt_model *model = NULL;
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file))
        die(path, "cannot be read");
    while (fgets(line, sizeof line, file)) {
        struct point point = {0};
        char model_path[4096];
        struct mt_error error = {0};
        if (read_point(line, &point) < 0)
            die(path, line);
        if (strcmp(name, point.shape) != 0) {
            mt_model_close(model);
            model = NULL;
            snprintf(name, sizeof name, "%s", point.shape);
            snprintf(model_path, sizeof model_path, "%s/%s.gguf", folder, name);
            if (mt_model_open(model_path, NULL, &model, &error) < 0)
                die(model_path, error.text);
        }
        if (scoring->text || strcmp(point.build, "11434") == 0)
            score_point(scoring, &point, model);
    }
    mt_model_close(model);
    fclose(file);
}

static double percent(size_t part, size_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static int check_floors(const struct scoring *scoring, const char *path)
{
    char line[256];
    char name[64];
    int number = 0;
    int failed = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        die(path, "cannot be read");
    while (fgets(line, sizeof line, file)) {
        char *at = line;
        if (*line == '#' || next_field(&at, name, sizeof name) < 0)
            continue;
        double exact = strtod(at, &at);
        double within = strtod(at + 1, NULL);
        for (int i = 0; i < GROUPS; i++) {
            const struct group *g = &scoring->groups[i];
            if (strcmp(name, group_names[i]) != 0)
                continue;
            int ok = percent(g->exact, g->n) >= exact && percent(g->within, g->n) >= within;
            ok = g->n ? ok : i == DOUBTED;
            printf("%sok %d - %s: at least %.2f%% exact, %.2f%% within 1%%\n", ok ? "" : "not ",
                   ++number, name, exact, within);
            failed += !ok;
        }
    }
    fclose(file);
    printf("1..%d\n", number);
    return failed || !number;
}

static void read_templates(struct scoring *scoring, const char *path)
{
    FILE *file = fopen(path, "r");
    scoring->text = calloc(1, TEXT_MAX);
    if (!file || !scoring->text)
        die(path, "cannot be read");
    scoring->text_length = fread(scoring->text, 1, TEXT_MAX, file);
    fclose(file);
}

static void say_families(const struct scoring *scoring)
{
    for (size_t i = 0; i < scoring->n_families; i++) {
        const struct family *f = &scoring->families[i];
        printf("# family %-16s %5zu buffers %7.2f%% exact %7.2f%% within 1%%, worst %.2f%%\n",
               f->name, f->group.n, percent(f->group.exact, f->group.n),
               percent(f->group.within, f->group.n), f->worst);
    }
}

int main(int argc, char **argv)
{
    static struct scoring scoring;
    int at = 1;
    if (at < argc && strcmp(argv[at], "--off") == 0)
        scoring.names_off = at++;
    if (at + 1 < argc && strcmp(argv[at], "--file") == 0) {
        read_templates(&scoring, argv[at + 1]);
        at += 2;
    }
    if (argc - at < 3)
        die("usage", "conformance_templates [--off] [--file TEMPLATES] FLOORS FOLDER ORACLE...");
    for (int i = at + 1; i + 1 < argc; i += 2)
        score_file(&scoring, argv[i], argv[i + 1]);
    printf("# %zu points, %zu of them without a template\n", scoring.points, scoring.without);
    for (int i = 0; i < GROUPS; i++)
        printf("# %-12s %6zu buffers %7.2f%% exact %7.2f%% within 1%%\n", group_names[i],
               scoring.groups[i].n, percent(scoring.groups[i].exact, scoring.groups[i].n),
               percent(scoring.groups[i].within, scoring.groups[i].n));
    say_families(&scoring);
    free(scoring.text);
    return check_floors(&scoring, argv[at]);
}
