/* SPDX-License-Identifier: MIT */
/* A line of oracle.csv and its like: settings of a run, and what the engine planned for it. */
#ifndef MT_TESTS_ORACLE_POINT_H
#define MT_TESTS_ORACLE_POINT_H

#include <memtally/model_file.h>
#include <memtally/settings.h>

#include <stddef.h>
#include <stdint.h>

#define DEVICES_MAX 8
#define MIB         1048576.0
/* Below this share of a buffer the difference is the rounding of what was read. */
#define EXACT_SHARE 0.0005
#define DEVICE_SIZE (UINT64_C(512) << 30)

enum kind { MODEL, CONTEXT, COMPUTE, KINDS };
struct point {
    char shape[48];
    char build[16];
    char tool[16];
    char line[256]; /* the whole key, to be named by */
    uint64_t context;
    uint64_t ubatch;
    uint64_t sequences;
    int flash;
    char type_k[12];
    char type_v[12];
    size_t devices;
    char layers[12];
    double planned[KINDS][DEVICES_MAX + 1];
};

/* Settings with what they borrow. */
struct point_settings {
    uint64_t sizes[DEVICES_MAX];
    char engine[40];
    struct mt_predict_settings settings;
};

/* The next field of a line of CSV, terminated. Returns 0 or -1 where it does not fit. */
int next_field(char **at, char *out, size_t size);
int read_point(char *line, struct point *point);
void settings_of_point(const struct point *point, const struct mt_model_description *d,
                       struct point_settings *out);

#endif
