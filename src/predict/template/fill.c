/* SPDX-License-Identifier: MIT */
/* Runs a template: the operations of its lines, for each layer of a model, into a graph. */
#include <stdlib.h>
#include <string.h>

#include <memtally/settings.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "predict/llama/internal.h"
#include "predict/sheet.h"
#include "template.h"

#define LAYERS_MAX         512
#define SIZE_MAX_OF_TENSOR (UINT64_C(1) << 48)
#define EXPERTS_MAX        256
#define NO_LAYER           SIZE_MAX

struct weight {
    uint64_t ne[4];
    uint64_t bytes;
    struct mt_node *node;
    struct mt_node *moved; /* its copy where it is used, of the model's own */
    int moved_to;
    int8_t place;
    uint8_t quantised;
    uint8_t is_there;
};

struct filling {
    const struct mt_template *template;
    const struct mt_template_run *run;
    struct mt_graph *graph;
    struct mt_error *error;
    struct mt_template_facts facts;
    size_t n_layers;
    size_t il; /* at hand, or NO_LAYER */
    int host;
    struct weight *weights; /* of the model, then of each layer, in the order of the names */
    struct mt_node **results;
    struct mt_node **leafs;
    struct mt_node **caches; /* of each layer */
    struct mt_node *before;
    struct mt_node *each[EXPERTS_MAX]; /* the views of experts made last */
    uint64_t n_each;
    int code;
};

static int fail(struct filling *f, const char *what)
{
    if (!f->code)
        f->code =
            mt_fail(f->error, MT_EFORMAT, MT_NO_OFFSET, "the template of this family: %s", what);
    return f->code;
}

static int is_whole_type(const char *type)
{
    return type[0] == 'f' || strncmp(type, "bf", 2) == 0 || (type[0] == 'i' && type[1] != 'q');
}

/* Whether `name` ("^" and "attn_q" or "attn_q.bias") is what a tensor is called behind its layer.
 */
static int is_called(struct mt_template_word name, int is_own, const char *ending, size_t length)
{
    const char *at = name.at;
    size_t n = name.length;
    if ((n && *at == '^') != is_own)
        return 0;
    at += is_own;
    n -= (size_t)is_own;
    if (n == length)
        return memcmp(at, ending, n) == 0;
    return length == n + 7 && memcmp(at, ending, n) == 0 && memcmp(ending + n, ".weight", 7) == 0;
}

static void take_tensor(struct filling *f, const struct mt_llama_placement *placement,
                        const struct mt_model_tensor *tensor)
{
    const struct mt_template_names *names = &f->template->weights;
    const char *ending = tensor->name;
    size_t length = tensor->name_length;
    int is_own = length < 4 || memcmp(ending, "blk.", 4) != 0;
    if (!is_own && tensor->layer >= f->n_layers)
        return;
    for (int dots = 0; !is_own && dots < 2 && length; ending++, length--)
        dots += *ending == '.';
    int is_known = 0;
    for (uint32_t i = 0; i < f->template->unused.n && !is_known; i++)
        is_known = is_called(f->template->unused.at[i], is_own, ending, length);
    for (uint32_t i = 0; i < names->n; i++) {
        if (!is_called(names->at[i], is_own, ending, length))
            continue;
        is_known = 1;
        struct weight *weight = f->weights + (is_own ? 0 : tensor->layer + 1) * names->n + i;
        for (uint32_t d = 0; d < 4; d++)
            weight->ne[d] = d < tensor->n_dims ? tensor->dims[d] : 1;
        weight->bytes = tensor->bytes;
        weight->quantised = !is_whole_type(tensor->type);
        weight->place = (int8_t)mt_llama_place_of(placement, tensor);
        weight->is_there = 1;
    }
    if (!is_known)
        fail(f, "the model has a weight that it does not know");
}

