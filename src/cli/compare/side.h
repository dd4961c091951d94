/* SPDX-License-Identifier: MIT */
/* One side of a comparison with everything that is known of it. */
#ifndef CLI_COMPARE_SIDE_H
#define CLI_COMPARE_SIDE_H

#include "cli/compare/file.h"
#include "cli/document/loaded.h"

/* Start with {0}. `side` is what is compared; texts are borrowed from what is owned, and NULL where
 * unknown. `engine_name` and the like are what the file or the folder says. */
struct compare_loaded {
    struct mt_compare_side side;
    const char *path; /* NULL: figures from the command line */
    const char *what; /* "recording", "estimate", "profiler's file", "figures" */
    const char *moment;
    const char *engine_name;
    const char *engine_version;
    const char *engine_path;
    const char *model_path;
    const char *model_name;
    const char *architecture;
    const char *dtype; /* of the weights, as the engine said */
    struct cli_document_settings settings;
    enum compare_unit unit; /* of figures */

    struct cli_loaded recording;
    struct cli_document_kept *kept;
    struct compare_file *file;
    struct mt_model *model;
    struct mt_estimate *estimate;
};

/* Loads a folder (a recording at `moment`) or a JSON file. Errors: those of the readers. */
int compare_load(struct compare_loaded *loaded, const char *path, const struct mt_moment *moment,
                 enum compare_unit unit, struct mt_error *error);

/* Makes a side of figures in a unit; negative is not given. Errors: MT_EARG where one is given that
 * is no size. */
struct compare_figures {
    const char *text[MT_COMPONENT_COUNT]; /* NULL where not given */
};
int compare_load_figures(struct compare_loaded *loaded, const struct compare_figures *figures,
                         enum compare_unit unit, struct mt_error *error);

/* The context that a recording had, in tokens; 0 where nothing says it. */
uint64_t compare_context_of(const struct compare_loaded *recording);

/* Makes the estimate that `recording` asks for: its model (or the one at `model_path`), its engine
 * (or `engine`) and the settings that it kept. What was learnt is put in where `use_learnt` is set.
 */
struct compare_estimate_options {
    const char *model_path;
    const char *engine;
    int cpu; /* by the index of its name in cli_cpus */
    int use_learnt;
};
int compare_load_estimate(struct compare_loaded *loaded, const struct compare_loaded *recording,
                          const struct compare_estimate_options *options, struct mt_error *error);

void compare_unload(struct compare_loaded *loaded);

/* "unattributed" for what belongs to no category. */
const char *compare_category_name(enum mt_category category);

#endif
