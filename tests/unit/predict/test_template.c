/* SPDX-License-Identifier: MIT */
/* Graph templates: what their text says becomes a graph, and what it must not say is refused.
 *
 * The model is 2 layers of embedding 64 with one matrix each; sizes below are arithmetic on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <memtally/error.h>

#include "hand_model.h"
#include "model/gguf/gguf.h"
#include "predict/sheet.h"
#include "predict/template/template.h"

#define EMBEDDING 64
#define UBATCH    32

static const char layered[] = "graph one\n"
                              "input tokens i32 (T)\n"
                              "head\n"
                              "  x=get_rows @^token_embd $tokens *\n"
                              "layer\n"
                              "  mul_mat @ffn_up x\n"
                              " ?@ffn_up.bias\n"
                              "  add . @ffn_up.bias\n"
                              " ?last\n"
                              "  unary .\n"
                              " ?\n"
                              "  x=reshape . (_ T)\n"
                              "tail\n"
                              "  view x (a0/2 T) /D . ./ * out\n"
                              "graph two three\n"
                              "head\n"
                              "  fill (4) *\n"
                              "layer\n"
                              "tail\n";

struct fixture {
    struct hand_model hand;
    struct mt_predict_settings settings;
    struct mt_predict_input in;
    struct mt_engine engine;
    struct mt_llama_plan plan;
    int device_of[3];
    struct mt_arena arena;
    struct mt_graph graph;
    struct mt_template template;
    struct mt_error error;
};

static void prepare(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    hand_model_init(&f->hand, "one", 2, 1, 1, EMBEDDING);
    f->hand.model.description.embedding_length = EMBEDDING;
    hand_model_tensor(&f->hand, "token_embd.weight", "f32", EMBEDDING, 100, 0, MT_NO_LAYER,
                      MT_TENSOR_TOKEN_EMBEDDING);
    hand_model_tensor(&f->hand, "blk.0.ffn_up.weight", "f32", EMBEDDING, EMBEDDING, 0, 0,
                      MT_TENSOR_LAYER);
    hand_model_tensor(&f->hand, "blk.1.ffn_up.weight", "f32", EMBEDDING, EMBEDDING, 0, 1,
                      MT_TENSOR_LAYER);
    f->in = (struct mt_predict_input){&f->hand.model, &f->hand.model.description, &f->settings,
                                      &f->engine};
    f->device_of[0] = f->device_of[1] = f->device_of[2] = MT_HOST_PLACE;
    f->plan = (struct mt_llama_plan){.in = &f->in,
                                     .n_layers = 2,
                                     .device_of = f->device_of,
                                     .ubatch = UBATCH,
                                     .sequences = 1,
                                     .streams = 1,
                                     .cells = 256,
                                     .output_rows = 1,
                                     .type_k = "f16",
                                     .type_v = "f16"};
    mt_graph_init(&f->graph, &f->arena);
}

static int filled(struct fixture *f, const char *text, const char *architecture)
{
    struct mt_template_word found;
    const struct mt_template_run run = {.plan = &f->plan};
    if (mt_template_find(text, strlen(text), architecture, &found) < 0)
        return MT_ENOTFOUND;
    int result = mt_template_read(&f->arena, (struct mt_template_word){text, strlen(text)}, found,
                                  &f->template, &f->error);
    return result < 0 ? result : mt_template_fill(&f->template, &run, &f->graph, &f->error);
}

static void every_layer_gets_the_lines_of_the_body(void **state)
{
    struct fixture f;
    (void)state;
    prepare(&f);
    assert_int_equal(filled(&f, layered, "one"), 0);
    /* rows; mul_mat, reshape; mul_mat, unary, reshape; view */
    assert_int_equal(f.graph.nodes.n, 7);
    const struct mt_node *last = f.graph.nodes.at[6];
    assert_int_equal(last->op, MT_OP_VIEW);
    assert_int_equal(last->ne[0], EMBEDDING / 2);
    assert_int_equal(last->ne[1], UBATCH);
    assert_int_equal(last->nb[1], EMBEDDING * 4);
    assert_int_equal(last->flags & MT_NODE_OUTPUT, MT_NODE_OUTPUT);
    mt_arena_finish(&f.arena);
}

/* What devices look for to fuse. */
static void operations_have_the_kinds_that_are_fused(void **state)
{
    struct fixture f;
    (void)state;
    prepare(&f);
    assert_int_equal(filled(&f, layered, "one"), 0);
    assert_int_equal(f.graph.nodes.at[0]->kind, MT_KIND_GET_ROWS);
    assert_int_equal(f.graph.nodes.at[1]->kind, MT_KIND_MUL_MAT);
    assert_int_equal(f.graph.nodes.at[2]->kind, MT_KIND_RESHAPE);
    assert_int_equal(f.graph.nodes.at[4]->kind, MT_KIND_SIGMOID);
    assert_int_equal(f.graph.nodes.at[6]->kind, MT_KIND_VIEW);
    mt_arena_finish(&f.arena);
}

