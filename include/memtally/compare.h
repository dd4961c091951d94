/* SPDX-License-Identifier: MIT */
/* Comparing two tallies, or a tally with figures that a calculator or another profiler gave.
 *
 * The four components that calculators know are compared with bands of accuracy, and where both
 * sides are tallies also each category of each place and its parts by name. Nothing here touches a
 * file, a device or a clock. Any function may be called from any thread.
 *
 * Both sides of a comparison stand on one basis. RESERVED is what the engine asked for: allocated
 * bytes of weights, KV cache (with recurrent state) and activations, and what is resident of the
 * rest, of which nobody reserves anything. RESIDENT is what is physically there of all of them. On
 * either basis the parts add up to the total; the total of a measurement on RESERVED is larger than
 * its resident total by the pages that were reserved and never touched. */
#ifndef MEMTALLY_COMPARE_H
#define MEMTALLY_COMPARE_H

#include <stddef.h>
#include <stdint.h>

#include <memtally/settings.h>
#include <memtally/tally.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_error; /* <memtally/error.h> */
struct mt_model; /* <memtally/model_file.h> */

/* X(NAME, "name", band). The bands are the published ones, as a share of the measured figure. */
#define MT_COMPONENT_LIST(X)                                                                       \
    X(WEIGHTS, "weights", 0.02)                                                                    \
    X(KV_CACHE, "kv_cache", 0.15) /* with recurrent state */                                       \
    X(ACTIVATIONS, "activations", 0.30)                                                            \
    X(OVERHEAD, "overhead", 0.40) /* all that is none of the three, unattributed too */            \
    X(TOTAL, "total", 0.10)

enum mt_component {
#define MT_COMPONENT_ENUM(NAME, name, band) MT_COMPONENT_##NAME,
    MT_COMPONENT_LIST(MT_COMPONENT_ENUM)
#undef MT_COMPONENT_ENUM
        MT_COMPONENT_COUNT
};

enum mt_basis { MT_BASIS_RESERVED, MT_BASIS_RESIDENT };

/* "weights" and so on. Borrowed, static. */
const char *mt_component_name(enum mt_component component);

/* "reserved", "resident". Borrowed, static. */
const char *mt_basis_name(enum mt_basis basis);

/* The component that a category belongs to; MT_CATEGORY_NONE, which here is what is unattributed,
 * belongs to the overhead. */
enum mt_component mt_component_of(enum mt_category category);

/* One component. `bytes` counts where `known` is set; only an overhead can be negative, where the
 * parts that a calculator gave exceed its total. `basis` is that of `bytes`: resident also on a
 * RESERVED basis for what is not reserved, or of which the allocated bytes are not known. The other
 * two are what a tally says, MT_UNKNOWN where it does not, and in figures. */
struct mt_component_figure {
    int known;
    int64_t bytes;
    enum mt_basis basis;
    uint64_t allocated_bytes;
    uint64_t resident_bytes;
};

struct mt_components {
    struct mt_component_figure of[MT_COMPONENT_COUNT];
};

/* The components of a place of a tally of `kind`. An estimate does not say what will be resident:
 * on a RESIDENT basis only its overhead is known. */
void mt_components_of_place(const struct mt_tally_place *place, enum mt_tally_kind kind,
                            enum mt_basis basis, struct mt_components *components);

/* The sums over the places of a tally. */
void mt_components_of_tally(const struct mt_tally *tally, enum mt_basis basis,
                            struct mt_components *components);

/* Figures that somebody gave, in bytes; what was not given has `known` 0. A missing total is the
 * sum of the four; a missing overhead the total less the other three, which may be negative. */
void mt_components_complete(struct mt_components *components);

enum mt_side_kind { MT_SIDE_MEASUREMENT, MT_SIDE_ESTIMATE, MT_SIDE_FIGURES };

/* One side: a tally, or with `tally` NULL figures. Figures are taken to be on the basis of the
 * comparison. `from_gigabytes` is set where they were given in GB or GiB, so that the wrong one
 * may have been meant. */
