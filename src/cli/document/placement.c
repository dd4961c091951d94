/* SPDX-License-Identifier: MIT */
/* A placement as a table, with a bar for each device. */
#include "placement.h"

#include <inttypes.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "emit/text.h"
#include "internal.h"

enum { BAR_COLUMNS = 48 };

static double share_of(const struct cli_placement_document *document,
                       const struct mt_placement *placement, size_t device)
{
    return (double)placement->devices[device].used_bytes /
           (double)document->placed->problem.devices[device].capacity_bytes;
}

static int keeps_to_limits(const struct cli_placement_document *document,
                           const struct mt_placement *placement)
{
    for (size_t d = 0; d < placement->n_devices; d++)
        if (placement->devices[d].used_bytes > document->placed->problem.devices[d].limit_bytes)
            return 0;
    return 1;
}

/* "0 to 15", "none", or of layers that do not lie together how many there are. */
static void put_layers(const struct cli_placement_document *document,
                       const struct mt_placement *placement, int device, char *text, size_t size)
{
    const struct mt_place_unit *units = document->placed->problem.units;
    uint32_t first = MT_NO_LAYER;
    uint32_t last = 0;
    uint64_t n = 0;
    for (size_t i = 0; i < placement->n_units; i++)
        if (units[i].layer != MT_NO_LAYER && placement->unit_device[i] == device) {
            first = first == MT_NO_LAYER ? units[i].layer : first;
            last = units[i].layer;
            n++;
        }
    if (!n)
        snprintf(text, size, "none");
    else if (n == 1)
        snprintf(text, size, "%" PRIu32, first);
    else if (last - first + 1 == n)
        snprintf(text, size, "%" PRIu32 " to %" PRIu32, first, last);
    else
        snprintf(text, size, "%" PRIu64 " layers", n);
}

static uint64_t count_experts(const struct cli_placement_document *document)
{
    uint64_t experts = 0;
    for (size_t i = 0; i < document->placed->problem.n_units; i++)
        experts += document->placed->problem.units[i].experts;
    return experts;
}

/* Where the embedding, the norm and the output lie. */
static void put_others(const struct cli_placement_document *document,
                       const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_placement *shown = document->shown;
    struct mt_strbuf text = {0};
    for (size_t i = 0; i < shown->n_units; i++) {
        const struct mt_place_unit *unit = &document->placed->problem.units[i];
        int at = shown->unit_device[i];
        if (unit->layer == MT_NO_LAYER)
            mt_strbuf_printf(&text, "%s%s on %s", text.length ? ", " : "", unit->name,
                             at >= 0 ? document->placed->problem.devices[at].name : "the host");
    }
    if (text.length)
        cli_table_fact(terminal, out, "others", "%s", mt_strbuf_text(&text));
    mt_strbuf_finish_part(&text, out);
}

static void put_devices(const struct cli_placement_document *document,
                        const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"device", MT_CELL_TEXT, 0},        {"layers", MT_CELL_TEXT_RIGHT, 0},
        {"experts", MT_CELL_TEXT_RIGHT, 2}, {"weights", MT_CELL_SIZE, 0},
        {"cache", MT_CELL_SIZE, 0},         {"beside", MT_CELL_SIZE, 1},
        {"total", MT_CELL_SIZE, 0},         {"at most", MT_CELL_SIZE, 0},
    };
    const struct mt_placement *shown = document->shown;
    struct mt_text_table table;
    mt_text_table_init(&table, columns, sizeof columns / sizeof *columns, terminal->utf8);
    for (size_t d = 0; d < shown->n_devices; d++) {
        const struct mt_placement_device *device = &shown->devices[d];
        char layers[48];
        char experts[48] = "";
        put_layers(document, shown, (int)d, layers, sizeof layers);
        if (shown->experts_most)
            snprintf(experts, sizeof experts, "%" PRIu64 ", %.0f %%", device->experts,
                     100 * (double)device->experts / (double)count_experts(document));
        const struct mt_cell cells[] = {
            {.text = document->placed->problem.devices[d].name},
            {.text = layers},
            {.text = experts},
            {.number = device->dense_bytes + device->expert_bytes},
            {.number = device->cache_bytes},
            {.number = device->overhead_bytes},
            {.number = device->expected_bytes},
            {.number = device->used_bytes},
        };
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    cli_table_draw(&table, terminal, out);
}

