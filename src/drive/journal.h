/* SPDX-License-Identifier: MIT */
/* The journal of a profile: what the engine said of itself and of the model, its phases and runs.
 *
 * Several threads write and read it at a time. Times are of CLOCK_MONOTONIC. Texts that are not
 * known are "", numbers MT_UNKNOWN. */
#ifndef DRIVE_JOURNAL_H
#define DRIVE_JOURNAL_H

#include <jansson.h>
#include <memtally/error.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* More events than any profile has; an engine that sends more is out of its mind. */
#define MT_PROFILE_EVENTS_MAX 65536

#define MT_PROFILE_PHASE_LIST(X)                                                                   \
    X(START, "start")                                                                              \
    X(LOAD, "load")                                                                                \
    X(CONTEXT, "context")                                                                          \
    X(PREFILL, "prefill")                                                                          \
    X(DECODE, "decode")                                                                            \
    X(IDLE, "idle")

enum mt_profile_phase_kind {
#define MT_PROFILE_PHASE_ENUM(NAME, name) MT_PROFILE_##NAME,
    MT_PROFILE_PHASE_LIST(MT_PROFILE_PHASE_ENUM)
#undef MT_PROFILE_PHASE_ENUM
        MT_PROFILE_PHASES
};

const char *mt_profile_phase_name(enum mt_profile_phase_kind kind);

/* The phase called `name`, or MT_PROFILE_PHASES. */
enum mt_profile_phase_kind mt_profile_phase_by_name(const char *name);

/* `end_ns` is MT_UNKNOWN for a phase that nothing has ended yet. */
struct mt_profile_phase {
    enum mt_profile_phase_kind kind;
    uint64_t run;
    uint64_t start_ns;
    uint64_t end_ns;
};

/* A repetition; run 0 warms up. Unknown times are negative. */
struct mt_profile_run {
    uint64_t run;
    double latency_ms;
    double prefill_ms;
    double decode_ms;
    uint64_t steps;
    uint64_t peak_device_bytes; /* by the engine's own count, over all devices */
};

struct mt_profile_facts {
    char engine_name[64];
    char engine_version[128];
    char model_name[256];
    char architecture[64];
    char dtype[64];
    char kv_type_k[16];
    char kv_type_v[16];
    char flash_attention[8];
    uint64_t parameters;
    uint64_t size_bytes;
    uint64_t layers;
    uint64_t trained_context_tokens;
    uint64_t context_tokens; /* of each sequence */
    uint64_t batch;
    uint64_t ubatch;
    uint64_t threads;
    uint64_t prompt_tokens;
    json_t *device_map; /* module: device; owned by the journal, NULL where there is none */
};

struct mt_profile_journal {
    pthread_mutex_t lock;
    struct mt_profile_facts facts;
    struct mt_profile_phase *phases;
    size_t n_phases;
    struct mt_profile_run *runs;
    size_t n_runs;
    char doing[64];
    uint64_t progress_ns;  /* when something last went on */
    int done;              /* the engine has done all that was asked */
    int closed;            /* the engine has ended, or nobody waits for it any more */
    struct mt_error error; /* the first that went wrong; code 0 where nothing did */
};

/* How things stand. */
struct mt_profile_state {
    char doing[64];
    uint64_t progress_ns;
    int done;
    int failed;
};

void mt_profile_journal_init(struct mt_profile_journal *journal);
void mt_profile_journal_finish(struct mt_profile_journal *journal);

/* A phase begins, and the one before it ends. */
void mt_profile_journal_enter(struct mt_profile_journal *journal, enum mt_profile_phase_kind kind,
                              uint64_t run, uint64_t time_ns);

/* What the progress line shows, if that is not the phase. */
void mt_profile_journal_say(struct mt_profile_journal *journal, const char *doing, uint64_t run);

void mt_profile_journal_add_run(struct mt_profile_journal *journal,
                                const struct mt_profile_run *run);

/* Everything is done; the last phase ends. */
void mt_profile_journal_complete(struct mt_profile_journal *journal, uint64_t time_ns);

/* Something went wrong; the first time counts. Returns `code`. */
int mt_profile_journal_fail(struct mt_profile_journal *journal, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Nobody waits any more: those who ask the engine give up. */
void mt_profile_journal_close(struct mt_profile_journal *journal);
int mt_profile_journal_is_closed(struct mt_profile_journal *journal);

struct mt_profile_state mt_profile_journal_look(struct mt_profile_journal *journal);

/* The facts, to be written to between these two. */
struct mt_profile_facts *mt_profile_journal_lock_facts(struct mt_profile_journal *journal);
void mt_profile_journal_unlock_facts(struct mt_profile_journal *journal);

/* Copies a text, cut to its room; NULL leaves it alone. */
void mt_profile_set_text(char *room, size_t size, const char *text);
#define MT_PROFILE_SET_TEXT(room, text) mt_profile_set_text(room, sizeof(room), text)

#endif