static int take_weights(struct filling *f)
{
    const struct mt_predict_input *in = f->run->plan->in;
    struct mt_llama_placement placement;
    struct mt_model_tensor tensor;
    int result = mt_llama_placement_init(&placement, f->run->plan, f->error);
    if (result < 0)
        return result;
    for (uint64_t i = 0; i < in->d->n_tensors; i++)
        if (mt_model_tensor_at(in->model, i, &tensor) == 0)
            take_tensor(f, &placement, &tensor);
    mt_llama_placement_finish(&placement);
    return f->code;
}

static struct weight *weight_of(struct filling *f, uint16_t name, int layers)
{
    const struct mt_template_names *names = &f->template->weights;
    if (*names->at[name].at == '^')
        return f->weights + name;
    if (f->il == NO_LAYER)
        return NULL;
    int64_t il = (int64_t)f->il + layers;
    if (il < 0 || il >= (int64_t)f->n_layers)
        return NULL;
    return f->weights + ((size_t)il + 1) * names->n + name;
}

static int backend_of_layer(const struct filling *f, size_t il)
{
    int device = f->run->plan->device_of[il];
    return device == MT_HOST_PLACE ? f->host : device;
}

/* Where the lines at hand are computed if nothing else says so. */
static int backend_here(const struct filling *f)
{
    return backend_of_layer(f, f->il == NO_LAYER ? f->run->plan->n_layers : f->il);
}

/* Facts. */

static int holds(struct filling *f, const struct mt_template_fact *fact)
{
    int result;
    switch (fact->kind) {
    case MT_FACT_WEIGHT: {
        const struct weight *weight = weight_of(f, (uint16_t)fact->value, 0);
        result = weight && weight->is_there;
        break;
    }
    case MT_FACT_MODULO:
        result = f->il != NO_LAYER && f->il % fact->modulus == fact->value;
        break;
    default:
        result = (f->facts.regime >> fact->value) & 1;
    }
    return result != fact->negated;
}

static int is_allowed(struct filling *f, uint32_t first, uint32_t n)
{
    const struct mt_template_fact *facts = f->template->facts + first;
    int all = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (i && facts[i].starts) {
            if (all)
                return 1;
            all = 1;
        }
        all = all && holds(f, &facts[i]);
    }
    return all;
}

/* Expressions. */

static uint64_t operand(struct filling *f, const struct mt_template_factor *factor,
                        struct mt_node *const *sources)
{
    switch (factor->kind) {
    case MT_OPERAND_NUMBER:
        return factor->number;
    case MT_OPERAND_SYMBOL:
        return f->facts.symbols[factor->index];
    case MT_OPERAND_SOURCE:
        if (sources && sources[factor->index])
            return sources[factor->index]->ne[factor->number];
        fail(f, "a size of a source that is not there");
        return 1;
    case MT_OPERAND_WEIGHT: {
        const struct weight *weight = weight_of(f, factor->index, 0);
        if (weight && weight->is_there)
            return weight->ne[factor->number];
        fail(f, "a size of a weight that is not there");
        return 1;
    }
    default:
        return 0;
    }
}

static uint64_t applied(struct filling *f, uint64_t a, char operator, uint64_t b)
{
    uint64_t result = 0;
    int overflows = 0;
    switch (operator) {
    case '*':
        overflows = __builtin_mul_overflow(a, b, &result);
        break;
    case '/':
        result = b ? a / b : 0;
        overflows = !b;
        break;
    default: /* rounded up */
        overflows = !b || __builtin_add_overflow(a, b - 1, &result);
        result = overflows ? 0 : result / b * b;
    }
    if (overflows || result > SIZE_MAX_OF_TENSOR)
        fail(f, "a size that is none");
    return result;
}

/* Sums of products from left to right. */
static uint64_t value_of(struct filling *f, struct mt_template_expression expression,
                         struct mt_node *const *sources)
{
    const struct mt_template_factor *factors = f->template->factors + expression.first;
    int64_t sum = 0;
    for (uint32_t i = 0; i < expression.n && !f->code;) {
        int sign = factors[i].operator== '-' ? -1 : 1;
        uint64_t term = operand(f, &factors[i++], sources);
        while (i < expression.n && factors[i].operator!= '+' && factors[i].operator!= '-') {
            term = applied(f, term, factors[i].operator, operand(f, &factors[i], sources));
            i++;
        }
        if (term > SIZE_MAX_OF_TENSOR)
            fail(f, "a size that is none");
        else
            sum += sign * (int64_t)term;
    }
    if (sum < 0 || sum > (int64_t)SIZE_MAX_OF_TENSOR)
        fail(f, "a size that is none");
    return f->code ? 1 : (uint64_t)sum;
}