/* One bar: what is used, up to the limit, and what stays free. */
static void put_bar(const struct cli_placement_document *document, size_t device,
                    const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_place_device *given = &document->placed->problem.devices[device];
    double share = share_of(document, document->shown, device);
    double limit = (double)given->limit_bytes / (double)given->capacity_bytes;
    mt_strbuf_printf(out, "%-12s ", given->name);
    for (int i = 0; i < BAR_COLUMNS; i++) {
        double at = (i + 0.5) / BAR_COLUMNS;
        mt_strbuf_puts(out, at < share   ? (terminal->utf8 ? "█" : "#")
                            : at < limit ? (terminal->utf8 ? "░" : ".")
                                         : (terminal->utf8 ? "·" : " "));
    }
    mt_strbuf_printf(out, " %5.1f %%\n", 100 * share);
}

/* The way of a token over the devices. */
static void put_path(const struct cli_placement_document *document,
                     const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_placement *shown = document->shown;
    struct mt_strbuf path = {0};
    for (size_t i = 0; i < shown->n_units; i++) {
        int at = shown->unit_device[i];
        if (at >= 0 && (!i || at != shown->unit_device[i - 1]))
            mt_strbuf_printf(&path, "%s%s", path.length ? ", " : "",
                             document->placed->problem.devices[at].name);
    }
    cli_table_fact(terminal, out, "path",
                   "%s; the links take %.1f microseconds for each token, if they are as fast as "
                   "assumed",
                   mt_strbuf_text(&path), 1e6 * shown->link_seconds);
    mt_strbuf_finish_part(&path, out);
}

static void put_head(const struct cli_placement_document *document,
                     const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_placement *shown = document->shown;
    char host[MT_SIZE_TEXT];
    const char *fits = !keeps_to_limits(document, shown) ? "does not fit"
                       : shown->disk_bytes               ? "fits with a part on disk"
                       : shown->host_bytes               ? "fits with a part on the host"
                                                         : "fits";
    cli_table_fact(terminal, out, "placement",
                   "%s; %.3g crossings for each token, the fullest device at %.1f %%", fits,
                   shown->crossings, 100 * shown->highest_share);
    cli_table_fact(terminal, out, "model", "%s", document->model->path);
    cli_table_fact(terminal, out, "engine", "%s, context %" PRIu64, document->engine,
                   document->placed->context_tokens);
    if (shown->host_bytes + shown->disk_bytes && shown->experts_most)
        cli_table_fact(
            terminal, out, "host", "%s: %" PRIu64 " whole layers, the experts of %" PRIu64 " more",
            mt_format_size(shown->host_bytes, host), shown->host_layers, shown->host_expert_layers);
    else if (shown->host_bytes + shown->disk_bytes)
        cli_table_fact(terminal, out, "host", "%s: %" PRIu64 " layer%s",
                       mt_format_size(shown->host_bytes, host), shown->host_layers,
                       shown->host_layers == 1 ? "" : "s");
    if (shown->disk_bytes)
        cli_table_fact(terminal, out, "disk", "%s more of these stay on disk",
                       mt_format_size(shown->disk_bytes, host));
    if (document->placed->problem.link_seconds && shown->crossings > 0)
        put_path(document, terminal, out);
}

/* What is known of other placements. */
static void put_proof(const struct cli_placement_document *document,
                      const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_placement *best = document->placed->placement;
    size_t crossings = best->least_devices ? best->least_devices - 1 : 0;
    char order[96];
    snprintf(order, sizeof order, "by '%s'",
             mt_objective_name(document->placed->problem.objective));
    if (document->policy != MT_PLACE_POLICY_BEST)
        return;
    cli_table_fact(
        terminal, out, "how good",
        !best->is_best ? "the best that was found %s; a better one may exist"
        : document->placed->estimate && document->placed->problem.objective <= MT_OBJECTIVE_BALANCE
            ? "the best %s of all ways to give each device one stretch of layers, if each "
              "has as much beside its layers; by the engine's rules no neighbour is better"
            : "no way to give each device one stretch of layers is better %s",
        order);
    cli_table_fact(
        terminal, out, "bounds",
        "if devices have as much beside the layers, any placement of what is on them has "
        "at least %zu crossing%s, and on as many devices at least %.1f %% on the "
        "fullest; the gap is %.1f points",
        crossings, crossings == 1 ? "" : "s", 100 * best->least_share,
        100 * (best->highest_share - best->least_share));
    if (document->placed->problem.objective == MT_OBJECTIVE_SPEED)
        cli_table_fact(terminal, out, "speed",
                       "the devices read what a token needs in %.2f ms, crossings included; no way "
                       "with one stretch for each takes less than %.2f ms",
                       1e3 * (best->read_seconds + best->link_seconds), 1e3 * best->least_seconds);
    if (best->further_tokens != UINT64_MAX)
        cli_table_fact(terminal, out, "room", "for %" PRIu64 " further tokens of context",
                       best->further_tokens);
}

