/* SPDX-License-Identifier: MIT */
/* Graph templates: the graph that an engine reserves memory with, as a small program.
 *
 * data/engines/llama.cpp/BUILD.templates holds those of a build; docs/FORMATS.md has the grammar.
 * A template is read into an arena, then run for a model and a plan, which fills a struct
 * mt_graph. The text may be anybody's: every count is bounded. */
#ifndef MT_PREDICT_TEMPLATE_H
#define MT_PREDICT_TEMPLATE_H

#include "predict/graph/graph.h"
#include "predict/llama/llama.h"

#define MT_TEMPLATE_BYTES_MAX   (1u << 20)
#define MT_TEMPLATE_LINES_MAX   8192
#define MT_TEMPLATE_NAMES_MAX   4096
#define MT_TEMPLATE_FACTORS_MAX 12
#define MT_TEMPLATE_KEYS_MAX    64
/* The band, in percent, of a model whose keys are not those that its template was made with. */
#define MT_TEMPLATE_OTHER_KEYS 40
/* The same where devices do not take flash attention of the heads, and it runs on the host. */
#define MT_TEMPLATE_UNTAKEN 100

struct mt_template_word {
    const char *at;
    size_t length;
};

/* A part of an expression. `operator` is '+', '-', '*', '/' or '~', which rounds up. */
enum mt_template_operand {
    MT_OPERAND_NUMBER,
    MT_OPERAND_SYMBOL, /* `index`: which one */
    MT_OPERAND_SOURCE, /* dimension `number` of source `index` */
    MT_OPERAND_WEIGHT, /* dimension `number` of weight `index` */
    MT_OPERAND_REST    /* what is left of the elements */
};
struct mt_template_factor {
    char operator;
    uint8_t kind;
    uint16_t index;
    uint64_t number;
};
struct mt_template_expression {
    uint32_t first;
    uint32_t n;
};

enum mt_template_source_kind {
    MT_SOURCE_NONE,
    MT_SOURCE_SELF,
    MT_SOURCE_BEFORE, /* the line run last */
    MT_SOURCE_RESULT, /* of the line that has that name */
    MT_SOURCE_LEAF,
    MT_SOURCE_WEIGHT,
    MT_SOURCE_CACHE
};
struct mt_template_source {
    uint8_t kind;
    uint8_t moved;  /* a weight of the model that is copied to where it is used */
    int16_t layers; /* a weight of that many layers on */
    uint16_t name;
};

/* One of a guard's facts; those of a line are alternatives of conjunctions. */
enum mt_template_fact_kind { MT_FACT_REGIME, MT_FACT_MODULO, MT_FACT_WEIGHT };
struct mt_template_fact {
    uint8_t kind;
    uint8_t negated;
    uint8_t starts; /* an alternative */
    uint8_t modulus;
    uint32_t value; /* a bit of the regime, a remainder, a weight's name */
};

struct mt_template_line {
    uint8_t op;   /* enum mt_op */
    uint8_t kind; /* enum mt_kind */
    uint8_t rule; /* how the shape follows from the sources */
    uint8_t type; /* MT_TYPE_COUNT: as the first source */
    uint8_t n_sources;
    int8_t of; /* the source whose bytes it writes into, or -1 */
    uint8_t axes[4];
    uint8_t is_root;
    uint8_t flags; /* MT_NODE_INPUT, MT_NODE_OUTPUT */
    uint8_t is_pinned;
    uint8_t n_dims; /* written; 0: by the rule */
    uint8_t n_strides;
    uint8_t part;
    uint16_t name; /* of the result, or UINT16_MAX */
    uint32_t first_fact;
    uint32_t n_facts;
    struct mt_template_source sources[MT_GRAPH_SOURCES_MAX];
    struct mt_template_expression dims[4];
    struct mt_template_expression strides[3];
    char stride_rules[3]; /* '.', '=', '<', '>' or 'x' for an expression */
};

/* A leaf that is made where it is first used. */
struct mt_template_leaf {
    uint16_t name;
    uint8_t is_input;
    uint8_t type; /* MT_TEMPLATE_TYPE_K, _V: as the cache is set */
    uint8_t n_dims;
    struct mt_template_expression dims[4];
    uint32_t first_fact;
    uint32_t n_facts;
};
#define MT_TEMPLATE_TYPE_K (MT_TYPE_COUNT + 1)
#define MT_TEMPLATE_TYPE_V (MT_TYPE_COUNT + 2)

enum mt_template_part { MT_TEMPLATE_HEAD, MT_TEMPLATE_LAYER, MT_TEMPLATE_TAIL, MT_TEMPLATE_PARTS };

struct mt_template_names {
    struct mt_template_word *at;
    uint32_t n;
};

/* A key of models and the values that the template was made with, apart by spaces. */
struct mt_template_key {
    struct mt_template_word name;
    struct mt_template_word values;
};