static int is_rest(const struct filling *f, struct mt_template_expression expression)
{
    return expression.n == 1 && f->template->factors[expression.first].kind == MT_OPERAND_REST;
}

/* A shape; what stands for the rest is what is left of `elements`. */
static void shape_of(struct filling *f, const struct mt_template_expression dims[4], uint8_t n,
                     struct mt_node *const *sources, uint64_t elements, uint64_t ne[4])
{
    uint64_t product = 1;
    int rest = -1;
    for (int d = 0; d < 4; d++) {
        ne[d] = d < n && !is_rest(f, dims[d]) ? value_of(f, dims[d], sources) : 1;
        if (d < n && is_rest(f, dims[d]))
            rest = d;
        product = applied(f, product, '*', ne[d]);
    }
    if (rest >= 0 && product)
        ne[rest] = elements / product;
}

/* Leafs. */

static struct mt_node *made_weight(struct filling *f, const struct weight *weight, int backend)
{
    struct mt_node *node = mt_op_external(f->graph, MT_TYPE_F32, weight->ne, backend);
    uint64_t rows = mt_node_elements(node) / (weight->ne[0] ? weight->ne[0] : 1);
    node->flags |= MT_NODE_WEIGHT;
    node->bytes = weight->bytes;
    node->quantised = weight->quantised;
    node->nb[1] = rows ? weight->bytes / rows : 0;
    node->nb[2] = node->nb[1] * weight->ne[1];
    node->nb[3] = node->nb[2] * weight->ne[2];
    return node;
}

/* A weight of the model itself lies on the host, but for those that are moved to a device. */
static struct mt_node *weight_node(struct filling *f, const struct mt_template_source *source)
{
    struct weight *weight = weight_of(f, source->name, source->layers);
    if (!weight || !weight->is_there) {
        fail(f, "a weight that the model does not have");
        return &f->graph->spare;
    }
    int is_own = *f->template->weights.at[source->name].at == '^';
    int place = weight->place == MT_HOST_PLACE ? f->host : weight->place;
    if (is_own && !source->moved)
        place = f->host;
    else if (is_own && (f->il != NO_LAYER || weight->place == MT_HOST_PLACE))
        place = backend_here(f);
    struct mt_node **node = is_own && source->moved ? &weight->moved : &weight->node;
    if (!*node || (is_own && source->moved && weight->moved_to != place))
        *node = made_weight(f, weight, place);
    if (is_own && source->moved)
        weight->moved_to = place;
    return *node;
}

static struct mt_node *leaf_node(struct filling *f, uint16_t name)
{
    const struct mt_template *t = f->template;
    for (uint32_t i = 0; i < t->n_leafs && !f->leafs[name]; i++) {
        const struct mt_template_leaf *leaf = &t->leafs[i];
        uint64_t ne[4];
        if (leaf->name != name || !is_allowed(f, leaf->first_fact, leaf->n_facts))
            continue;
        shape_of(f, leaf->dims, leaf->n_dims, NULL, 0, ne);
        f->leafs[name] = mt_op_input(f->graph, (enum mt_graph_type)leaf->type, ne);
        if (!leaf->is_input)
            f->leafs[name]->flags = 0;
    }
    if (f->leafs[name])
        return f->leafs[name];
    fail(f, "an input that has no line of its own");
    return &f->graph->spare;
}

static enum mt_graph_type type_of_cache(const struct filling *f, uint8_t type)
{
    const struct mt_llama_plan *plan = f->run->plan;
    if (type == MT_TEMPLATE_TYPE_K || type == MT_TEMPLATE_TYPE_V)
        return mt_graph_type_of(type == MT_TEMPLATE_TYPE_K ? plan->type_k : plan->type_v);
    return (enum mt_graph_type)type;
}

