/* SPDX-License-Identifier: MIT */
/* What a server that already runs says of itself: which engine it is, by its command line and the
 * engines' tables, and what its endpoint answers. Nothing but known engines is asked, and only what
 * changes nothing. Of an environment only the names that the engine's table lists are read. */
#ifndef DRIVE_RUNNING_H
#define DRIVE_RUNNING_H

#include <limits.h>
#include <memtally/model_file.h>
#include <memtally/tally.h>
#include <stdint.h>
#include <sys/types.h>

#define MT_RUNNING_MODEL_BYTES       512
#define MT_RUNNING_ENVIRONMENT_BYTES 2048
#define MT_RUNNING_VARIABLES         32
#define MT_RUNNING_WORDS             128

/* Texts are "" and numbers 0 where nothing says. */
struct mt_drive_running {
    char engine[32];  /* as its table is called */
    char rules[32];   /* the table whose rules its memory follows: of Ollama its runner's */
    char version[64]; /* the server's own word */
    char model[MT_RUNNING_MODEL_BYTES];
    char shown_model[MT_RUNNING_MODEL_BYTES]; /* without what may be a secret */
    uint64_t context_tokens;                  /* of a request */
    uint64_t sequences;                       /* at a time */
    uint64_t cache_tokens;                    /* that all requests together have room for */
    int is_logged;                            /* it was its log that told these tokens */
    uint64_t cache_bytes;                     /* of each device, by the engine's own word */
    uint64_t weight_bytes;                    /* likewise */
    uint64_t loaded_bytes;                    /* of all that is loaded, by the engine's own word */
    uint64_t loaded_device_bytes;
    int is_told_loaded;
    /* What its command line says, and variables that stand for flags. */
    char kv_type_k[16];
    char kv_type_v[16];
    char gpu_layers[16];
    uint64_t ranks;    /* that share each layer */
    int has_sequences; /* it was told how many; not, where that was left to it */
    int is_unified;    /* sequences share the cache */
    int keeps_kv_on_host;
    int told_port;                                  /* that it was told to listen at, or 0 */
    char environment[MT_RUNNING_ENVIRONMENT_BYTES]; /* "NAME=value", each ended by a NUL */
    char *variables[MT_RUNNING_VARIABLES + 1];      /* of these; ends with NULL */
    pid_t pid;         /* whose command line says all that: the process, a child or a parent */
    uint64_t start;    /* of that process, in ticks: its number may be another's later */
    int port;          /* that answered */
    int is_elsewhere;  /* it is in another network than ours */
    char problem[192]; /* a sentence on why nobody answered, or "" */
};

/* Looks at `root` and its descendants, parents first, and asks the first known engine's endpoint
 * for at most `timeout_ms` in all; not at all where that is 0. A worker that has written over its
 * command line is known by its parent's. `proc` is "/proc". mt_http_start() was called before,
 * where it may ask. */
void mt_drive_running_look(const char *proc, pid_t root, uint64_t timeout_ms,
                           struct mt_drive_running *running);

/* Whether the server's log could tell what its endpoint did not. */
int mt_drive_running_wants_log(const struct mt_drive_running *running);

/* Takes what the text of its log tells, and nothing else of it. */
void mt_drive_running_take_log(const char *text, size_t n, struct mt_drive_running *running);

/* The table's name of the first known engine at `root` and its descendants, or "". */
void mt_drive_running_find(const char *proc, pid_t root, char engine[32]);

/* Whether the process has our network, so that its ports are those of this machine. */
int mt_drive_running_is_near(const char *proc, pid_t pid);

/* The files as the server sees them, which may have another root and another working folder. No
 * link of theirs leads to files of ours. */
struct mt_drive_running_files {
    struct mt_model_files files;
    int root;              /* a descriptor, or -1 where it has our files */
    char folder[PATH_MAX]; /* that it works in, or "" */
};

void mt_drive_running_files_open(const char *proc, const struct mt_drive_running *running,
                                 struct mt_drive_running_files *opened);

void mt_drive_running_files_close(const struct mt_drive_running_files *opened);

/* Whether the process that said all that still runs, so that its files are its own. */
int mt_drive_running_lives(const char *proc, const struct mt_drive_running *running);

/* Makes what the server calls `path` a path of these files. Returns 0 where that does not fit. */
int mt_drive_running_path(const struct mt_drive_running_files *opened, const char *path,
                          char whole[PATH_MAX]);

/* Words on a tally of the server (running_words.c). */
struct mt_drive_words {
    struct mt_tally_word items[MT_RUNNING_WORDS];
    char names[MT_RUNNING_WORDS][96];
    size_t n;
    char why[192]; /* a sentence on what is not known, or "" */
};

/* A model's header, and why there is none. */
struct mt_drive_running_header {
    struct mt_model *model; /* or NULL */
    char why[192];          /* a sentence, or "" where no file was named */
};

/* Reads the header of what is named `path` among `files`. */
void mt_drive_running_header_open(const struct mt_model_files *files, const char *path,
                                  struct mt_drive_running_header *header);

void mt_drive_running_header_close(struct mt_drive_running_header *header);

/* What the server's words, its model's header and the rules of its version make of a tally: weights
 * and cache, in bytes, or that they are unknown; what it computes with always is. */
void mt_drive_running_words(const struct mt_drive_running *running,
                            const struct mt_drive_running_header *header,
                            const struct mt_tally *tally, struct mt_drive_words *words);

/* What is unknown in a tally of processes that were all seen from outside, where no server's words
 * are kept; nothing if the recorder was in one of them. `is_model` says that they are known to
 * compute a model. */
void mt_drive_unseen_words(const struct mt_tally *tally, int is_model,
                           struct mt_drive_words *words);

#endif
