/* SPDX-License-Identifier: MIT */
/* One published run: its settings, and what its log says of each buffer. */
#ifndef MT_TESTS_LOG_CASE_H
#define MT_TESTS_LOG_CASE_H

#include <stdio.h>

#include <memtally/settings.h>

#define CASE_DEVICES 24
#define CASE_FIELDS  48
#define CASE_LINE    4096
#define CASE_TEXT    512
#define NOT_MEASURED (-1.0)

enum case_part { CASE_WEIGHTS, CASE_KV, CASE_STATE, CASE_COMPUTE, CASE_PARTS };

/* Sizes are in MiB, NOT_MEASURED where the log has none. Entry n_devices is the host. `whole`: the
 * log prints whole MiB and does not tell cache from state. `types_known`: the types of weights that
 * are copied to a device and back follow from what the log says. Texts lie in `line`. */
struct log_case {
    char line[CASE_LINE];
    const char *fields[CASE_FIELDS];
    const char *id;
    const char *engine;
    const char *family;
    char model[CASE_TEXT];
    struct mt_predict_settings settings;
    struct mt_tensor_override override;
    char engine_version[64];
    uint64_t device_bytes[CASE_DEVICES];
    double split[CASE_DEVICES];
    size_t n_devices;
    int whole;
    int types_known;
    double mib[CASE_DEVICES + 1][CASE_PARTS];
    double output_mib;
};

struct case_table {
    FILE *file;
    const char *folder;
    char head[CASE_LINE];
    const char *names[CASE_FIELDS];
    int n_names;
};

/* Opens FOLDER/cases.tsv. 0 where it cannot be read. */
int case_table_open(struct case_table *table, const char *folder);
void case_table_close(struct case_table *table);
/* Reads the next case; 0 at the end. */
int case_next(struct case_table *table, struct log_case *c);

#endif