static struct mt_node *cache_node(struct filling *f, uint16_t name)
{
    const struct mt_template *t = f->template;
    size_t il = f->il == NO_LAYER ? 0 : (size_t)f->run->plan->in->d->layers[f->il].cache_layer;
    if (il >= f->n_layers)
        il = f->il;
    struct mt_node **node = &f->caches[il * t->cache_names.n + name];
    for (uint32_t i = 0; i < t->n_caches && !*node; i++) {
        const struct mt_template_leaf *cache = &t->caches[i];
        uint64_t ne[4];
        if (cache->name != name || !is_allowed(f, cache->first_fact, cache->n_facts))
            continue;
        shape_of(f, cache->dims, cache->n_dims, NULL, 0, ne);
        int backend = f->run->plan->in->settings->kv_on_host ? f->host : backend_of_layer(f, il);
        *node = mt_op_external(f->graph, type_of_cache(f, cache->type), ne, backend);
    }
    if (*node)
        return *node;
    fail(f, "a cache that has no line of its own");
    return &f->graph->spare;
}

static struct mt_node *source_node(struct filling *f, const struct mt_template_source *source)
{
    struct mt_node *node = NULL;
    switch (source->kind) {
    case MT_SOURCE_BEFORE:
        node = f->before;
        break;
    case MT_SOURCE_RESULT:
        node = f->results[source->name];
        break;
    case MT_SOURCE_LEAF:
        return leaf_node(f, source->name);
    case MT_SOURCE_WEIGHT:
        return weight_node(f, source);
    case MT_SOURCE_CACHE:
        return cache_node(f, source->name);
    default:
        return NULL;
    }
    if (!node)
        fail(f, "a result that nothing made");
    return node;
}

/* Operations. */

static void shape_by_rule(struct filling *f, const struct mt_template_line *line,
                          struct mt_node *const *s, uint64_t ne[4])
{
    const uint64_t *a = s[0] ? s[0]->ne : (const uint64_t[4]){1, 1, 1, 1};
    const uint64_t *b = s[1] ? s[1]->ne : NULL;
    memcpy(ne, a, 4 * sizeof *ne);
    if (line->rule == MT_RULE_GLU && !b)
        ne[0] = a[0] / 2;
    if (line->rule == MT_RULE_SUM_ROWS)
        ne[0] = 1;
    if (line->rule == MT_RULE_LIKE || line->rule == MT_RULE_GLU || line->rule == MT_RULE_SUM_ROWS)
        return;
    if (!b || (line->rule == MT_RULE_FLASH_ATTENTION && !s[2]) ||
        (line->rule == MT_RULE_MUL_MAT_ID && !s[2])) {
        fail(f, "an operation without its sources");
        return;
    }
    if (line->rule == MT_RULE_MUL_MAT)
        memcpy(ne, (uint64_t[4]){a[1], b[1], b[2], b[3]}, 4 * sizeof *ne);
    else if (line->rule == MT_RULE_MUL_MAT_ID)
        memcpy(ne, (uint64_t[4]){a[1], s[2]->ne[0], b[2], 1}, 4 * sizeof *ne);
    else if (line->rule == MT_RULE_GET_ROWS)
        memcpy(ne, (uint64_t[4]){a[0], b[0], b[1], b[2]}, 4 * sizeof *ne);
    else if (line->rule == MT_RULE_FLASH_ATTENTION)
        memcpy(ne, (uint64_t[4]){s[2]->ne[0], a[2], a[1], a[3]}, 4 * sizeof *ne);
}

