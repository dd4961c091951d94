/* SPDX-License-Identifier: MIT */
/* The journal. Knows no engine. */
#include "journal.h"

#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/tally.h>
#include <memtally/units.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/ticks.h"

const char *mt_profile_phase_name(enum mt_profile_phase_kind kind)
{
    static const char *const names[] = {
#define MT_PROFILE_PHASE_TEXT(NAME, name) name,
        MT_PROFILE_PHASE_LIST(MT_PROFILE_PHASE_TEXT)
#undef MT_PROFILE_PHASE_TEXT
    };
    return kind < MT_PROFILE_PHASES ? names[kind] : "?";
}

enum mt_profile_phase_kind mt_profile_phase_by_name(const char *name)
{
    for (enum mt_profile_phase_kind kind = 0; kind < MT_PROFILE_PHASES; kind++)
        if (strcmp(mt_profile_phase_name(kind), name) == 0)
            return kind;
    return MT_PROFILE_PHASES;
}

void mt_profile_journal_init(struct mt_profile_journal *journal)
{
    *journal = (struct mt_profile_journal){
        .facts = {.parameters = MT_UNKNOWN,
                  .size_bytes = MT_UNKNOWN,
                  .layers = MT_UNKNOWN,
                  .trained_context_tokens = MT_UNKNOWN,
                  .context_tokens = MT_UNKNOWN,
                  .batch = MT_UNKNOWN,
                  .ubatch = MT_UNKNOWN,
                  .threads = MT_UNKNOWN,
                  .prompt_tokens = MT_UNKNOWN},
        .doing = "start",
        .progress_ns = mt_monotonic_ns(),
    };
    pthread_mutex_init(&journal->lock, NULL);
}

void mt_profile_journal_finish(struct mt_profile_journal *journal)
{
    pthread_mutex_destroy(&journal->lock);
    json_decref(journal->facts.device_map);
    free(journal->phases);
    free(journal->runs);
    journal->facts.device_map = NULL;
    journal->phases = NULL;
    journal->runs = NULL;
}

static void fail_locked(struct mt_profile_journal *journal, int code, const char *text)
{
    if (journal->error.code)
        return;
    journal->error.code = code;
    journal->error.offset = MT_NO_OFFSET;
    snprintf(journal->error.text, sizeof journal->error.text, "%s", text);
}

/* Makes room for one more of `size` bytes. Arrays double at powers of two. */
static int grow(struct mt_profile_journal *journal, void **array, size_t n, size_t size)
{
    if (n >= MT_PROFILE_EVENTS_MAX) {
        fail_locked(journal, MT_ELIMIT, "the engine reports events without end");
        return 0;
    }
    if (mt_array_grow_from(array, n, size) < 0) {
        fail_locked(journal, MT_ENOMEM, "out of memory");
        return 0;
    }
    return 1;
}

static void describe(struct mt_profile_journal *journal, const char *doing, uint64_t run)
{
    if (run == 0)
        snprintf(journal->doing, sizeof journal->doing, "%s", doing);
    else
        snprintf(journal->doing, sizeof journal->doing, "%s, run %" PRIu64, doing, run);
    journal->progress_ns = mt_monotonic_ns();
}

static void end_last_phase(struct mt_profile_journal *journal, uint64_t time_ns)
{
    if (journal->n_phases > 0)
        journal->phases[journal->n_phases - 1].end_ns = time_ns;
}

void mt_profile_journal_enter(struct mt_profile_journal *journal, enum mt_profile_phase_kind kind,
                              uint64_t run, uint64_t time_ns)
{
    pthread_mutex_lock(&journal->lock);
    if (grow(journal, (void **)&journal->phases, journal->n_phases, sizeof *journal->phases)) {
        end_last_phase(journal, time_ns);
        journal->phases[journal->n_phases++] =
            (struct mt_profile_phase){kind, run, time_ns, MT_UNKNOWN};
        int warms_up = run == 0 && (kind == MT_PROFILE_PREFILL || kind == MT_PROFILE_DECODE);
        describe(journal, warms_up ? "warm-up" : mt_profile_phase_name(kind), run);
    }
    pthread_mutex_unlock(&journal->lock);
}

void mt_profile_journal_say(struct mt_profile_journal *journal, const char *doing, uint64_t run)
{
    pthread_mutex_lock(&journal->lock);
    describe(journal, doing, run);
    pthread_mutex_unlock(&journal->lock);
}

void mt_profile_journal_add_run(struct mt_profile_journal *journal,
                                const struct mt_profile_run *run)
{
    pthread_mutex_lock(&journal->lock);
    if (grow(journal, (void **)&journal->runs, journal->n_runs, sizeof *journal->runs)) {
        journal->runs[journal->n_runs++] = *run;
        journal->progress_ns = mt_monotonic_ns();
    }
    pthread_mutex_unlock(&journal->lock);
}

void mt_profile_journal_complete(struct mt_profile_journal *journal, uint64_t time_ns)
{
    pthread_mutex_lock(&journal->lock);
    end_last_phase(journal, time_ns);
    journal->done = 1;
    describe(journal, "end", 0);
    pthread_mutex_unlock(&journal->lock);
}

int mt_profile_journal_fail(struct mt_profile_journal *journal, int code, const char *format, ...)
{
    char text[sizeof journal->error.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&journal->lock);
    fail_locked(journal, code, text);
    pthread_mutex_unlock(&journal->lock);
    return code;
}

void mt_profile_journal_close(struct mt_profile_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    journal->closed = 1;
    pthread_mutex_unlock(&journal->lock);
}

int mt_profile_journal_is_closed(struct mt_profile_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    int closed = journal->closed;
    pthread_mutex_unlock(&journal->lock);
    return closed;
}

struct mt_profile_state mt_profile_journal_look(struct mt_profile_journal *journal)
{
    struct mt_profile_state state;
    pthread_mutex_lock(&journal->lock);
    memcpy(state.doing, journal->doing, sizeof state.doing);
    state.progress_ns = journal->progress_ns;
    state.done = journal->done;
    state.failed = journal->error.code != 0;
    pthread_mutex_unlock(&journal->lock);
    return state;
}

struct mt_profile_facts *mt_profile_journal_lock_facts(struct mt_profile_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    return &journal->facts;
}

void mt_profile_journal_unlock_facts(struct mt_profile_journal *journal)
{
    pthread_mutex_unlock(&journal->lock);
}

void mt_profile_set_text(char *room, size_t size, const char *text)
{
    if (text)
        snprintf(room, size, "%s", text);
}