struct mt_compare_side {
    enum mt_side_kind kind;
    const struct mt_tally *tally;
    struct mt_components figures;
    int from_gigabytes;
};

/* How to compare. `model` and the settings of the run help to say why figures differ; NULL and
 * MT_UNKNOWN where they are not known. */
struct mt_compare_settings {
    double band_ratio[MT_COMPONENT_COUNT];
    enum mt_basis basis;
    const struct mt_model *model;
    uint64_t context_tokens;  /* that the engine reserved its cache for */
    uint64_t sequence_tokens; /* prompt and answer */
    uint64_t ubatch;
};

/* The published bands, and nothing known. */
void mt_compare_settings_init(struct mt_compare_settings *settings);

enum mt_compare_verdict {
    MT_COMPARE_NOT_COMPARABLE, /* one of the sides does not know it */
    MT_COMPARE_WITHIN,         /* B is within the band around A */
    MT_COMPARE_OVER,
    MT_COMPARE_UNDER
};

/* "not comparable", "within", "over", "under". Borrowed, static. */
const char *mt_compare_verdict_name(enum mt_compare_verdict verdict);

/* A component in both sides. difference = b - a; the ratios are of |a| and count where
 * `ratio_known` is set (comparable, and a is not 0). accuracy_ratio is 1 - |difference_ratio|, at
 * least 0. */
struct mt_component_difference {
    struct mt_component_figure a;
    struct mt_component_figure b;
    enum mt_compare_verdict verdict;
    double band_ratio;
    int64_t difference_bytes;
    int ratio_known;
    double difference_ratio;
    double accuracy_ratio;
};

struct mt_place_difference {
    const char *place;
    int in_a;
    int in_b;
    struct mt_component_difference components[MT_COMPONENT_COUNT];
};

/* A category of a place (`name` NULL), or a part of it by name; parts of one name are added up.
 * `category` MT_CATEGORY_NONE is what is unattributed. A side that does not have it holds 0 bytes
 * of it; MT_UNKNOWN is a size that is not known, and then there is no difference. */
struct mt_difference {
    const char *place;
    enum mt_category category;
    const char *name;
    int in_a;
    int in_b;
    uint64_t a_bytes;
    uint64_t b_bytes;
    int known;
    int64_t difference_bytes;
};

/* Why a component differs and what to adjust. `reason` is a word for programs
 * ("grouped_query_heads_ignored"), `text` a sentence or two. */
struct mt_advice {
    enum mt_component component;
    const char *reason;
    const char *text;
};

/* The result. A is what B is judged by. Arrays are sorted by the size of the difference, largest
 * first. `accuracy_ratio` is that of the total, `parts_accuracy_ratio` is 1 - sum of the four
 * parts' |difference| / |total of A|: where it is much less, errors cancel out. Both are negative
 * where unknown. `left_bytes` is the total of A less B's weights, KV cache and activations, which a
 * profiler would call the overhead; it counts where `left_known` is set. */
struct mt_comparison {
    enum mt_basis basis;
    struct mt_component_difference components[MT_COMPONENT_COUNT];
    size_t n_places; /* 0 unless both sides are tallies */
    const struct mt_place_difference *places;
    size_t n_rows;
    const struct mt_difference *rows;
    size_t n_parts;
    const struct mt_difference *parts;
    int all_within; /* of those that can be compared, of which there is one */
    double accuracy_ratio;
    double parts_accuracy_ratio;
    int left_known;
    int64_t left_bytes;
    size_t n_advice;
    const struct mt_advice *advice;
};

/* Compares B with A. Places are matched by name, else devices in their order. On success the caller
 * owns *comparison and frees it with mt_comparison_destroy(); names in it are borrowed from the
 * tallies. Errors: MT_EARG (a band that is negative or not a number), MT_ENOMEM. */
int mt_compare(const struct mt_compare_side *a, const struct mt_compare_side *b,
               const struct mt_compare_settings *settings, struct mt_comparison **comparison,
               struct mt_error *error);

/* Takes NULL. */
void mt_comparison_destroy(struct mt_comparison *comparison);

#ifdef __cplusplus
}
#endif
#endif