static void view_strides(struct filling *f, const struct mt_template_line *line,
                         struct mt_node *const *s, const uint64_t ne[4], uint64_t nb[4])
{
    enum mt_graph_type type = (enum mt_graph_type)s[0]->type;
    nb[0] = s[0]->nb[0];
    for (int d = 1; d < 4; d++) {
        char rule = '.';
        if (line->n_strides == 3)
            rule = line->stride_rules[d - 1];
        if (rule == '=')
            nb[d] = s[0]->nb[d];
        else if (rule == '<')
            nb[d] = s[0]->nb[d - 1];
        else if (rule == '>')
            nb[d] = s[0]->nb[d == 3 ? 3 : d + 1];
        else if (rule == 'x')
            nb[d] = mt_graph_row_bytes(type, value_of(f, line->strides[d - 1], s));
        else
            nb[d] = d == 1 ? mt_graph_row_bytes(type, ne[0]) : nb[d - 1] * ne[d - 1];
    }
}

static struct mt_node *viewed(struct filling *f, const struct mt_template_line *line,
                              struct mt_node *const *s)
{
    uint64_t ne[4];
    uint64_t nb[4];
    if (line->rule == MT_RULE_PERMUTE)
        return mt_op_permute(f->graph, s[0], line->axes[0], line->axes[1], line->axes[2],
                             line->axes[3]);
    if (line->n_dims)
        shape_of(f, line->dims, line->n_dims, s, mt_node_elements(s[0]), ne);
    else
        memcpy(ne, s[0]->ne, sizeof ne);
    if (line->rule == MT_RULE_RESHAPE)
        return mt_op_reshape(f->graph, s[0], ne[0], ne[1], ne[2], ne[3]);
    view_strides(f, line, s, ne, nb);
    return mt_op_view(f->graph, s[0], ne, nb);
}

static struct mt_node *stored(struct filling *f, const struct mt_template_line *line,
                              struct mt_node *const *s)
{
    struct mt_node *to = s[line->of];
    struct mt_node *node = mt_node_twin(f->graph, to);
    node->op = MT_OP_STORE;
    node->view_of = to->view_of ? to->view_of : to;
    mt_node_measure(node);
    return node;
}

static struct mt_node *computed(struct filling *f, const struct mt_template_line *line,
                                struct mt_node *const *s)
{
    uint64_t ne[4];
    if (line->n_dims)
        shape_of(f, line->dims, line->n_dims, s, s[0] ? mt_node_elements(s[0]) : 0, ne);
    else
        shape_by_rule(f, line, s, ne);
    uint8_t type = line->type == MT_TYPE_COUNT ? (s[0] ? s[0]->type : MT_TYPE_F32) : line->type;
    return mt_node_new(f->graph, (enum mt_op)line->op, (enum mt_graph_type)type, ne);
}

/* A view of what each expert made, or the sum of the views that were made last. */
static struct mt_node *of_experts(struct filling *f, const struct mt_template_line *line,
                                  struct mt_node *const *s)
{
    uint64_t n = f->facts.symbols[MT_SYMBOL_U];
    if (n < 2 || n > EXPERTS_MAX || (line->rule == MT_RULE_TOTAL && f->n_each != n)) {
        fail(f, "a number of experts that it does not know");
        return &f->graph->spare;
    }
    struct mt_node *node = f->each[0];
    for (uint64_t i = line->rule == MT_RULE_TOTAL; i < n; i++) {
        if (line->rule == MT_RULE_EACH)
            node = f->each[i] = viewed(f, line, s);
        else
            node = mt_node_of_kind(mt_op_map(f->graph, node, f->each[i]), MT_KIND_ADD);
        node->flags |= line->flags;
        if (line->is_root)
            mt_graph_expand(f->graph, node);
    }
    f->n_each = n;
    return line->rule == MT_RULE_EACH ? f->each[0] : node;
}

static void keep(struct filling *f, const struct mt_template_line *line, struct mt_node *node)
{
    f->before = node;
    if (line->name != UINT16_MAX)
        f->results[line->name] = node;
}

