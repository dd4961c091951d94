/* SPDX-License-Identifier: MIT */
/* A stage as other programs than ours have it. */
#include "open_stage.h"

#include <stdlib.h>

#include <memtally/drive.h>

#include "base/out_of_memory.h"

int mt_stage_open(const struct mt_model *model, const struct mt_stage_options *options,
                  struct mt_stage **stage, struct mt_error *error)
{
    static char *const nothing[] = {NULL};
    struct mt_stage *made = calloc(1, sizeof *made);
    if (!made)
        return mt_out_of_memory(error);
    const struct mt_drive_stage_options wanted = {
        .program = options->program,
        .engine_name = options->engine,
        .engine_path = options->engine_path,
        .model = model,
        .model_name = mt_model_describe(model)->path,
        .generation = options->generation,
        .timeout_ns = options->timeout_ns,
        .environment = options->environment ? options->environment : nothing,
    };
    int result = mt_drive_stage_init(&made->drive, &wanted, error);
    if (result < 0) {
        free(made);
        return result;
    }
    *stage = made;
    return 0;
}

const char *mt_stage_engine(const struct mt_stage *stage)
{
    return stage->drive.engine_name;
}

const char *mt_stage_program(const struct mt_stage *stage)
{
    return stage->drive.program_path;
}

void mt_stage_close(struct mt_stage *stage)
{
    if (stage)
        mt_drive_stage_finish(&stage->drive);
    free(stage);
}