/* With up to so many devices each has its column; with more the fullest one stands for all. */
enum { DEVICES_SHOWN = 4 };

static void add_way(const struct cli_placement_document *document, enum mt_place_policy policy,
                    size_t n_shown, struct mt_text_table *table)
{
    const struct mt_placement *placement = document->compared[policy];
    struct mt_cell cells[MT_TEXT_TABLE_COLUMNS_MAX] = {0};
    char crossings[32];
    size_t n = 0;
    snprintf(crossings, sizeof crossings, "%.3g", placement->crossings);
    cells[n++] = (struct mt_cell){.text = mt_place_policy_name(policy)};
    cells[n++] = (struct mt_cell){.text = keeps_to_limits(document, placement) ? "yes" : "no"};
    cells[n++] = (struct mt_cell){.text = crossings};
    for (size_t d = 0; d < n_shown; d++)
        cells[n++] = (struct mt_cell){.percent = 100 * share_of(document, placement, d)};
    if (!n_shown)
        cells[n++] = (struct mt_cell){.percent = 100 * placement->highest_share};
    cells[n++] = (struct mt_cell){.number = placement->further_tokens};
    mt_text_table_add(table, 0, MT_ROW_PLAIN, cells);
}

static void put_ways(const struct cli_placement_document *document,
                     const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    struct mt_text_table_column columns[MT_TEXT_TABLE_COLUMNS_MAX] = {
        {"policy", MT_CELL_TEXT, 0},
        {"fits", MT_CELL_TEXT, 0},
        {"crossings", MT_CELL_TEXT_RIGHT, 0}};
    size_t devices = document->shown->n_devices;
    size_t n_shown = devices <= DEVICES_SHOWN ? devices : 0;
    size_t n = 3;
    struct mt_text_table table;
    for (size_t d = 0; d < n_shown; d++)
        columns[n++] = (struct mt_text_table_column){document->placed->problem.devices[d].name,
                                                     MT_CELL_PERCENT, 0};
    if (!n_shown)
        columns[n++] = (struct mt_text_table_column){"fullest", MT_CELL_PERCENT, 0};
    columns[n++] = (struct mt_text_table_column){"further tokens", MT_CELL_COUNT, 0};
    mt_text_table_init(&table, columns, n, terminal->utf8);
    for (int policy = 0; policy < MT_PLACE_POLICY_COUNT; policy++)
        if (document->compared[policy])
            add_way(document, (enum mt_place_policy)policy, n_shown, &table);
    cli_table_draw(&table, terminal, out);
}

/* Why the best placement is better than a policy, or that it is not. */
static void put_reason(const struct cli_placement_document *document, enum mt_place_policy policy,
                       const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    const struct mt_placement *best = document->compared[MT_PLACE_POLICY_BEST];
    const struct mt_placement *other = document->compared[policy];
    double crossings = other->crossings - best->crossings;
    double points = 100 * (other->highest_share - best->highest_share);
    const char *name = mt_place_policy_name(policy);
    if (!keeps_to_limits(document, other))
        cli_table_fact(terminal, out, "better", "than %s, with which a device is over its limit",
                       name);
    else if (crossings > 0.005 || points > 0.05)
        cli_table_fact(terminal, out, "better",
                       "than %s by %.3g crossings for each token, and by %.1f points on the "
                       "fullest device",
                       name, crossings, points);
    else
        cli_table_fact(terminal, out, "as good", "as %s", name);
}

