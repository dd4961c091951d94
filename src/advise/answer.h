/* SPDX-License-Identifier: MIT */
/* What a document of a rehearsal refers to. */
#ifndef ADVISE_TOLD_H
#define ADVISE_TOLD_H

#include "advise/search.h"
#include "drive/job.h"

struct mt_advise_answer {
    struct mt_drive_result result; /* filled in by the caller, owned */
    struct mt_advise_changes changes;
    struct mt_rehearsed_change document_changes[MT_ADVISE_CHANGES_MAX];
    char options[MT_ADVISE_CHANGES_MAX][200]; /* the flags of each change as memtally's own */
    struct mt_rehearsed_late *late;
    struct mt_rehearsal_phase *phases;
    struct mt_rehearsal_figure *figures;
    struct mt_rehearsal_allocator *allocators;
    struct mt_rehearsed rehearsal;
    char note[1200]; /* on what is suggested, or why nothing is; "" */
};

/* Adds a sentence to the note. */
void mt_advise_answer_note(struct mt_advise_answer *answer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Warns of a program that was ended while it worked on. */
void mt_advise_note_runs_on(struct mt_advise_answer *answer);

/* Notes that no change of flags that was tried fits, and how many there were, where that is so. */
void mt_advise_answer_count(struct mt_advise_answer *answer);

/* Looks for flags that fit. What keeps it from looking is no failure of the rehearsal: a note. */
void mt_advise_answer_find_changes(const struct mt_drive_job *job, struct mt_advise_answer *answer);

/* Fills in answer->rehearsal, which refers to the job's command line and to the rest. With
 * `with_options`, changes are also spelled in memtally's own options. */
void mt_advise_answer_fill(const struct mt_drive_job *job, int with_options,
                           struct mt_advise_answer *answer);

void mt_advise_answer_finish(struct mt_advise_answer *answer);

#endif