static void a_line_for_a_weight_is_there_with_the_weight(void **state)
{
    struct fixture f;
    (void)state;
    prepare(&f);
    hand_model_tensor(&f.hand, "blk.0.ffn_up.bias", "f32", EMBEDDING, 0, 0, 0, MT_TENSOR_LAYER);
    assert_int_equal(filled(&f, layered, "one"), 0);
    assert_int_equal(f.graph.nodes.n, 8);
    assert_int_equal(f.graph.nodes.at[2]->op, MT_OP_INPLACE);
    mt_arena_finish(&f.arena);
}

static void a_weight_that_no_line_knows_makes_it_another_model(void **state)
{
    struct fixture f;
    (void)state;
    prepare(&f);
    hand_model_tensor(&f.hand, "blk.0.ffn_up.scale", "f32", 1, 0, 0, 0, MT_TENSOR_LAYER);
    assert_int_equal(filled(&f, layered, "one"), MT_EFORMAT);
    assert_non_null(strstr(f.error.text, "does not know"));
    mt_arena_finish(&f.arena);
}

static void several_families_may_share_a_template(void **state)
{
    struct mt_template_word two;
    struct mt_template_word three;
    (void)state;
    assert_int_equal(mt_template_find(layered, sizeof layered - 1, "two", &two), 0);
    assert_int_equal(mt_template_find(layered, sizeof layered - 1, "three", &three), 0);
    assert_ptr_equal(two.at, three.at);
    assert_memory_equal(two.at, "head\n", 5);
    assert_int_equal(mt_template_find(layered, sizeof layered - 1, "thre", &two), MT_ENOTFOUND);
}

static void lines_that_templates_share_stand_in_a_block(void **state)
{
    static const char text[] = "block b\n  x=get_rows @^token_embd @^token_embd *\nend\n"
                               "graph a\nunused ffn_up\nhead\nuse b\nlayer\ntail\n  unary x *\n";
    struct fixture f;
    (void)state;
    prepare(&f);
    assert_int_equal(filled(&f, text, "a"), 0);
    assert_int_equal(f.graph.nodes.n, 2);
    mt_arena_finish(&f.arena);
}

static void expressions_are_worked_out_from_left_to_right(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } cases[] = {{"T*2", 64},    {"D+T*2", 128},          {"D-T", 32},      {"T/5", 6},
                 {"T+1~16", 48}, {"D*T/64", 32},          {"100~64/64", 2}, {"C", 256},
                 {"S", 1},       {"@^token_embd[1]", 100}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        char text[256];
        prepare(&f);
        snprintf(text, sizeof text,
                 "graph a\nunused ffn_up\nhead\n  get_rows @^token_embd @^token_embd (%s) "
                 "*\nlayer\ntail\n",
                 cases[i].text);
        assert_int_equal(filled(&f, text, "a"), 0);
        if (strcmp(cases[i].text, "T+1~16") == 0)
            assert_int_equal(f.graph.nodes.at[0]->ne[0], UBATCH + 16);
        else
            assert_int_equal(f.graph.nodes.at[0]->ne[0], cases[i].value);
        mt_arena_finish(&f.arena);
    }
}

static void text_that_says_nothing_is_refused_where_it_does(void **state)
{
    static const char *const bad[] = {
        "graph a\nhead\n",                       /* no layer, no tail */
        "graph a\nlayer\nhead\ntail\n",          /* in another order */
        "graph a\nhead\n  add x\nlayer\ntail\n", /* a result that nothing made */
        "graph a\nhead\n  add (1 2 3 4 5)\nlayer\ntail\n",
        "graph a\nhead\n  add (nosuch)\nlayer\ntail\n",
        "graph a\nhead\n  add (1\nlayer\ntail\n",
        "graph a\nhead\n  permute.0214 @^token_embd\nlayer\ntail\n",
        "graph a\nhead\n  permute @^token_embd\nlayer\ntail\n",
        "graph a\nhead\n ?nosuch\n  fill (1)\nlayer\ntail\n",
        "graph a\nhead\n ?mod0=1\n  fill (1)\nlayer\ntail\n",
        "graph a\nhead\n  view @^token_embd (1) /1 2/\nlayer\ntail\n",
        "graph a\nhead\n  fill>q9_9 (1)\nlayer\ntail\n",
        "graph a\nhead\n  set_rows#3 @^token_embd\nlayer\ntail\n",
        "graph a\nhead\n  dup $nosuch\nlayer\ntail\n",
        "graph a\nhead\n  fill (T/0)\nlayer\ntail\n",
        "graph a\nhead\n  fill (D-T*9)\nlayer\ntail\n",
        "graph a\nhead\n  fill (999999999999999*999999999)\nlayer\ntail\n",
        "graph a\nhead\n  add . .\nlayer\ntail\n",
        "graph a\nhead\nuse nothing\nlayer\ntail\n",
        "graph a\nkey x\nhead\nlayer\ntail\n",
        "graph a\nkey\nhead\nlayer\ntail\n",
        "graph a\ndoubt 0\nhead\nlayer\ntail\n",
        "graph a\ndoubt 101\nhead\nlayer\ntail\n",
        "graph a\ndoubt x\nhead\nlayer\ntail\n",
        "block b\nuse b\nend\ngraph a\nhead\nuse b\nlayer\ntail\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fixture f;
        prepare(&f);
        assert_int_equal(filled(&f, bad[i], "a"), MT_EFORMAT);
        mt_arena_finish(&f.arena);
    }
}