static void put_compared(const struct cli_placement_document *document,
                         const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    if (!document->compared[MT_PLACE_POLICY_BEST])
        return;
    put_ways(document, terminal, out);
    mt_strbuf_puts(out, "\n");
    for (int policy = 1; policy < MT_PLACE_POLICY_COUNT; policy++)
        if (document->compared[policy])
            put_reason(document, (enum mt_place_policy)policy, terminal, out);
}

/* Whether the devices in use are filled evenly: to within what the largest unit takes. */
static int is_balanced(const struct cli_placement_document *document,
                       const struct mt_placement *placement, double *points)
{
    const struct mt_place_problem *problem = &document->placed->problem;
    uint64_t unit = 0;
    double high = 0;
    double low = 1;
    double step = 0;
    for (size_t i = 0; i < problem->n_units; i++) {
        uint64_t bytes = problem->units[i].dense_bytes + problem->units[i].expert_bytes +
                         problem->units[i].cache_bytes;
        unit = bytes > unit ? bytes : unit;
    }
    for (size_t d = 0; d < placement->n_devices; d++) {
        double share = share_of(document, placement, d);
        double one = (double)unit / (double)problem->devices[d].capacity_bytes;
        if (!placement->devices[d].n_units)
            continue;
        high = share > high ? share : high;
        low = share < low ? share : low;
        step = one > step ? one : step;
    }
    *points = 100 * (high - low);
    return high - low <= step;
}

static void put_balance(const struct cli_placement_document *document,
                        const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    double points;
    int balanced = is_balanced(document, document->shown, &points);
    cli_table_fact(terminal, out, "balance",
                   balanced ? "the devices in use differ by %.1f points, no more than a layer takes"
                            : "the devices in use differ by %.1f points, more than a layer takes",
                   points);
}

/* Sizes of groups that hold the model, and what each has room for. */
static void put_parallel(const struct mt_placed *placed, const struct cli_terminal *terminal,
                         struct mt_strbuf *out)
{
    static const struct mt_text_table_column columns[] = {
        {"tensor parallel", MT_CELL_COUNT, 0},  {"pipeline parallel", MT_CELL_COUNT, 0},
        {"copies", MT_CELL_COUNT, 0},           {"verdict", MT_CELL_TEXT, 0},
        {"tokens of a copy", MT_CELL_COUNT, 0}, {"tokens of all", MT_CELL_COUNT, 0},
    };
    struct mt_text_table table;
    mt_text_table_init(&table, columns, sizeof columns / sizeof *columns, terminal->utf8);
    for (size_t i = 0; i < placed->n_parallel; i++) {
        const struct mt_place_parallel *way = &placed->parallel[i];
        const struct mt_cell cells[] = {
            {.number = way->tensor},      {.number = way->pipeline},
            {.number = way->replicas},    {.text = mt_verdict_name(way->verdict)},
            {.number = way->pool_tokens}, {.number = way->pool_tokens * way->replicas},
        };
        mt_text_table_add(&table, 0, MT_ROW_PLAIN, cells);
    }
    if (placed->n_parallel)
        cli_table_draw(&table, terminal, out);
    mt_text_table_finish(&table);
}

/* A device_map is long, and may be broken between its entries. */
static void put_flags(const struct mt_placed *placed, const struct cli_terminal *terminal,
                      struct mt_strbuf *out)
{
    if (placed->n_modules)
        mt_text_wrap(out, placed->flags, 0, (size_t)terminal->columns);
    else
        mt_strbuf_printf(out, "%s%s%s\n", placed->environment, *placed->environment ? " " : "",
                         placed->flags);
}

void cli_placement_table(const struct cli_placement_document *document,
                         const struct cli_terminal *terminal, struct mt_strbuf *out)
{
    put_head(document, terminal, out);
    put_devices(document, terminal, out);
    mt_strbuf_puts(out, "\n");
    for (size_t d = 0; d < document->shown->n_devices; d++)
        put_bar(document, d, terminal, out);
    put_compared(document, terminal, out);
    put_parallel(document->placed, terminal, out);
    if (!document->compared[MT_PLACE_POLICY_BEST])
        mt_strbuf_puts(out, "\n");
    put_others(document, terminal, out);
    put_balance(document, terminal, out);
    put_proof(document, terminal, out);
    for (size_t i = 0; i < document->placed->n_notes; i++)
        cli_table_fact(terminal, out, "note", "%s", document->placed->notes[i]);
    if (document->policy == MT_PLACE_POLICY_BEST) {
        cli_table_heading(terminal, "What tells the engine so", out);
        put_flags(document->placed, terminal, out);
    }
}

