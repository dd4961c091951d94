/* SPDX-License-Identifier: MIT */
/* Reads the text of graph templates. Knows their grammar, no model and no plan. */
#include "template.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"
#include "base/out_of_memory.h"

#define MODULUS_MAX 64

struct reader {
    struct mt_arena *arena;
    struct mt_template *out;
    const char *start;
    struct mt_error *error;
    uint32_t n_lines;
    uint32_t capacity;
    uint32_t most;        /* words that the text can have */
    uint32_t guard_first; /* of the lines at hand */
    uint32_t guard_n;
    int part;
    uint8_t computes; /* enum mt_graph_part of the lines that follow */
    int code;
};

static int fail(struct reader *r, const char *at, const char *what)
{
    if (!r->code)
        r->code = mt_fail(r->error, MT_EFORMAT, (uint64_t)(at - r->start), "template: %s", what);
    return r->code;
}

static int is_word(struct mt_template_word word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.at, text, word.length) == 0;
}

static struct mt_template_word from(struct mt_template_word word, size_t skip)
{
    return (struct mt_template_word){word.at + skip, word.length - skip};
}

/* The next word of a line, ended by a space; *rest begins behind it. */
static struct mt_template_word next_word(struct mt_template_word *rest)
{
    while (rest->length && *rest->at == ' ')
        *rest = from(*rest, 1);
    size_t n = 0;
    while (n < rest->length && rest->at[n] != ' ')
        n++;
    struct mt_template_word word = {rest->at, n};
    *rest = from(*rest, n);
    return word;
}

static struct mt_template_word next_line(struct mt_template_word *rest)
{
    const char *end = rest->length ? memchr(rest->at, '\n', rest->length) : NULL;
    size_t n = end ? (size_t)(end - rest->at) : rest->length;
    struct mt_template_word line = {rest->at, n};
    *rest = from(*rest, n < rest->length ? n + 1 : n);
    return line;
}

int mt_template_find(const char *text, size_t length, const char *architecture,
                     struct mt_template_word *found)
{
    struct mt_template_word rest = {text, length};
    int is_inside = 0;
    while (rest.length) {
        struct mt_template_word line = next_line(&rest);
        struct mt_template_word words = line;
        if (!is_word(next_word(&words), "graph")) {
            if (is_inside)
                found->length = (size_t)(line.at + line.length - found->at);
            continue;
        }
        if (is_inside)
            return 0;
        while (words.length && !is_inside)
            is_inside = is_word(next_word(&words), architecture);
        *found = (struct mt_template_word){rest.at, 0};
    }
    return is_inside ? 0 : MT_ENOTFOUND;
}

static uint64_t number_of(struct reader *r, struct mt_template_word word)
{
    uint64_t number = 0;
    if (!word.length || word.length > 15)
        fail(r, word.at, "no number");
    for (size_t i = 0; i < word.length && !r->code; i++) {
        if (!isdigit((unsigned char)word.at[i]))
            fail(r, word.at, "no number");
        number = number * 10 + (uint64_t)(word.at[i] - '0');
    }
    return number;
}

static uint16_t name_of(struct reader *r, struct mt_template_names *names,
                        struct mt_template_word word)
{
    for (uint32_t i = 0; i < names->n; i++)
        if (names->at[i].length == word.length &&
            memcmp(names->at[i].at, word.at, word.length) == 0)
            return (uint16_t)i;
    if (names->n == MT_TEMPLATE_NAMES_MAX || names->n == r->most || !word.length) {
        fail(r, word.at, word.length ? "too many names" : "an empty name");
        return 0;
    }
    if (!names->at)
        names->at = mt_arena_array(
            r->arena, r->most < MT_TEMPLATE_NAMES_MAX ? r->most : MT_TEMPLATE_NAMES_MAX,
            sizeof *names->at);
    if (!names->at) {
        r->code = MT_ENOMEM;
        return 0;
    }
    names->at[names->n] = word;
    return (uint16_t)names->n++;
}