struct mt_template {
    struct mt_template_line *lines;
    uint32_t first[MT_TEMPLATE_PARTS + 1];
    struct mt_template_leaf *leafs;
    uint32_t n_leafs;
    struct mt_template_leaf *caches;
    uint32_t n_caches;
    struct mt_template_factor *factors;
    uint32_t n_factors;
    struct mt_template_fact *facts;
    uint32_t n_facts;
    struct mt_template_names results;
    struct mt_template_names leaf_names;
    struct mt_template_names cache_names;
    struct mt_template_key keys[MT_TEMPLATE_KEYS_MAX];
    uint32_t n_keys;
    uint32_t doubt_percent;           /* how far it may be off, as its maker saw; 0: it is exact */
    struct mt_template_names unused;  /* weights that no line reads */
    struct mt_template_names weights; /* of a layer; those of the model begin with '^' */
};

/* clang-format off */
/* Numbers that expressions may name; X(symbol). Those of a layer come last. */
#define MT_TEMPLATE_SYMBOLS(X)                                                                     \
    X(T) X(S) X(N) X(O) X(Q) X(B) X(C) X(W) X(D) X(V) X(L) X(P) X(conv) X(taps) X(inner) X(state)  \
    X(dt) X(group) X(qlora) X(kvlora) X(rot) X(nope) X(vh) X(widest) X(top) X(rk) X(rv)            \
    X(heads) X(kv) X(hk) X(hv) X(ff) X(E) X(U) X(eff) X(sff) X(cells)
/* What guards may ask for; X(fact). */
#define MT_REGIME_LIST(X)                                                                          \
    X(fa) X(streams) X(seqs) X(one) X(t1) X(rk) X(rv) X(last) X(first) X(swa) X(state) X(kvhost)   \
    X(normw) X(scalew) X(groups)
/* clang-format on */

enum mt_template_symbol {
#define MT_TEMPLATE_ENUM(name) MT_SYMBOL_##name,
    MT_TEMPLATE_SYMBOLS(MT_TEMPLATE_ENUM)
#undef MT_TEMPLATE_ENUM
        MT_SYMBOL_COUNT
};

enum mt_template_regime {
#define MT_TEMPLATE_ENUM(name) MT_REGIME_##name,
    MT_REGIME_LIST(MT_TEMPLATE_ENUM)
#undef MT_TEMPLATE_ENUM
        MT_REGIME_COUNT
};

enum mt_template_rule {
    MT_RULE_LIKE,
    MT_RULE_MUL_MAT,
    MT_RULE_MUL_MAT_ID,
    MT_RULE_GET_ROWS,
    MT_RULE_FLASH_ATTENTION,
    MT_RULE_GLU,
    MT_RULE_SUM_ROWS,
    MT_RULE_VIEW,
    MT_RULE_RESHAPE,
    MT_RULE_PERMUTE,
    MT_RULE_EACH,  /* a view for each expert that is used */
    MT_RULE_TOTAL, /* their sum, one after the other */
    MT_RULE_EXPAND
};

/* The template of `architecture` in a file of templates; *found is its text. Returns 0 or
 * MT_ENOTFOUND. */
int mt_template_find(const char *text, size_t length, const char *architecture,
                     struct mt_template_word *found);

/* The same in the templates of an engine's build, as its table names them. */
int mt_template_of_engine(const struct mt_engine *engine, const char *architecture,
                          struct mt_template_word *file, struct mt_template_word *found);

/* Reads the text of one template of a file; both must outlive it. Blocks of lines that it uses are
 * looked for in the file. Errors: MT_EFORMAT with the offset,
 * MT_ELIMIT, MT_ENOMEM. */
int mt_template_read(struct mt_arena *arena, struct mt_template_word file,
                     struct mt_template_word text, struct mt_template *template,
                     struct mt_error *error);

/* What a template is run for. */
struct mt_template_run {
    const struct mt_llama_plan *plan;
    int single_tokens; /* one for each sequence, not a batch */
    int pins;          /* what is marked so runs where its layer lies */
};

/* Adds the operations to `graph`. Errors: MT_EFORMAT where an expression or a name has no value for
 * this model, MT_ELIMIT, MT_ENOMEM, what placing tensors says. */
int mt_template_fill(const struct mt_template *template, const struct mt_template_run *run,
                     struct mt_graph *graph, struct mt_error *error);

/* Whether a model has values of the keys that the template was made with. */
int mt_template_knows_keys(const struct mt_template *template, const struct mt_model *model);

/* What the facts and symbols are in such a run. */
struct mt_template_facts {
    uint64_t symbols[MT_SYMBOL_COUNT];
    uint32_t regime; /* bits of enum mt_template_regime */
};
void mt_template_facts_of_model(const struct mt_template_run *run, struct mt_template_facts *facts);
/* The same for layer il, starting from those of the model. */
void mt_template_facts_of_layer(const struct mt_template_run *run, size_t il,
                                struct mt_template_facts *facts);

#endif