static const char *key_at(const void *argument, uint32_t number, size_t *length)
{
    const struct mt_gguf_pairs *pairs = argument;
    *length = strlen(pairs->items[number].key);
    return pairs->items[number].key;
}

/* Whether a template with such lines is of a model whose keys are a switch that is off, a count of
 * three, scales of 0, 1 and 0.5, and a list. */
static int is_made_for(const char *lines)
{
    static struct mt_gguf_pair items[] = {
        {.key = "one.switch", .type = MT_GGUF_VALUE_BOOL, .number = 0},
        {.key = "one.count", .type = MT_GGUF_VALUE_U32, .number = 3},
        {.key = "one.zero", .type = MT_GGUF_VALUE_F32, .number = 0},
        {.key = "one.unit", .type = MT_GGUF_VALUE_F32, .number = 0x3f800000},
        {.key = "one.half", .type = MT_GGUF_VALUE_F32, .number = 0x3f000000},
        {.key = "one.list", .type = MT_GGUF_VALUE_ARRAY}};
    struct mt_gguf gguf = {.pairs = {.items = items, .n = 6, .keys = {.name_of = key_at}}};
    struct fixture f;
    char text[512];
    uint32_t other;
    prepare(&f);
    gguf.pairs.keys.argument = &gguf.pairs;
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(
            mt_names_add(&gguf.pairs.keys, i, mt_names_hash(&gguf.pairs.keys, i), &other), 0);
    f.hand.model.tensors = &gguf;
    snprintf(text, sizeof text,
             "graph one\nunused ffn_up\n%shead\n  get_rows @^token_embd "
             "@^token_embd *\nlayer\ntail\n",
             lines);
    assert_int_equal(filled(&f, text, "one"), 0);
    int result = mt_template_knows_keys(&f.template, &f.hand.model);
    mt_names_finish(&gguf.pairs.keys);
    mt_arena_finish(&f.arena);
    return result;
}

static void keys_tell_whether_a_model_is_one_that_the_template_was_made_of(void **state)
{
    (void)state;
    assert_true(is_made_for(""));
    assert_true(is_made_for("key switch false\n"));
    assert_false(is_made_for("key switch true none\n"));
    assert_true(is_made_for("key nothing 0 none\n"));
    assert_false(is_made_for("key nothing 0\n"));
    assert_true(
        is_made_for("key count 2 3\nkey zero 0\nkey unit 1\nkey half set\nkey list list\n"));
    assert_false(is_made_for("key count 2 33\n"));
    assert_false(is_made_for("key half 1 0\n"));
    assert_false(is_made_for("key switch false\nkey zero set\n"));
}

static void a_template_may_doubt_itself(void **state)
{
    struct fixture f;
    (void)state;
    prepare(&f);
    assert_int_equal(filled(&f, layered, "one"), 0);
    assert_int_equal(f.template.doubt_percent, 0);
    mt_arena_finish(&f.arena);
    prepare(&f);
    assert_int_equal(filled(&f,
                            "graph a\ndoubt 7\nunused ffn_up\nhead\n  get_rows @^token_embd "
                            "@^token_embd *\nlayer\ntail\n",
                            "a"),
                     0);
    assert_int_equal(f.template.doubt_percent, 7);
    mt_arena_finish(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_gets_the_lines_of_the_body),
        cmocka_unit_test(operations_have_the_kinds_that_are_fused),
        cmocka_unit_test(a_line_for_a_weight_is_there_with_the_weight),
        cmocka_unit_test(a_weight_that_no_line_knows_makes_it_another_model),
        cmocka_unit_test(several_families_may_share_a_template),
        cmocka_unit_test(lines_that_templates_share_stand_in_a_block),
        cmocka_unit_test(expressions_are_worked_out_from_left_to_right),
        cmocka_unit_test(keys_tell_whether_a_model_is_one_that_the_template_was_made_of),
        cmocka_unit_test(a_template_may_doubt_itself),
        cmocka_unit_test(text_that_says_nothing_is_refused_where_it_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