/* "name[1]" of a weight. */
static void read_weight_size(struct reader *r, struct mt_template_word word,
                             struct mt_template_factor *factor)
{
    const char *bracket = memchr(word.at, '[', word.length);
    size_t n = bracket ? (size_t)(bracket - word.at) : 0;
    if (!bracket || word.length != n + 3 || word.at[n + 1] < '0' || word.at[n + 1] > '3' ||
        word.at[n + 2] != ']') {
        fail(r, word.at, "a weight's size is written @name[0]");
        return;
    }
    factor->kind = MT_OPERAND_WEIGHT;
    factor->number = (uint64_t)(word.at[n + 1] - '0');
    factor->index = name_of(r, &r->out->weights, (struct mt_template_word){word.at + 1, n - 1});
}

static int symbol_of(struct mt_template_word word)
{
    static const char *const names[] = {
#define NAME(name) #name,
        MT_TEMPLATE_SYMBOLS(NAME)
#undef NAME
    };
    for (int i = 0; i < MT_SYMBOL_COUNT; i++)
        if (is_word(word, names[i]))
            return i;
    return -1;
}

static void read_factor(struct reader *r, struct mt_template_word word,
                        struct mt_template_factor *factor)
{
    int symbol = symbol_of(word);
    if (!word.length)
        fail(r, word.at, "an empty expression");
    else if (*word.at == '@')
        read_weight_size(r, word, factor);
    else if (isdigit((unsigned char)*word.at)) {
        factor->kind = MT_OPERAND_NUMBER;
        factor->number = number_of(r, word);
    } else if (is_word(word, "_"))
        factor->kind = MT_OPERAND_REST;
    else if (symbol >= 0) {
        factor->kind = MT_OPERAND_SYMBOL;
        factor->index = (uint16_t)symbol;
    } else if (word.length == 2 && word.at[0] >= 'a' && word.at[0] <= 'c' && word.at[1] >= '0' &&
               word.at[1] <= '3') {
        factor->kind = MT_OPERAND_SOURCE;
        factor->index = (uint16_t)(word.at[0] - 'a');
        factor->number = (uint64_t)(word.at[1] - '0');
    } else
        fail(r, word.at, "an expression names what there is not");
}

static struct mt_template_expression read_expression(struct reader *r, struct mt_template_word word)
{
    struct mt_template_expression expression = {r->out->n_factors, 0};
    char operator= '+';
    while (!r->code) {
        size_t n = strcspn(word.at, "+-*/~ )\n");
        if (n > word.length)
            n = word.length;
        if (r->out->n_factors == r->most || expression.n == MT_TEMPLATE_FACTORS_MAX) {
            fail(r, word.at, "too long an expression");
            break;
        }
        struct mt_template_factor *factor = &r->out->factors[r->out->n_factors++];
        expression.n++;
        factor->operator= operator;
        read_factor(r, (struct mt_template_word){word.at, n}, factor);
        if (n >= word.length)
            break;
        operator= word.at[n];
        word = from(word, n + 1);
    }
    return expression;
}

static void read_fact(struct reader *r, struct mt_template_word word, struct mt_template_fact *fact)
{
    static const char *const names[] = {
#define NAME(name) #name,
        MT_REGIME_LIST(NAME)
#undef NAME
    };
    if (word.length && *word.at == '!') {
        fact->negated = 1;
        word = from(word, 1);
    }
    if (word.length > 1 && *word.at == '@') {
        fact->kind = MT_FACT_WEIGHT;
        fact->value = name_of(r, &r->out->weights, from(word, 1));
        return;
    }
    const char *equals = word.length > 4 ? memchr(word.at, '=', word.length) : NULL;
    if (equals && memcmp(word.at, "mod", 3) == 0) {
        size_t n = (size_t)(equals - word.at);
        uint64_t modulus = number_of(r, (struct mt_template_word){word.at + 3, n - 3});
        fact->kind = MT_FACT_MODULO;
        fact->value = (uint32_t)number_of(r, from(word, n + 1));
        if (!r->code && (!modulus || modulus > MODULUS_MAX))
            fail(r, word.at, "no such modulus");
        fact->modulus = (uint8_t)modulus;
        return;
    }
    for (uint32_t i = 0; i < MT_REGIME_COUNT; i++)
        if (is_word(word, names[i])) {
            fact->value = i;
            return;
        }
    fail(r, word.at, "a guard names what there is not");
}

