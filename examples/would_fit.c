/* SPDX-License-Identifier: MIT */
/* Does a model fit on a card, and if not, with which change does it?
 *
 *     cc would_fit.c $(pkg-config --cflags --libs memtally)
 *     ./a.out model.gguf 24GiB [FOLDER OF AN ENGINE]
 *
 * With an engine it is asked itself, on a device that is not there; without, rules answer. Without
 * a model the shape of a small one stands for it, which is written to a file without weights. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <memtally/memtally.h>

extern char **environ;

static const char *size_of(uint64_t bytes, char text[MT_SIZE_TEXT])
{
    return mt_format_size(bytes, text);
}

static int write_sample(char path[], struct mt_error *error)
{
    const struct mt_model_shape *shape = mt_model_shape_by_name("llama-3.2-1b");
    const struct mt_sample_options options = {.type = MT_WEIGHT_Q4_K, .mode = MT_SAMPLE_SPARSE};
    int fd = mkstemp(path);
    if (fd >= 0)
        close(fd);
    return mt_sample_model_write(path, shape, &options, NULL, error);
}

static void print(const struct mt_suggestions *suggestions)
{
    char held[MT_SIZE_TEXT];
    char capacity[MT_SIZE_TEXT];
    const struct mt_estimate *estimate = mt_suggestions_estimate(suggestions);
    const struct mt_suggestion *change;
    printf("%s%s%s\n", mt_verdict_name(estimate->verdict), estimate->reason ? ": " : "",
           estimate->reason ? estimate->reason : "");
    for (size_t i = 0; (change = mt_suggestions_at(suggestions, i)) != NULL; i++) {
        if (change->device_bytes)
            printf("%-10s devices of %s\n", mt_term_kind_name(change->kind),
                   size_of(change->device_bytes, capacity));
        else
            printf("%-10s %s (%s of %s); costs: %s\n", mt_term_kind_name(change->kind),
                   change->flags, size_of(change->held_bytes, held),
                   size_of(change->capacity_bytes, capacity), change->costs);
    }
    if (*mt_suggestions_note(suggestions))
        printf("%s\n", mt_suggestions_note(suggestions));
}

static int ask(const char *path, uint64_t device_bytes, const char *engine, struct mt_error *error)
{
    struct mt_predict_settings settings = {
        .context_tokens = 131072, .device_bytes = &device_bytes, .n_devices = 1};
    struct mt_stage_options options = {.engine_path = engine, .environment = environ};
    struct mt_model *model = NULL;
    struct mt_stage *stage = NULL;
    struct mt_suggestions *suggestions = NULL;
    int result = mt_model_open(path, NULL, &model, error);
    if (result == 0 && engine)
        result = mt_stage_open(model, &options, &stage, error);
    if (result == 0)
        result = mt_suggest(model, stage, &settings, &suggestions, error);
    if (result == 0)
        print(suggestions);
    mt_suggestions_destroy(suggestions);
    mt_stage_close(stage);
    mt_model_close(model);
    return result;
}

int main(int argc, char **argv)
{
    char sample[] = "/tmp/would-fit-XXXXXX";
    uint64_t device_bytes = (uint64_t)2 << 30;
    struct mt_error error = {.code = MT_OK};
    if (argc > 2 && mt_parse_size(argv[2], &device_bytes) != MT_OK) {
        fprintf(stderr, "would_fit: '%s' is no size\n", argv[2]);
        return 1;
    }
    int result = argc > 1 ? 0 : write_sample(sample, &error);
    if (result == 0)
        result = ask(argc > 1 ? argv[1] : sample, device_bytes, argc > 3 ? argv[3] : NULL, &error);
    if (argc < 2)
        unlink(sample);
    if (result != 0)
        fprintf(stderr, "would_fit: %s\n", error.text);
    return result != 0;
}
