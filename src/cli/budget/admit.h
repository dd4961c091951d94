/* SPDX-License-Identifier: MIT */
/* Waiting for room and holding it: what 'memtally exec' and 'memtally test' share. */
#ifndef CLI_BUDGET_ADMIT_H
#define CLI_BUDGET_ADMIT_H

#include "base/strbuf.h"
#include "cli/budget/needs.h"
#include "cli/model/model.h"

/* Options that both have; texts as they were typed. */
struct budget_options {
    const char *file;
    struct cli_texts keep;
    struct cli_texts overhead;
    struct cli_texts devices; /* pretended */
    int cap;                  /* enum mt_job_cap */
};

extern const char *const budget_caps[];

#define BUDGET_OPTIONS(options)                                                                    \
    {.name = "cap",                                                                                \
     .kind = CLI_CHOICE,                                                                           \
     .argument = "CAP",                                                                            \
     .choices = budget_caps,                                                                       \
     .fallback = "auto",                                                                           \
     .offset = (options) + offsetof(struct budget_options, cap),                                   \
     .help = "how memtally holds a program to its need of the host: group, all its processes "     \
             "together by a control group; rlimit, each process by RLIMIT_DATA; watch, memtally "  \
             "looks often and kills it, also for a device; none, not at all. auto is group if "    \
             "memtally may make one, else rlimit. With auto, group and rlimit the recorder "       \
             "holds it to its part of a device"},                                                  \
        {.name = "on",                                                                             \
         .kind = CLI_TEXTS,                                                                        \
         .argument = "DEVICE[,DEVICE...]",                                                         \
         .offset = (options) + offsetof(struct budget_options, devices),                           \
         .words = cli_words_gpus,                                                                  \
         .is_list = 1,                                                                             \
         .help = "devices that are not there, as in 'memtally rehearse': gpu0, gpu1 and so on "    \
                 "are these, and refuse what is past the need"},                                   \
        {.name = "keep",                                                                           \
         .kind = CLI_TEXTS,                                                                        \
         .argument = "PLACE=SIZE[,...]",                                                           \
         .offset = (options) + offsetof(struct budget_options, keep),                              \
         .help = "what stays free of a place; gpu is each device"},                                \
        {.name = "overhead",                                                                       \
         .kind = CLI_TEXTS,                                                                        \
         .argument = "PLACE=SIZE[,...]",                                                           \
         .offset = (options) + offsetof(struct budget_options, overhead),                          \
         .help = "what each program takes of a place beside its need, as a driver's context"},     \
    {                                                                                              \
        .name = "budget", .kind = CLI_FILE, .argument = "FILE",                                    \
        .offset = (options) + offsetof(struct budget_options, file),                               \
        .help = "the file that holds who has what; by default one of the user on this machine. "   \
                "Containers that share a card name one that is mounted into each"                  \
    }

/* The places and the file, made ready. */
struct budget_world {
    const char *command; /* that complains */
    char *file;
    struct mt_job_machine machine;
    struct budget_needs keep;
    struct budget_needs overhead;
    size_t n_pretended;
    uint64_t pretended_bytes[ESTIMATE_DEVICES_MAX];
    char pretended_gpus[ESTIMATE_DEVICES_MAX][ESTIMATE_GPU_BYTES];
};

/* What is held, with places by their names: "host", "gpu0". */
struct budget_held {
    uint64_t id;
    int guard;
    struct budget_needs needs;
};

/* Returns an exit status, having complained where that is none of success. */
int budget_world_init(struct budget_world *world, const char *command,
                      const struct budget_options *options);
void budget_world_finish(struct budget_world *world);

/* Looks at the machine anew. Returns an exit status, as above. */
int budget_world_look(struct budget_world *world);

/* Asks for room; budget_take() says whether it is there now. Each returns 0 or an MT_E
 * code. */
int budget_ask(struct budget_world *world, const struct budget_needs *needs,
               struct budget_held *held, struct mt_error *error);
int budget_take(struct budget_world *world, struct budget_held *held, struct mt_error *error);

/* Says how much the holder has of the host and of its devices, in the order of its needs. */
void budget_renew(struct budget_world *world, const struct budget_held *held,
                  const struct mt_job_status *status);
/* Nothing is done for one that was not asked for: id 0. */
void budget_release(struct budget_world *world, struct budget_held *held);

/* Appends who holds and who waits, a line each. */
void budget_put_holders(const struct budget_world *world, struct mt_strbuf *out);

/* Appends what each place has, a line each. */
void budget_put_room(const struct budget_world *world, struct mt_strbuf *out);

/* The number of a place: of "gpu1" it is 1. */
unsigned budget_device_number(const char *place);

/* What ctest's --resource-spec-file reads: slots of 256 MiB of the host and of each device. Writes
 * what is held, or what is free where `held` is NULL. Returns an exit status. */
int budget_write_spec(const struct budget_world *world, const struct budget_held *held,
                      const char *path);

#endif