/* "fa,!streams|@attn_q.bias": alternatives of facts that hold together. */
static void read_guard(struct reader *r, struct mt_template_word word, uint32_t *first, uint32_t *n)
{
    *first = r->out->n_facts;
    *n = 0;
    uint8_t starts = 1;
    while (word.length && !r->code) {
        size_t length = 0;
        while (length < word.length && word.at[length] != ',' && word.at[length] != '|')
            length++;
        if (r->out->n_facts == r->most) {
            fail(r, word.at, "too many guards");
            return;
        }
        struct mt_template_fact *fact = &r->out->facts[r->out->n_facts++];
        fact->starts = starts;
        ++*n;
        read_fact(r, (struct mt_template_word){word.at, length}, fact);
        if (length >= word.length)
            return;
        starts = word.at[length] == '|';
        word = from(word, length + 1);
    }
}

/* "(D T 1)"; *rest begins at the parenthesis. */
static uint8_t read_dims(struct reader *r, struct mt_template_word *rest,
                         struct mt_template_expression dims[4])
{
    uint8_t n = 0;
    const char *start = rest->at;
    int is_closed = 0;
    *rest = from(*rest, 1);
    while (!is_closed && !r->code) {
        struct mt_template_word word = next_word(rest);
        if (word.length && word.at[word.length - 1] == ')') {
            is_closed = 1;
            word.length--;
        }
        if (!word.length || n == 4)
            fail(r, start, "a shape has one to four sizes");
        else
            dims[n++] = read_expression(r, word);
    }
    return n;
}

/* "/. = C*hk/"; *rest begins at the first stroke. */
static void read_strides(struct reader *r, struct mt_template_word *rest,
                         struct mt_template_line *line)
{
    const char *start = rest->at;
    int is_closed = 0;
    *rest = from(*rest, 1);
    while (!is_closed && !r->code) {
        struct mt_template_word word = next_word(rest);
        if (word.length > 1 && word.at[word.length - 1] == '/') {
            is_closed = 1;
            word.length--;
        }
        if (!word.length || line->n_strides == 3) {
            fail(r, start, "a view has three strides");
            return;
        }
        int is_rule = word.length == 1 && strchr(".=<>", *word.at);
        line->stride_rules[line->n_strides] = is_rule ? *word.at : 'x';
        if (!is_rule)
            line->strides[line->n_strides] = read_expression(r, word);
        line->n_strides++;
    }
    if (line->n_strides != 3)
        fail(r, start, "a view has three strides");
}

static uint8_t type_of(struct reader *r, struct mt_template_word word)
{
    char name[16];
    if (word.length >= sizeof name) {
        fail(r, word.at, "no type");
        return 0;
    }
    memcpy(name, word.at, word.length);
    name[word.length] = 0;
    enum mt_graph_type type = mt_graph_type_of(name);
    if (type == MT_TYPE_F32 && strcmp(name, "f32") != 0)
        fail(r, word.at, "a type that is not known");
    return (uint8_t)type;
}

struct operation {
    const char *name;
    uint8_t op;
    uint8_t rule;
    uint8_t keeps_type; /* of its first source; else f32 */
};

/* What is not listed makes new bytes like its first source, of type f32. */
static const struct operation operations[] = {
    {"view", MT_OP_VIEW, MT_RULE_VIEW, 1},
    {"each", MT_OP_VIEW, MT_RULE_EACH, 1},
    {"total", MT_OP_INPLACE, MT_RULE_TOTAL, 1},
    {"reshape", MT_OP_VIEW, MT_RULE_RESHAPE, 1},
    {"permute", MT_OP_VIEW, MT_RULE_PERMUTE, 1},
    {"transpose", MT_OP_VIEW, MT_RULE_PERMUTE, 1},
    {"expand", MT_OP_NONE, MT_RULE_EXPAND, 1},
    {"cont", MT_OP_NEW, MT_RULE_LIKE, 1},
    {"dup", MT_OP_NEW, MT_RULE_LIKE, 1},
    {"concat", MT_OP_NEW, MT_RULE_LIKE, 1},
    {"norm", MT_OP_NEW, MT_RULE_LIKE, 1},
    {"glu", MT_OP_NEW, MT_RULE_GLU, 0},
    {"sum_rows", MT_OP_NEW, MT_RULE_SUM_ROWS, 0},
    {"get_rows", MT_OP_GET_ROWS, MT_RULE_GET_ROWS, 0},
    {"mul_mat", MT_OP_MUL_MAT, MT_RULE_MUL_MAT, 0},
    {"mul_mat_id", MT_OP_MUL_MAT_ID, MT_RULE_MUL_MAT_ID, 0},
    {"flash_attn_ext", MT_OP_FLASH_ATTENTION, MT_RULE_FLASH_ATTENTION, 0},
    {"rope", MT_OP_ROPE, MT_RULE_LIKE, 1},
    {"add", MT_OP_INPLACE, MT_RULE_LIKE, 1},
    {"sub", MT_OP_INPLACE, MT_RULE_LIKE, 1},
    {"mul", MT_OP_INPLACE, MT_RULE_LIKE, 1},
    {"div", MT_OP_INPLACE, MT_RULE_LIKE, 1},
    {"scale", MT_OP_INPLACE, MT_RULE_LIKE, 1},
    {"unary", MT_OP_INPLACE, MT_RULE_LIKE, 1},
    {"rms_norm", MT_OP_INPLACE, MT_RULE_LIKE, 1},
    {"add_id", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"add1", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"sqr", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"sqrt", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"log", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"fill", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"clamp", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"soft_max", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"diag_mask_inf", MT_OP_INPLACE, MT_RULE_LIKE, 0},
    {"diag_mask_zero", MT_OP_INPLACE, MT_RULE_LIKE, 0},
};