/* ---- JSON ---- */

static void put_place(struct mt_json *json, const char *key, int device)
{
    if (device == MT_PLACE_HOST)
        mt_json_text(json, key, "host");
    else if (device == MT_PLACE_DISK)
        mt_json_text(json, key, "disk");
    else if (device == MT_PLACE_ANY)
        mt_json_null(json, key);
    else
        mt_json_count(json, key, (uint64_t)device);
}

static void json_devices(const struct cli_placement_document *document,
                         const struct mt_placement *placement, struct mt_json *json)
{
    uint64_t experts = count_experts(document);
    mt_json_begin_array(json, "devices");
    for (size_t d = 0; d < placement->n_devices; d++) {
        const struct mt_placement_device *device = &placement->devices[d];
        const struct mt_place_device *given = &document->placed->problem.devices[d];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "device", given->name);
        mt_json_text(json, "card", given->card);
        mt_json_count(json, "capacity_bytes", given->capacity_bytes);
        mt_json_count(json, "limit_bytes", given->limit_bytes);
        mt_json_count(json, "expected_bytes", device->expected_bytes);
        mt_json_count(json, "used_bytes", device->used_bytes);
        mt_json_count(json, "dense_bytes", device->dense_bytes);
        mt_json_count(json, "expert_bytes", device->expert_bytes);
        mt_json_count(json, "cache_bytes", device->cache_bytes);
        mt_json_count(json, "overhead_bytes", device->overhead_bytes);
        mt_json_count(json, "layers", device->layers);
        mt_json_count(json, "experts", device->experts);
        mt_json_real(json, "experts_ratio",
                     experts ? (double)device->experts / (double)experts : -1);
        mt_json_real(json, "used_ratio", share_of(document, placement, d));
        mt_json_end(json);
    }
    mt_json_end(json);
}

static void json_units(const struct cli_placement_document *document, struct mt_json *json)
{
    const struct mt_placement *shown = document->shown;
    mt_json_begin_array(json, "units");
    for (size_t i = 0; i < shown->n_units; i++) {
        const struct mt_place_unit *unit = &document->placed->problem.units[i];
        mt_json_begin_object(json, NULL);
        mt_json_text(json, "name", unit->name);
        put_place(json, "device", shown->unit_device[i]);
        mt_json_count(json, "dense_bytes", unit->dense_bytes);
        mt_json_count(json, "expert_bytes", unit->expert_bytes);
        mt_json_count(json, "cache_bytes", unit->cache_bytes);
        mt_json_count(json, "work_bytes", unit->work_bytes);
        if (unit->experts && shown->expert_device[i] != MT_PLACE_ANY)
            put_place(json, "experts_device", shown->expert_device[i]);
        if (unit->experts && shown->expert_device[i] == MT_PLACE_ANY) {
            mt_json_begin_array(json, "experts_devices");
            for (uint32_t e = 0; e < unit->experts; e++)
                put_place(json, NULL, shown->expert_at[i * shown->experts_most + e]);
            mt_json_end(json);
        }
        mt_json_end(json);
    }
    mt_json_end(json);
}

/* Null where each device that has something of it has room for any number of tokens. */
static void json_figures(const struct cli_placement_document *document,
                         const struct mt_placement *placement, struct mt_json *json)
{
    double points;
    mt_json_bool(json, "fits", keeps_to_limits(document, placement));
    mt_json_bool(json, "is_balanced", is_balanced(document, placement, &points));
    mt_json_real(json, "crossings_per_token", placement->crossings);
    mt_json_real(json, "highest_used_ratio", placement->highest_share);
    mt_json_count(json, "further_context_tokens", placement->further_tokens);
    mt_json_real(json, "link_seconds_per_token",
                 document->placed->problem.link_seconds ? placement->link_seconds : -1);
    mt_json_count(json, "host_bytes", placement->host_bytes);
    mt_json_count(json, "disk_bytes", placement->disk_bytes);
    mt_json_count(json, "host_layers", placement->host_layers);
    mt_json_count(json, "host_expert_layers", placement->host_expert_layers);
    json_devices(document, placement, json);
}

