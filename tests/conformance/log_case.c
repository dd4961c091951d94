/* SPDX-License-Identifier: MIT */
/* Reading the table of published runs. */
#include "log_case.h"

#include <stdlib.h>
#include <string.h>

#define HUGE_DEVICE (UINT64_C(1) << 41)

/* Cuts a line into its fields. */
static int cut(char *line, const char **fields)
{
    int n = 0;
    line[strcspn(line, "\n")] = '\0';
    for (char *at = line; at && n < CASE_FIELDS;) {
        fields[n++] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    return n;
}

int case_table_open(struct case_table *table, const char *folder)
{
    char path[CASE_TEXT];
    snprintf(path, sizeof path, "%s/cases.tsv", folder);
    *table = (struct case_table){.file = fopen(path, "r"), .folder = folder};
    if (!table->file || !fgets(table->head, sizeof table->head, table->file))
        return 0;
    table->n_names = cut(table->head, table->names);
    return 1;
}

void case_table_close(struct case_table *table)
{
    if (table->file)
        fclose(table->file);
}

static const char *field(const struct case_table *table, const struct log_case *c, const char *name)
{
    for (int i = 0; i < table->n_names; i++)
        if (!strcmp(table->names[i], name))
            return c->fields[i] ? c->fields[i] : "";
    fprintf(stderr, "cases.tsv has no column %s\n", name);
    abort();
}

static uint64_t count(const char *text)
{
    return strtoull(text, NULL, 10);
}

static double size_of(const char *text)
{
    return *text && *text != ',' ? strtod(text, NULL) : NOT_MEASURED;
}

/* Numbers with commas between. */
static size_t numbers(const char *text, double *to)
{
    size_t n = 0;
    if (!*text)
        return 0;
    for (const char *at = text; at && n < CASE_DEVICES; at = strchr(at, ',')) {
        at += *at == ',';
        to[n++] = size_of(at);
    }
    return n;
}

static enum mt_switch switch_of(const char *text)
{
    if (!strcmp(text, "on"))
        return MT_SWITCH_ON;
    return strcmp(text, "off") ? MT_SWITCH_AUTO : MT_SWITCH_OFF;
}

static const char *or_none(const char *text)
{
    return *text ? text : NULL;
}

static void read_sizes(const struct case_table *table, struct log_case *c)
{
    static const char *const parts[CASE_PARTS] = {"weights", "kv", "rs", "compute"};
    for (int part = 0; part < CASE_PARTS; part++) {
        double sizes[CASE_DEVICES];
        char name[32];
        snprintf(name, sizeof name, "%s_d", parts[part]);
        size_t n = numbers(field(table, c, name), sizes);
        for (size_t i = 0; i < c->n_devices; i++)
            c->mib[i][part] = i < n ? sizes[i] : NOT_MEASURED;
        snprintf(name, sizeof name, "%s_h", parts[part]);
        c->mib[c->n_devices][part] = size_of(field(table, c, name));
    }
    c->output_mib = size_of(field(table, c, "output"));
}

static void read_placement(const struct case_table *table, struct log_case *c)
{
    struct mt_predict_settings *s = &c->settings;
    const char *layers = field(table, c, "layers");
    s->has_gpu_layers = 1;
    s->gpu_layers = !c->n_devices ? 0 : strcmp(layers, "all") ? count(layers) : MT_ALL;
    for (size_t i = 0; i < c->n_devices; i++)
        c->device_bytes[i] = HUGE_DEVICE;
    s->device_bytes = c->device_bytes;
    s->n_devices = c->n_devices;
    s->n_tensor_split = numbers(field(table, c, "split_of_layers"), c->split);
    s->tensor_split = c->split;
    s->kv_on_host = atoi(field(table, c, "kv_on_host"));
    c->override = (struct mt_tensor_override){"exps", "CPU"};
    s->overrides = &c->override;
    s->n_overrides = (size_t)atoi(field(table, c, "experts_on_host"));
}

static void read_settings(const struct case_table *table, struct log_case *c)
{
    struct mt_predict_settings *s = &c->settings;
    int is_ik = !strcmp(c->engine, "ik_llama.cpp");
    snprintf(c->engine_version, sizeof c->engine_version, "%s@%s", c->engine,
             field(table, c, "version"));
    s->engine = c->engine_version;
    s->program = strcmp(field(table, c, "program"), "bench") ? MT_PROGRAM_SERVER : MT_PROGRAM_BENCH;
    s->context_tokens = count(field(table, c, "context"));
    s->batch = count(field(table, c, "batch"));
    s->ubatch = count(field(table, c, "ubatch"));
    s->sequences = count(field(table, c, "sequences"));
    s->draft_tokens = count(field(table, c, "draft"));
    s->kv_type_k = or_none(field(table, c, "type_k"));
    s->kv_type_v = or_none(field(table, c, "type_v"));
    s->flash_attention = switch_of(field(table, c, "flash"));
    s->unified_kv = switch_of(field(table, c, "unified"));
    const char *mla = field(table, c, "mla");
    s->has_mla_mode = is_ik && *mla;
    s->mla_mode = s->has_mla_mode ? count(mla) : 0;
    s->attn_max_batch_mib = is_ik ? count(field(table, c, "amb")) : 0;
}

int case_next(struct case_table *table, struct log_case *c)
{
    *c = (struct log_case){0};
    if (!fgets(c->line, sizeof c->line, table->file))
        return 0;
    cut(c->line, c->fields);
    c->id = field(table, c, "id");
    c->engine = field(table, c, "engine");
    c->family = field(table, c, "family");
    c->whole = atoi(field(table, c, "whole"));
    c->types_known = atoi(field(table, c, "types_known"));
    c->n_devices = (size_t)atoi(field(table, c, "devices"));
    if (c->n_devices > CASE_DEVICES)
        c->n_devices = CASE_DEVICES;
    snprintf(c->model, sizeof c->model, "%s/%s", table->folder, field(table, c, "model"));
    read_settings(table, c);
    read_placement(table, c);
    read_sizes(table, c);
    return 1;
}
