/* SPDX-License-Identifier: MIT */
/* Reads lines of oracle.csv. */
#include "oracle_point.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int next_field(char **at, char *out, size_t size)
{
    size_t length = strcspn(*at, ",\n");
    if (length >= size)
        return -1;
    memcpy(out, *at, length);
    out[length] = 0;
    *at += length + ((*at)[length] == ',');
    return 0;
}

static uint64_t next_number(char **at)
{
    char text[32];
    return next_field(at, text, sizeof text) < 0 ? 0 : strtoull(text, NULL, 10);
}

static int next_list(char **at, double *numbers, size_t n)
{
    char *end = *at;
    for (size_t i = 0; i < n; i++) {
        *at += strspn(*at, " ");
        numbers[i] = **at == '-' ? NAN : strtod(*at, &end);
        if (**at == '-')
            end = *at + 1;
        if (end == *at)
            return -1;
        *at = end;
    }
    *at += **at == ',';
    return 0;
}

int read_point(char *line, struct point *point)
{
    char flash[8];
    char *at = line;
    if (next_field(&at, point->shape, sizeof point->shape) < 0 ||
        next_field(&at, point->build, sizeof point->build) < 0 ||
        next_field(&at, point->tool, sizeof point->tool) < 0)
        return -1;
    point->context = next_number(&at);
    point->ubatch = next_number(&at);
    point->sequences = next_number(&at);
    if (next_field(&at, flash, sizeof flash) < 0 ||
        next_field(&at, point->type_k, sizeof point->type_k) < 0 ||
        next_field(&at, point->type_v, sizeof point->type_v) < 0)
        return -1;
    point->flash = strcmp(flash, "on") == 0;
    point->devices = (size_t)next_number(&at);
    if (next_field(&at, point->layers, sizeof point->layers) < 0 || point->devices > DEVICES_MAX)
        return -1;
    snprintf(point->line, sizeof point->line, "%.*s", (int)(at - line - 1), line);
    for (int kind = 0; kind < KINDS; kind++)
        if (next_list(&at, point->planned[kind], point->devices + 1) < 0)
            return -1;
    return 0;
}

static uint64_t gpu_layers(const struct point *point, const struct mt_model_description *d)
{
    if (strcmp(point->layers, "all") == 0)
        return MT_ALL;
    return strcmp(point->layers, "half") == 0 ? d->n_layers / 2 : 0;
}

static enum mt_program program_of(const struct point *point)
{
    if (strncmp(point->tool, "server", 6) == 0)
        return MT_PROGRAM_SERVER;
    return strcmp(point->tool, "fit-params") == 0 ? MT_PROGRAM_FIT_PARAMS : MT_PROGRAM_BENCH;
}

void settings_of_point(const struct point *point, const struct mt_model_description *d,
                       struct point_settings *out)
{
    for (size_t i = 0; i < DEVICES_MAX; i++)
        out->sizes[i] = DEVICE_SIZE;
    snprintf(out->engine, sizeof out->engine, "llama.cpp@%s", point->build);
    out->settings = (struct mt_predict_settings){
        .engine = out->engine,
        .program = program_of(point),
        .context_tokens = point->context,
        .batch = 2048,
        .ubatch = point->ubatch,
        .sequences = point->sequences,
        .kv_type_k = point->type_k,
        .kv_type_v = point->type_v,
        .flash_attention = point->flash ? MT_SWITCH_ON : MT_SWITCH_OFF,
        .unified_kv = strstr(point->tool, "-unified") ? MT_SWITCH_ON : MT_SWITCH_OFF,
        .has_gpu_layers = 1,
        .gpu_layers = gpu_layers(point, d),
        .fusion = MT_SWITCH_OFF, /* the planned devices fused nothing */
        .device_bytes = out->sizes,
        .n_devices = point->devices,
        .host_bytes = DEVICE_SIZE,
    };
}