/* What accelerate takes: a device or "cpu" for each module, and how much of each it may use. */
static void json_device_map(const struct cli_placement_document *document, struct mt_json *json)
{
    const struct mt_placed *placed = document->placed;
    if (!placed->n_modules || document->policy != MT_PLACE_POLICY_BEST)
        return;
    mt_json_begin_object(json, "device_map");
    for (size_t i = 0; i < placed->n_modules; i++) {
        if (placed->modules[i].device == MT_PLACE_HOST)
            mt_json_text(json, placed->modules[i].name, "cpu");
        else if (placed->modules[i].device == MT_PLACE_DISK)
            mt_json_text(json, placed->modules[i].name, "disk");
        else
            mt_json_count(json, placed->modules[i].name, (uint64_t)placed->modules[i].device);
    }
    mt_json_end(json);
    mt_json_begin_object(json, "max_memory_bytes");
    for (size_t i = 0; i < placed->n_memory; i++) {
        char key[24];
        snprintf(key, sizeof key, "%d", placed->memory[i].device);
        mt_json_count(json, placed->memory[i].device == MT_PLACE_HOST ? "cpu" : key,
                      placed->memory[i].bytes);
    }
    mt_json_end(json);
}

static void json_parallel(const struct mt_placed *placed, struct mt_json *json)
{
    mt_json_begin_array(json, "parallel");
    for (size_t i = 0; i < placed->n_parallel; i++) {
        const struct mt_place_parallel *way = &placed->parallel[i];
        mt_json_begin_object(json, NULL);
        mt_json_count(json, "tensor_parallel", way->tensor);
        mt_json_count(json, "pipeline_parallel", way->pipeline);
        mt_json_count(json, "replicas", way->replicas);
        mt_json_text(json, "verdict", mt_verdict_name(way->verdict));
        mt_json_count(json, "pool_tokens", way->pool_tokens);
        mt_json_count(json, "pool_tokens_low", way->pool_tokens_low);
        mt_json_end(json);
    }
    mt_json_end(json);
}

void cli_placement_json(const struct cli_placement_document *document, struct mt_strbuf *out)
{
    const struct mt_placed *placed = document->placed;
    const struct mt_placement *best = placed->placement;
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "schema", "memtally/1");
    mt_json_text(&json, "kind", "placement");
    mt_json_text(&json, "model", document->model->path);
    mt_json_text(&json, "engine", document->engine);
    mt_json_text(&json, "way", placed->way);
    mt_json_text(&json, "objective", mt_objective_name(placed->problem.objective));
    mt_json_text(&json, "policy", mt_place_policy_name(document->policy));
    mt_json_count(&json, "context_tokens", placed->context_tokens);
    mt_json_real(&json, "memory_share", placed->memory_share > 0 ? placed->memory_share : -1);
    mt_json_bool(&json, "experts_are_whole", placed->experts_are_whole);
    json_figures(document, document->shown, &json);
    json_units(document, &json);
    mt_json_bool(&json, "is_best", best->is_best);
    mt_json_count(&json, "least_devices", best->least_devices);
    mt_json_real(&json, "least_used_ratio", best->least_share);
    int has_speed = placed->problem.objective == MT_OBJECTIVE_SPEED;
    mt_json_real(&json, "seconds_per_token",
                 has_speed ? best->read_seconds + best->link_seconds : -1);
    mt_json_real(&json, "least_seconds_per_token", has_speed ? best->least_seconds : -1);
    mt_json_text(&json, "environment",
                 document->policy == MT_PLACE_POLICY_BEST ? placed->environment : NULL);
    mt_json_text(&json, "flags", document->policy == MT_PLACE_POLICY_BEST ? placed->flags : NULL);
    json_device_map(document, &json);
    mt_json_begin_array(&json, "compared");
    for (int policy = 0; policy < MT_PLACE_POLICY_COUNT; policy++) {
        if (!document->compared[policy])
            continue;
        mt_json_begin_object(&json, NULL);
        mt_json_text(&json, "policy", mt_place_policy_name((enum mt_place_policy)policy));
        json_figures(document, document->compared[policy], &json);
        mt_json_end(&json);
    }
    mt_json_end(&json);
    json_parallel(placed, &json);
    mt_json_begin_array(&json, "notes");
    for (size_t i = 0; i < placed->n_notes; i++)
        mt_json_text(&json, NULL, placed->notes[i]);
    mt_json_end(&json);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}
