/* SPDX-License-Identifier: MIT */
/* Places of this machine or pretended ones, and room in them. Knows no program.
 *
 * Pretended devices have places of their own in the budget's file, so that nobody waits for them
 * who wants real ones. */
#include "cli/budget/admit.h"

#include <errno.h>
#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/console.h"
#include "cli/state_file.h"

#define PRETENDED "pretended"
#define SLOT      ((uint64_t)256 << 20)

const char *const budget_caps[] = {"auto", "group", "rlimit", "watch", "none", NULL};

static int parse_all(const struct budget_world *world, const struct cli_texts *texts,
                     struct budget_needs *needs)
{
    struct mt_error error;
    for (size_t i = 0; i < texts->n; i++)
        if (budget_parse_needs(texts->items[i], needs, &error) < 0) {
            cli_complain("%s: %s", world->command, error.text);
            return CLI_EXIT_USAGE;
        }
    return CLI_EXIT_OK;
}

static int parse_pretended(struct budget_world *world, const struct cli_texts *texts)
{
    struct mt_error error;
    for (size_t i = 0; i < texts->n; i++)
        if (estimate_parse_devices(texts->items[i], world->pretended_bytes, world->pretended_gpus,
                                   &world->n_pretended, &error) < 0)
            return estimate_fail_as(world->command, &error);
    return CLI_EXIT_OK;
}

/* A home may be shared by machines. */
static int choose_file(struct budget_world *world, const char *named)
{
    struct mt_strbuf path = {0};
    struct mt_error error;
    char machine[64] = "";
    int status = 0;
    if (named) {
        mt_strbuf_puts(&path, named);
    } else if ((status = cli_state_folder(&path, &error)) == 0 &&
               (status = cli_state_make_folders(path.data, &error)) == 0) {
        gethostname(machine, sizeof machine - 1);
        mt_strbuf_printf(&path, "/budget-%s", machine);
    }
    if (status < 0) {
        cli_complain("%s: %s; name a file with --budget", world->command, error.text);
        mt_strbuf_finish(&path);
        return CLI_EXIT_FAILED;
    }
    world->file = mt_strbuf_take(&path);
    if (!world->file)
        cli_complain("%s: out of memory", world->command);
    return world->file ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

int budget_world_init(struct budget_world *world, const char *command,
                      const struct budget_options *options)
{
    memset(world, 0, sizeof *world);
    world->command = command;
    int code = parse_all(world, &options->keep, &world->keep);
    if (!code)
        code = parse_all(world, &options->overhead, &world->overhead);
    if (!code)
        code = parse_pretended(world, &options->devices);
    return code ? code : choose_file(world, options->file);
}

void budget_world_finish(struct budget_world *world)
{
    free(world->file);
}

static uint64_t amount(const struct budget_needs *needs, const char *place)
{
    uint64_t of_any = 0;
    for (size_t i = 0; i < needs->n; i++) {
        if (strcmp(needs->items[i].place, place) == 0)
            return needs->items[i].bytes;
        if (strcmp(needs->items[i].place, "gpu*") == 0 && strncmp(place, "gpu", 3) == 0)
            of_any = needs->items[i].bytes;
    }
    return of_any;
}

static void put_pretended(struct budget_world *world)
{
    struct mt_job_machine *machine = &world->machine;
    machine->n = 1;
    for (size_t i = 0; i < world->n_pretended && machine->n < MT_JOB_PLACES; i++) {
        char *name = machine->names[machine->n];
        snprintf(name, sizeof machine->names[0], PRETENDED "%zu", i);
        machine->places[machine->n++] =
            (struct mt_budget_place){.name = name,
                                     .capacity_bytes = world->pretended_bytes[i],
                                     .free_bytes = world->pretended_bytes[i]};
    }
}

int budget_world_look(struct budget_world *world)
{
    struct mt_job_machine *machine = &world->machine;
    struct mt_error error;
    if (mt_job_look(machine, getenv("CUDA_VISIBLE_DEVICES"), &error) < 0) {
        cli_complain("%s: %s", world->command, error.text);
        return CLI_EXIT_FAILED;
    }
    if (world->n_pretended)
        put_pretended(world);
    for (size_t i = 0; i < machine->n; i++) {
        char name[16] = "host";
        if (i > 0)
            snprintf(name, sizeof name, "gpu%u", budget_device_number(machine->names[i]));
        machine->places[i].min_free_bytes = amount(&world->keep, name);
        machine->places[i].overhead_bytes = amount(&world->overhead, name);
    }
    return CLI_EXIT_OK;
}

unsigned budget_device_number(const char *place)
{
    return (unsigned)strtoul(place + strcspn(place, "0123456789"), NULL, 10);
}

/* ---- room ---- */

static void to_pretended(char *place)
{
    char number[MT_BUDGET_PLACE_BYTES];
    snprintf(number, sizeof number, "%s", place + strlen("gpu"));
    snprintf(place, MT_BUDGET_PLACE_BYTES, PRETENDED "%.8s", number);
}

static void from_pretended(char *place)
{
    if (strncmp(place, PRETENDED, strlen(PRETENDED)) == 0)
        snprintf(place, MT_BUDGET_PLACE_BYTES, "gpu%u", budget_device_number(place));
}

int budget_ask(struct budget_world *world, const struct budget_needs *needs,
               struct budget_held *held, struct mt_error *error)
{
    struct budget_needs asked = *needs;
    for (size_t i = 0; world->n_pretended && i < asked.n; i++)
        if (strncmp(asked.items[i].place, "gpu", 3) == 0)
            to_pretended(asked.items[i].place);
    memset(held, 0, sizeof *held);
    held->guard = -1;
    held->needs = *needs;
    int status = mt_budget_ask(world->file, asked.items, asked.n, &held->id, error);
    return status < 0 ? status : mt_budget_guard(world->file, held->id, &held->guard, error);
}

/* What was given where any device would do. */
static int read_places(struct budget_world *world, struct budget_held *held, struct mt_error *error)
{
    struct mt_budget_holder *holders = calloc(MT_BUDGET_HOLDERS, sizeof *holders);
    size_t n = 0;
    int status = holders
                     ? mt_budget_list(world->file, holders, &n, NULL, error)
                     : mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "no memory to list reservations");
    for (size_t i = 0; status == 0 && i < n; i++)
        if (holders[i].id == held->id)
            for (size_t k = 0; k < held->needs.n; k++) {
                held->needs.items[k] = holders[i].needs[k];
                from_pretended(held->needs.items[k].place);
            }
    free(holders);
    return status;
}

