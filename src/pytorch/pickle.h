/* SPDX-License-Identifier: MIT */
/* The data in a pickle, as values. Nothing is executed: an opcode that would name or call a Python
 * object ends the reading.
 *
 * Knows what Python's pickle module (Lib/pickle.py and Lib/pickletools.py of CPython 3.14) writes
 * of numbers, texts, lists, tuples and dictionaries in protocols 2 to 5. A list may hold itself:
 * readers go to a depth that they choose, never as deep as the values do. One thread at a time. */
#ifndef MT_PYTORCH_PICKLE_H
#define MT_PYTORCH_PICKLE_H

#include <stddef.h>
#include <stdint.h>

struct mt_error; /* <memtally/error.h> */

enum mt_pickle_kind {
    MT_PICKLE_NONE,
    MT_PICKLE_BOOL,
    MT_PICKLE_INTEGER, /* modulo 2^64 */
    MT_PICKLE_REAL,
    MT_PICKLE_TEXT,  /* UTF-8, or bytes */
    MT_PICKLE_LIST,  /* a tuple as well */
    MT_PICKLE_DICT,  /* keys and values in turn, in the order in which they came */
    MT_PICKLE_OTHER, /* an integer past 64 bits */
};

struct mt_pickle_list;

/* `text` is borrowed from the bytes that were read and is not terminated. */
struct mt_pickle_value {
    enum mt_pickle_kind kind;
    union {
        uint64_t integer; /* of BOOL 0 or 1 */
        double real;
        struct {
            const char *at;
            uint32_t length;
        } text;
        struct mt_pickle_list *list; /* of LIST and DICT */
    } of;
};

struct mt_pickle_list {
    struct mt_pickle_value *items;
    size_t n;
    size_t capacity;
    uint64_t note; /* the reader's own; 0 at first */
};

struct mt_pickle;

/* Reads the pickle in `bytes`, which stay the caller's and must outlive it. `name` is for messages.
 * The memory it takes is at most proportional to `length`. On success *pickle is owned by the
 * caller. Errors, with the byte's offset: MT_EFORMAT (no pickle, or more than data), MT_ETRUNCATED,
 * MT_ENOMEM. */
int mt_pickle_read(const void *bytes, size_t length, const char *name, struct mt_pickle **pickle,
                   struct mt_error *error);
void mt_pickle_destroy(struct mt_pickle *pickle); /* takes NULL */

/* What was pickled. */
const struct mt_pickle_value *mt_pickle_root(const struct mt_pickle *pickle);

/* The value at a key of a dictionary, the last one where several are; NULL where there is none, or
 * `value` is no dictionary. Looks at the last 64 keys, so that many references to one large
 * dictionary cost little. Takes NULL. */
const struct mt_pickle_value *mt_pickle_get(const struct mt_pickle_value *value, const char *key);

/* The list that a value is, NULL where it is none. Takes NULL. */
struct mt_pickle_list *mt_pickle_as_list(const struct mt_pickle_value *value);

/* The number that a value is, `fallback` where it is none. Takes NULL. */
uint64_t mt_pickle_as_integer(const struct mt_pickle_value *value, uint64_t fallback);

/* Whether a value is this text. Takes NULL. */
int mt_pickle_is_text(const struct mt_pickle_value *value, const char *text);

#endif
