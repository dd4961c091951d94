/* SPDX-License-Identifier: MIT */
/* The table of a sweep that was interrupted. */
#include "tests/support/unit.h"

#include "cli/rehearse/sweep_output.h"

#include <stdlib.h>
#include <string.h>

/* The table of two contexts on the host, of which the first `n_done` are done. */
static void draw(size_t n_done, struct mt_strbuf *out)
{
    static const struct cli_document_model model = {.path = "model.gguf"};
    static const struct cli_terminal terminal = {.columns = 80};
    struct mt_advise_total host = {1024, 1024, 1024};
    struct mt_advise_point points[2] = {{.totals = &host, .verdict = MT_VERDICT_FITS},
                                        {.totals = &host, .verdict = MT_VERDICT_FITS}};
    struct mt_advise_sweep *sweep = calloc(1, sizeof *sweep);
    struct mt_error error;
    assert_non_null(sweep);
    assert_int_equal(mt_advise_axes_parse(&sweep->axes, "context=512,1024", &error), 0);
    for (size_t i = 0; i < n_done; i++)
        points[i].is_done = 1;
    sweep->points = points;
    sweep->n_points = 2;
    sweep->n_done = n_done;
    rehearse_sweep_table(sweep, &model, &terminal, out);
    mt_advise_axes_finish(&sweep->axes);
    free(sweep);
}

static void test_a_sweep_without_a_point_has_no_headings(void **state)
{
    (void)state;
    struct mt_strbuf out = {0};
    draw(0, &out);
    assert_non_null(strstr(mt_strbuf_text(&out), "0 of 2: it was interrupted"));
    assert_null(strstr(mt_strbuf_text(&out), "verdict"));
    mt_strbuf_finish(&out);
}

static void test_an_interrupted_sweep_shows_the_points_that_are_done(void **state)
{
    (void)state;
    struct mt_strbuf out = {0};
    draw(1, &out);
    assert_non_null(strstr(mt_strbuf_text(&out), "1 of 2: it was interrupted"));
    assert_non_null(strstr(mt_strbuf_text(&out), "verdict"));
    assert_non_null(strstr(mt_strbuf_text(&out), "512"));
    assert_null(strstr(mt_strbuf_text(&out), "1024"));
    mt_strbuf_finish(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sweep_without_a_point_has_no_headings),
        cmocka_unit_test(test_an_interrupted_sweep_shows_the_points_that_are_done),
    };
    return RUN_TESTS(tests);
}