/* The kind that devices look for to fuse. A template says of no "unary" which it is: among experts
 * they are sigmoids, but for one whose root is taken. */
static uint8_t kind_of(struct mt_template_word word)
{
    static const struct {
        const char *name;
        enum mt_kind kind;
    } kinds[] = {{"soft_max", MT_KIND_SOFT_MAX},
                 {"unary", MT_KIND_SIGMOID},
                 {"sqrt", MT_KIND_SQRT},
                 {"reshape", MT_KIND_RESHAPE},
                 {"view", MT_KIND_VIEW},
                 {"add", MT_KIND_ADD},
                 {"mul", MT_KIND_MUL},
                 {"div", MT_KIND_DIV},
                 {"clamp", MT_KIND_CLAMP},
                 {"scale", MT_KIND_SCALE},
                 {"argsort", MT_KIND_ARGSORT},
                 {"sum_rows", MT_KIND_SUM_ROWS},
                 {"get_rows", MT_KIND_GET_ROWS},
                 {"mul_mat", MT_KIND_MUL_MAT},
                 {"mul_mat_id", MT_KIND_EXPERTS},
                 {"glu", MT_KIND_GLU}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_word(word, kinds[i].name))
            return (uint8_t)kinds[i].kind;
    return MT_KIND_OTHER;
}

static void set_operation(struct mt_template_line *line, struct mt_template_word word)
{
    static const char *const integers[] = {"argsort", "top_k", "argmax"};
    line->op = MT_OP_NEW;
    line->rule = MT_RULE_LIKE;
    line->type = MT_TYPE_F32;
    line->kind = kind_of(word);
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (is_word(word, integers[i]))
            line->type = MT_TYPE_I32;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (is_word(word, operations[i].name)) {
            line->op = operations[i].op;
            line->rule = operations[i].rule;
            line->type = operations[i].keeps_type ? MT_TYPE_COUNT : MT_TYPE_F32;
        }
}

/* "NAME=OP.AXES#OF>TYPE": all but OP may be missing. */
static void read_operation(struct reader *r, struct mt_template_word word,
                           struct mt_template_line *line)
{
    const char *equals = memchr(word.at, '=', word.length);
    line->name = UINT16_MAX;
    if (equals) {
        size_t n = (size_t)(equals - word.at);
        line->name = name_of(r, &r->out->results, (struct mt_template_word){word.at, n});
        word = from(word, n + 1);
    }
    size_t n = 0;
    while (n < word.length && !strchr(".#>", word.at[n]))
        n++;
    set_operation(line, (struct mt_template_word){word.at, n});
    word = from(word, n);
    if (word.length >= 5 && *word.at == '.') {
        for (int i = 0; i < 4; i++) {
            line->axes[i] = (uint8_t)(word.at[1 + i] - '0');
            if (line->axes[i] > 3)
                fail(r, word.at, "axes are four of 0 to 3");
        }
        word = from(word, 5);
    } else if (line->rule == MT_RULE_PERMUTE)
        fail(r, word.at, "a permutation without axes");
    line->of = -1;
    if (word.length >= 2 && *word.at == '#') {
        line->of = (int8_t)(word.at[1] - '0');
        if (line->of < 0 || line->of >= MT_GRAPH_SOURCES_MAX)
            fail(r, word.at, "no such source");
        line->op = MT_OP_STORE;
        word = from(word, 2);
    }
    if (word.length >= 2 && *word.at == '>') {
        line->type = type_of(r, from(word, 1));
        word.length = 0;
    }
    if (word.length)
        fail(r, word.at, "an operation is written NAME=OP.AXES#OF>TYPE");
}

