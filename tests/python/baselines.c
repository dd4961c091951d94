/* SPDX-License-Identifier: MIT */
/* What the command's reader of baselines makes of texts, for test_baselines.py. A line of the input
 * is a question, its texts in hexadecimal digits with a dot before them, so that none is empty:
 *
 *   most .TEXT .NAME .PLACE TOLERANCE     the bytes that it may take, or "wrong"
 *   add .TEXT .NAME .PLACE TOTAL WEIGHTS KV_CACHE    the text with the peaks, in digits, or "wrong"
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/tally.h>

#include "advise/baseline.h"

#define LINE_MAX_BYTES 65536

static size_t from_digits(const char *word, char *bytes)
{
    size_t n = 0;
    for (const char *at = word + 1; at[0] && at[1]; at += 2) {
        unsigned byte = 0;
        sscanf(at, "%2x", &byte);
        bytes[n++] = (char)byte;
    }
    bytes[n] = 0;
    return n;
}

static char *take_text(char bytes[LINE_MAX_BYTES], size_t *length)
{
    *length = from_digits(strtok(NULL, " \n"), bytes);
    return bytes;
}

static uint64_t take_number(void)
{
    return strtoull(strtok(NULL, " \n"), NULL, 10);
}

static void add(const struct mt_baseline *baseline, const char *name, const char *place)
{
    struct mt_strbuf out = {0};
    struct mt_tally_place it = {
        .place = place, .total_allocated_bytes = take_number(), .n_rows = 2};
    struct mt_tally_row rows[2] = {
        {.category = MT_CATEGORY_WEIGHTS, .allocated_bytes = take_number()}};
    rows[1] =
        (struct mt_tally_row){.category = MT_CATEGORY_KV_CACHE, .allocated_bytes = take_number()};
    it.rows = rows;
    const struct mt_tally tally = {.n_places = 1, .places = &it};
    mt_baseline_add(baseline, name, &tally, &out);
    for (size_t i = 0; i < out.length; i++)
        printf("%02x", (unsigned char)out.data[i]);
    printf("\n");
    mt_strbuf_finish(&out);
}

int main(void)
{
    static char line[LINE_MAX_BYTES], text[LINE_MAX_BYTES], name[LINE_MAX_BYTES],
        place[LINE_MAX_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        struct mt_baseline baseline;
        size_t length, ignored;
        int is_add = strcmp(strtok(line, " \n"), "add") == 0;
        take_text(text, &length);
        take_text(name, &ignored);
        take_text(place, &ignored);
        if (mt_baseline_find(text, length, name, &baseline, NULL) != 0)
            printf("wrong\n");
        else if (is_add)
            add(&baseline, name, place);
        else
            printf("%" PRIu64 "\n",
                   mt_baseline_most_bytes(&baseline, place, strtod(strtok(NULL, " \n"), NULL)));
    }
    return 0;
}