int budget_take(struct budget_world *world, struct budget_held *held, struct mt_error *error)
{
    int status =
        mt_budget_take(world->file, held->id, world->machine.places, world->machine.n, error);
    if (status == 0)
        status = read_places(world, held, error);
    for (char *at = error->text; status < 0 && (at = strstr(at, PRETENDED));) {
        memcpy(at, "gpu", 3); /* as it was typed */
        memmove(at + 3, at + strlen(PRETENDED), strlen(at + strlen(PRETENDED)) + 1);
    }
    return status;
}

void budget_renew(struct budget_world *world, const struct budget_held *held,
                  const struct mt_job_status *status)
{
    size_t device = 0;
    for (size_t i = 0; i < held->needs.n; i++) {
        const char *place = held->needs.items[i].place;
        if (strcmp(place, "host") == 0)
            mt_budget_renew(world->file, held->id, place, status->host_bytes, NULL);
        else if (!world->n_pretended && status->device_bytes[device++] != MT_UNKNOWN)
            mt_budget_renew(world->file, held->id, place, status->device_bytes[device - 1], NULL);
    }
}

void budget_release(struct budget_world *world, struct budget_held *held)
{
    if (held->id)
        mt_budget_release(world->file, held->id, NULL);
    if (held->id && held->guard >= 0)
        close(held->guard);
    held->guard = -1;
}

void budget_put_holders(const struct budget_world *world, struct mt_strbuf *out)
{
    struct mt_budget_holder *holders = calloc(MT_BUDGET_HOLDERS, sizeof *holders);
    size_t n = 0;
    if (holders && mt_budget_list(world->file, holders, &n, NULL, NULL) < 0)
        n = 0;
    for (size_t i = 0; holders && i < n; i++) {
        mt_strbuf_printf(out, "process %d %s", holders[i].pid,
                         holders[i].holds ? "holds" : "waits for");
        for (uint32_t k = 0; k < holders[i].n_needs; k++) {
            char size[MT_SIZE_TEXT];
            from_pretended(holders[i].needs[k].place);
            mt_strbuf_printf(out, "%s %s of %s", k ? "," : "",
                             mt_format_size(holders[i].needs[k].bytes, size),
                             holders[i].needs[k].place);
        }
        mt_strbuf_puts(out, "\n");
    }
    free(holders);
}

void budget_put_room(const struct budget_world *world, struct mt_strbuf *out)
{
    for (size_t i = 0; i < world->machine.n; i++) {
        const struct mt_budget_place *place = &world->machine.places[i];
        char has[MT_SIZE_TEXT];
        char all[MT_SIZE_TEXT];
        char name[MT_BUDGET_PLACE_BYTES];
        snprintf(name, sizeof name, "%s", place->name);
        from_pretended(name);
        mt_strbuf_printf(out, "%s has %s free of %s\n", name,
                         mt_format_size(place->free_bytes, has),
                         mt_format_size(place->capacity_bytes, all));
    }
}

/* ---- ctest's file ---- */

int budget_write_spec(const struct budget_world *world, const struct budget_held *held,
                      const char *path)
{
    struct mt_strbuf gpus = {0};
    struct mt_strbuf host = {0};
    struct mt_strbuf out = {0};
    unsigned device = 0;
    size_t n = held ? held->needs.n : world->machine.n;
    for (size_t i = 0; i < n; i++) {
        const struct mt_budget_place *place = &world->machine.places[i];
        const char *name = held ? held->needs.items[i].place : place->name;
        uint64_t room = place->free_bytes > place->min_free_bytes
                            ? place->free_bytes - place->min_free_bytes
                            : 0;
        uint64_t slots = (held ? held->needs.items[i].bytes : room) / SLOT;
        int is_host = strcmp(name, "host") == 0;
        struct mt_strbuf *kind = is_host ? &host : &gpus;
        mt_strbuf_printf(kind, "%s{\"id\": \"%u\", \"slots\": %" PRIu64 "}",
                         kind->length ? ", " : "", is_host ? 0 : device++, slots);
    }
    mt_strbuf_puts(&out,
                   "{\n  \"version\": {\"major\": 1, \"minor\": 0},\n  \"local\": [\n    {\n");
    mt_strbuf_printf(&out, "      \"host\": [%s],\n      \"gpus\": [%s]\n", mt_strbuf_text(&host),
                     mt_strbuf_text(&gpus));
    mt_strbuf_puts(&out, "    }\n  ]\n}\n");
    int code = cli_write_output(&out, path);
    mt_strbuf_finish(&gpus);
    mt_strbuf_finish(&host);
    mt_strbuf_finish(&out);
    return code;
}