/* The part of the model that computing with a weight belongs to, by the weight's name. */
static uint8_t kind_of_weight(struct mt_template_word word, uint8_t otherwise)
{
    static const struct {
        const char *start;
        uint8_t kind;
    } kinds[] = {{"attn", MT_PART_ATTENTION}, {"ssm", MT_PART_STATE},
                 {"time_mix", MT_PART_STATE}, {"shortconv", MT_PART_STATE},
                 {"ffn", MT_PART_FFN},        {"channel_mix", MT_PART_FFN},
                 {"^output", MT_PART_OUTPUT}, {"^token_embd", MT_PART_INPUT}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (word.length >= strlen(kinds[i].start) &&
            memcmp(word.at, kinds[i].start, strlen(kinds[i].start)) == 0)
            return kinds[i].kind;
    return otherwise;
}

static void read_weight(struct reader *r, struct mt_template_word word,
                        struct mt_template_source *source)
{
    source->kind = MT_SOURCE_WEIGHT;
    word = from(word, 1);
    if (word.length && word.at[word.length - 1] == '+') {
        source->moved = 1;
        word.length--;
    }
    const char *colon = memchr(word.at, ':', word.length);
    if (colon) {
        size_t n = (size_t)(colon - word.at);
        int back = n && *word.at == '-';
        uint64_t layers = number_of(r, (struct mt_template_word){word.at + back, n - (size_t)back});
        if (layers > 1024)
            fail(r, word.at, "too many layers away");
        source->layers = (int16_t)(back ? -(int)layers : (int)layers);
        word = from(word, n + 1);
    }
    r->computes = kind_of_weight(word, r->computes);
    source->name = name_of(r, &r->out->weights, word);
}

static void read_source(struct reader *r, struct mt_template_word word,
                        struct mt_template_line *line)
{
    if (line->n_sources == MT_GRAPH_SOURCES_MAX) {
        fail(r, word.at, "too many sources");
        return;
    }
    struct mt_template_source *source = &line->sources[line->n_sources++];
    if (is_word(word, "."))
        source->kind = MT_SOURCE_BEFORE;
    else if (is_word(word, "0"))
        source->kind = MT_SOURCE_NONE;
    else if (is_word(word, "self"))
        source->kind = MT_SOURCE_SELF;
    else if (*word.at == '@')
        read_weight(r, word, source);
    else if (*word.at == '$') {
        source->kind = MT_SOURCE_LEAF;
        source->name = name_of(r, &r->out->leaf_names, from(word, 1));
    } else if (*word.at == '&') {
        source->kind = MT_SOURCE_CACHE;
        source->name = name_of(r, &r->out->cache_names, from(word, 1));
        r->computes = (uint8_t)(r->computes == MT_PART_STATE ? MT_PART_STATE : MT_PART_ATTENTION);
    } else {
        source->kind = MT_SOURCE_RESULT;
        source->name = name_of(r, &r->out->results, word);
    }
}

static struct mt_template_line *add_line(struct reader *r, const char *at)
{
    struct mt_template *t = r->out;
    if (r->n_lines == MT_TEMPLATE_LINES_MAX || r->part < 0) {
        fail(r, at,
             r->part < 0 ? "an operation outside of head, layer and tail" : "too many lines");
        return NULL;
    }
    if (r->n_lines == r->capacity) {
        uint32_t capacity = r->capacity ? r->capacity * 2 : 128;
        struct mt_template_line *lines = mt_arena_array(r->arena, capacity, sizeof *lines);
        if (!lines) {
            r->code = MT_ENOMEM;
            return NULL;
        }
        if (r->n_lines)
            memcpy(lines, t->lines, r->n_lines * sizeof *lines);
        t->lines = lines;
        r->capacity = capacity;
    }
    struct mt_template_line *line = &t->lines[r->n_lines++];
    for (int i = r->part + 1; i <= MT_TEMPLATE_PARTS; i++)
        t->first[i] = r->n_lines;
    return line;
}

static void read_line(struct reader *r, struct mt_template_word rest)
{
    struct mt_template_line *line = add_line(r, rest.at);
    if (!line)
        return;
    read_operation(r, next_word(&rest), line);
    while (rest.length && !r->code) {
        if (*rest.at == ' ') {
            rest = from(rest, 1);
            continue;
        }
        if (*rest.at == '(')
            line->n_dims = read_dims(r, &rest, line->dims);
        else if (*rest.at == '/')
            read_strides(r, &rest, line);
        else {
            struct mt_template_word word = next_word(&rest);
            if (is_word(word, "*"))
                line->is_root = 1;
            else if (is_word(word, "out"))
                line->flags = (uint8_t)(line->flags | MT_NODE_OUTPUT);
            else if (is_word(word, "in"))
                line->flags = (uint8_t)(line->flags | MT_NODE_INPUT);
            else if (is_word(word, "pin"))
                line->is_pinned = 1;
            else
                read_source(r, word, line);
        }
    }
    line->part = r->computes;
    line->first_fact = r->guard_first;
    line->n_facts = r->guard_n;
    if (!r->code && !line->n_sources && !line->n_dims)
        fail(r, rest.at, "an operation without sources needs a shape");
    if (!r->code && line->of >= (int8_t)line->n_sources)
        fail(r, rest.at, "no such source");
}

/* "cache k f16 (kv*hk C) ?guard". */
static void read_leaf(struct reader *r, struct mt_template_word word, struct mt_template_word rest)
{
    int is_cache = is_word(word, "cache");
    struct mt_template *t = r->out;
    struct mt_template_leaf **list = is_cache ? &t->caches : &t->leafs;
    uint32_t *n = is_cache ? &t->n_caches : &t->n_leafs;
    if (*n == r->most / 8) {
        fail(r, word.at, "too many leafs");
        return;
    }
    if (!*list)
        *list = mt_arena_array(r->arena, r->most / 8 + 1, sizeof **list);
    if (!*list) {
        r->code = MT_ENOMEM;
        return;
    }
    struct mt_template_leaf *leaf = &(*list)[(*n)++];
    leaf->name = name_of(r, is_cache ? &t->cache_names : &t->leaf_names, next_word(&rest));
    leaf->is_input = (uint8_t)is_word(word, "input");
    struct mt_template_word type = next_word(&rest);
    if (is_cache && is_word(type, "k"))
        leaf->type = MT_TEMPLATE_TYPE_K;
    else if (is_cache && is_word(type, "v"))
        leaf->type = MT_TEMPLATE_TYPE_V;
    else
        leaf->type = type_of(r, type);
    while (rest.length && *rest.at == ' ')
        rest = from(rest, 1);
    if (!rest.length || *rest.at != '(') {
        fail(r, word.at, "a leaf without a shape");
        return;
    }
    leaf->n_dims = read_dims(r, &rest, leaf->dims);
    struct mt_template_word guard = next_word(&rest);
    if (guard.length && *guard.at == '?')
        read_guard(r, from(guard, 1), &leaf->first_fact, &leaf->n_facts);
}

/* "NAME VALUE VALUE", up to the end of the line. */
static void read_key(struct reader *r, struct mt_template_word rest)
{
    struct mt_template_word name = next_word(&rest);
    while (rest.length && *rest.at == ' ')
        rest = from(rest, 1);
    if (!name.length || !rest.length || r->out->n_keys == MT_TEMPLATE_KEYS_MAX)
        fail(r, name.at, name.length && rest.length ? "too many keys" : "a key has values");
    else
        r->out->keys[r->out->n_keys++] = (struct mt_template_key){name, rest};
}

static void read_doubt(struct reader *r, struct mt_template_word rest)
{
    uint64_t percent = number_of(r, next_word(&rest));
    if (!r->code && (!percent || percent > 100))
        fail(r, rest.at, "a doubt is 1 to 100 percent");
    r->out->doubt_percent = (uint32_t)percent;
}

static void read_any(struct reader *r, struct mt_template_word rest)
{
    static const char *const parts[] = {"head", "layer", "tail"};
    struct mt_template_word word = next_word(&rest);
    if (!word.length || *word.at == '#')
        return;
    for (int i = 0; i < MT_TEMPLATE_PARTS; i++)
        if (is_word(word, parts[i]) && !rest.length) {
            if (i != r->part + 1)
                fail(r, word.at, "head, layer and tail come in this order");
            r->part = i;
            r->guard_n = 0;
            r->computes = (uint8_t)(i == MT_TEMPLATE_TAIL    ? MT_PART_OUTPUT
                                    : i == MT_TEMPLATE_LAYER ? MT_PART_ATTENTION
                                                             : MT_PART_INPUT);
            return;
        }
    if (is_word(word, "unused")) {
        while (!r->code && (word = next_word(&rest)).length)
            name_of(r, &r->out->unused, word);
        return;
    }
    if (is_word(word, "key"))
        read_key(r, rest);
    else if (is_word(word, "doubt"))
        read_doubt(r, rest);
    else if (is_word(word, "cache") || is_word(word, "input") || is_word(word, "leaf"))
        read_leaf(r, word, rest);
    else if (*word.at == '?')
        read_guard(r, from(word, 1), &r->guard_first, &r->guard_n);
    else
        read_line(r, (struct mt_template_word){word.at, (size_t)(rest.at + rest.length - word.at)});
}

/* The lines of a block, between "block NAME" and "end". */
static int find_block(struct mt_template_word file, struct mt_template_word name,
                      struct mt_template_word *found)
{
    int is_inside = 0;
    while (file.length) {
        struct mt_template_word line = next_line(&file);
        struct mt_template_word words = line;
        if (is_word(line, "end") && is_inside) {
            found->length = (size_t)(line.at - found->at);
            return 0;
        }
        if (is_inside || !is_word(next_word(&words), "block"))
            continue;
        struct mt_template_word own = next_word(&words);
        is_inside = own.length == name.length && memcmp(own.at, name.at, own.length) == 0;
        *found = (struct mt_template_word){file.at, 0};
    }
    return MT_ENOTFOUND;
}

/* The text with the blocks that it uses put in; with `out` NULL only how long that is. */
static size_t put_together(struct reader *r, struct mt_template_word file,
                           struct mt_template_word text, char *out)
{
    size_t length = 0;
    while (text.length && !r->code && length <= MT_TEMPLATE_BYTES_MAX) {
        struct mt_template_word line = next_line(&text);
        struct mt_template_word words = line;
        struct mt_template_word piece = {line.at, (size_t)(text.at - line.at)};
        if (is_word(next_word(&words), "use") && find_block(file, next_word(&words), &piece) < 0)
            fail(r, line.at, "there is no such block");
        if (out)
            memcpy(out + length, piece.at, piece.length);
        length += piece.length;
    }
    return length;
}

int mt_template_read(struct mt_arena *arena, struct mt_template_word file,
                     struct mt_template_word text, struct mt_template *template,
                     struct mt_error *error)
{
    struct reader r = {
        .arena = arena, .out = template, .start = text.at, .error = error, .part = -1};
    *template = (struct mt_template){0};
    size_t length = put_together(&r, file, text, NULL);
    char *whole = length <= MT_TEMPLATE_BYTES_MAX ? mt_arena_alloc(arena, length + 1) : NULL;
    if (r.code)
        return r.code;
    if (!whole)
        return mt_fail(error, length > MT_TEMPLATE_BYTES_MAX ? MT_ELIMIT : MT_ENOMEM, MT_NO_OFFSET,
                       "a template of more than a megabyte");
    put_together(&r, file, text, whole);
    text = (struct mt_template_word){whole, length};
    r.start = whole;
    r.most = (uint32_t)length + 1;
    template->factors = mt_arena_array(arena, r.most, sizeof *template->factors);
    template->facts = mt_arena_array(arena, r.most, sizeof *template->facts);
    if (!template->factors || !template->facts)
        return mt_out_of_memory(error);
    while (text.length && !r.code)
        read_any(&r, next_line(&text));
    if (!r.code && r.part != MT_TEMPLATE_TAIL)
        fail(&r, text.at, "head, layer and tail are wanted");
    return r.code;
}