static void run_line(struct filling *f, const struct mt_template_line *line)
{
    struct mt_node *s[MT_GRAPH_SOURCES_MAX] = {NULL};
    for (int i = 0; i < line->n_sources; i++)
        s[i] = source_node(f, &line->sources[i]);
    int needs_first =
        line->op == MT_OP_VIEW || line->rule == MT_RULE_EXPAND || line->rule == MT_RULE_TOTAL;
    if ((needs_first && !s[0]) || (line->of >= 0 && !s[line->of]))
        fail(f, "an operation without its source");
    if (f->code)
        return;
    f->graph->part = line->part;
    if (line->rule == MT_RULE_EXPAND) {
        mt_graph_expand(f->graph, s[0]);
        return;
    }
    if (line->rule == MT_RULE_EACH || line->rule == MT_RULE_TOTAL) {
        keep(f, line, of_experts(f, line, s));
        return;
    }
    struct mt_node *node = line->of >= 0            ? stored(f, line, s)
                           : line->op == MT_OP_VIEW ? viewed(f, line, s)
                                                    : computed(f, line, s);
    for (int i = 0; i < line->n_sources; i++)
        node->sources[i] = line->sources[i].kind == MT_SOURCE_SELF ? node : s[i];
    if (line->of < 0)
        node->kind = line->kind;
    if (node->kind == MT_KIND_SQRT && s[0] && s[0]->kind == MT_KIND_SIGMOID)
        s[0]->kind = MT_KIND_SOFTPLUS;
    node->flags |= line->flags;
    if (line->is_pinned && f->run->pins)
        node->backend = (int8_t)backend_here(f);
    keep(f, line, node);
    if (line->is_root)
        mt_graph_expand(f->graph, node);
}

static void run_part(struct filling *f, enum mt_template_part part)
{
    const struct mt_template *t = f->template;
    for (uint32_t i = t->first[part]; i < t->first[part + 1] && !f->code && !f->graph->failed; i++)
        if (is_allowed(f, t->lines[i].first_fact, t->lines[i].n_facts))
            run_line(f, &t->lines[i]);
}

static int make_room(struct filling *f)
{
    struct mt_arena *arena = f->graph->arena;
    const struct mt_template *t = f->template;
    f->weights = mt_arena_array(arena, (f->n_layers + 1) * (t->weights.n + 1), sizeof *f->weights);
    f->results = mt_arena_array(arena, t->results.n + 1, sizeof(struct mt_node *));
    f->leafs = mt_arena_array(arena, t->leaf_names.n + 1, sizeof(struct mt_node *));
    f->caches =
        mt_arena_array(arena, (f->n_layers + 1) * (t->cache_names.n + 1), sizeof(struct mt_node *));
    return f->weights && f->results && f->leafs && f->caches ? 0 : MT_ENOMEM;
}

int mt_template_fill(const struct mt_template *template, const struct mt_template_run *run,
                     struct mt_graph *graph, struct mt_error *error)
{
    const struct mt_model_description *d = run->plan->in->d;
    struct filling f = {.template = template,
                        .run = run,
                        .graph = graph,
                        .error = error,
                        .il = NO_LAYER,
                        .host = (int)run->plan->n_devices,
                        .n_layers = (size_t)(d->n_layers - d->n_draft_layers)};
    if (!f.n_layers || f.n_layers > LAYERS_MAX)
        return mt_fail(error, MT_ELIMIT, MT_NO_OFFSET, "too many layers");
    if (make_room(&f) < 0)
        return mt_out_of_memory(error);
    f.code = take_weights(&f);
    mt_template_facts_of_model(run, &f.facts);
    run_part(&f, MT_TEMPLATE_HEAD);
    const struct mt_template_facts of_model = f.facts;
    for (f.il = 0; f.il < f.n_layers && !f.code && !graph->failed; f.il++) {
        f.facts = of_model;
        mt_template_facts_of_layer(run, f.il, &f.facts);
        run_part(&f, MT_TEMPLATE_LAYER);
    }
    f.il = NO_LAYER;
    f.facts = of_model;
    run_part(&f, MT_TEMPLATE_TAIL);
    if (!f.code && graph->failed)
        f.code = mt_fail(error, MT_ENOMEM, MT_NO_OFFSET, "the graph of the model is too large");
    return f.code;
}
