/* SPDX-License-Identifier: MIT */
/* What was measured of cards, in a state folder of the test's own. */
#include "tests/support/unit.h"

#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/card_store.h"
#include "drive/stage.h"

static char folder[64];
static char file[128];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/memtally-cards-XXXXXX");
    snprintf(file, sizeof file, "%s/memtally/cards.json", mkdtemp(folder));
    return setenv("XDG_STATE_HOME", folder, 1);
}

static int teardown(void **state)
{
    (void)state;
    mt_drive_folder_remove(folder);
    return 0;
}

static void put_file(const char *text)
{
    char inner[128];
    snprintf(inner, sizeof inner, "%s/memtally", folder);
    mkdir(inner, 0700);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
}

/* A card whose figures all differ. */
static struct mt_calibration card_of(const char *name, const char *uuid, uint64_t total_bytes)
{
    struct mt_calibration card = {.driver_version = 13000,
                                  .capability = 90,
                                  .multiprocessors = 132,
                                  .threads = 2048,
                                  .total_bytes = total_bytes,
                                  .nvml_total_bytes = total_bytes + 1,
                                  .context_bytes = 500,
                                  .module_bytes = 501,
                                  .blas_bytes = 502,
                                  .blas_code_bytes = MT_UNKNOWN,
                                  .graph_node_bytes = 503,
                                  .is_disturbed = 1};
    strcpy(card.name, name);
    strcpy(card.uuid, uuid);
    return card;
}

static void test_what_is_kept_is_loaded_to_the_figure(void **state)
{
    struct cli_cards kept = {.n = 2};
    struct cli_cards loaded;
    (void)state;
    kept.card[0] = card_of("NVIDIA H100", "GPU-1", UINT64_C(80) << 30);
    kept.card[1] = card_of("NVIDIA L4", "GPU-2", UINT64_C(24) << 30);
    assert_int_equal(cli_cards_keep(&kept, NULL), 0);
    assert_int_equal(cli_cards_load(&loaded, NULL), 0);
    assert_int_equal(loaded.n, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct mt_calibration *card = &loaded.card[i];
        assert_string_equal(card->name, kept.card[i].name);
        assert_string_equal(card->uuid, kept.card[i].uuid);
        assert_int_equal(card->driver_version, 13000);
        assert_int_equal(card->threads, 2048);
        assert_int_equal(card->nvml_total_bytes, kept.card[i].nvml_total_bytes);
        assert_int_equal(card->blas_code_bytes, MT_UNKNOWN);
        assert_int_equal(card->graph_node_bytes, 503);
        assert_int_equal(card->is_disturbed, 1);
    }
}

static void test_a_card_measured_again_replaces_its_entry_alone(void **state)
{
    struct cli_cards kept = {.n = 2};
    struct cli_cards again = {.n = 1};
    struct cli_cards loaded;
    (void)state;
    kept.card[0] = card_of("A", "GPU-1", 100);
    kept.card[1] = card_of("B", "GPU-2", 200);
    assert_int_equal(cli_cards_keep(&kept, NULL), 0);
    again.card[0] = card_of("A", "GPU-1", 111);
    assert_int_equal(cli_cards_keep(&again, NULL), 0);
    assert_int_equal(cli_cards_load(&loaded, NULL), 0);
    assert_int_equal(loaded.n, 2);
    assert_int_equal(cli_cards_find(&loaded, NULL, 112)->total_bytes, 111);
    assert_int_equal(cli_cards_find(&loaded, NULL, 201)->total_bytes, 200);
    assert_null(cli_cards_find(&loaded, NULL, 101));
}

static void test_no_file_or_an_empty_one_is_no_card(void **state)
{
    struct cli_cards loaded = {.n = 5};
    (void)state;
    assert_int_equal(cli_cards_load(&loaded, NULL), 0);
    assert_int_equal(loaded.n, 0);
    put_file("");
    loaded.n = 5;
    assert_int_equal(cli_cards_load(&loaded, NULL), 0);
    assert_int_equal(loaded.n, 0);
}

#define HEAD "{\"schema\": \"memtally-cards/1\", \"cards\": [{\"name\": \"A\", \"uuid\": \"G\", "
#define REST                                                                                       \
    "\"driver_version\": 1, \"capability\": 1, \"multiprocessors\": 1, \"threads\": 1, "           \
    "\"total_bytes\": 1, \"nvml_total_bytes\": 1, \"module_bytes\": 1, \"blas_bytes\": 1, "        \
    "\"blas_code_bytes\": 1, \"graph_node_bytes\": 1, "

/* An entry without what a context takes is of no use to an estimate. */
static void test_a_file_of_anybody_elses_is_refused_and_says_what_to_do(void **state)
{
    static const char *const wrong[] = {
        "x",
        "{}",
        "[]",
        "{\"schema\": \"memtally-cards/2\", \"cards\": []}",
        "{\"schema\": \"memtally-cards/1\", \"cards\": {}}",
        "{\"schema\": \"memtally-cards/1\", \"schema\": \"memtally-cards/1\", \"cards\": []}",
        "{\"schema\": \"memtally-cards/1\", \"cards\": [1]}",
        HEAD REST "\"context_bytes\": null}]}",
        HEAD REST "\"context_bytes\": -1}]}",
        HEAD REST "\"context_bytes\": 1.5}]}",
        HEAD REST "\"context_bytes\": \"1\"}]}",
        HEAD REST "\"context_bytes\": 1152921504606846977}]}",
        HEAD "\"context_bytes\": 1}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct cli_cards loaded = {.n = 5};
        struct mt_error error = {0};
        put_file(wrong[i]);
        assert_int_equal(cli_cards_load(&loaded, &error), MT_EFORMAT);
        assert_int_equal(loaded.n, 0);
        assert_non_null(strstr(error.text, "memtally doctor --calibrate"));
    }
    struct cli_cards loaded;
    put_file(HEAD REST "\"context_bytes\": 1152921504606846976}]}");
    assert_int_equal(cli_cards_load(&loaded, NULL), 0);
    assert_int_equal(loaded.card[0].context_bytes, UINT64_C(1) << 60);
    assert_int_equal(loaded.card[0].is_disturbed, 0);
}

/* The next measurement takes the place of a file that cannot be read. */
static void test_a_broken_file_is_written_anew(void **state)
{
    struct cli_cards kept = {.n = 1};
    struct cli_cards loaded;
    (void)state;
    put_file("{");
    kept.card[0] = card_of("A", "GPU-1", 100);
    assert_int_equal(cli_cards_keep(&kept, NULL), 0);
    assert_int_equal(cli_cards_load(&loaded, NULL), 0);
    assert_int_equal(loaded.n, 1);
}

/* The table knows an H100 of 80 GB, whose driver names it so; one of 40 GB is another card. */
static void test_a_card_is_found_by_a_name_of_the_tables_and_its_size(void **state)
{
    struct cli_cards cards = {.n = 2};
    (void)state;
    cards.card[0] = card_of("NVIDIA H100 80GB HBM3", "GPU-1", UINT64_C(40) << 30);
    cards.card[1] = card_of("NVIDIA H100 80GB HBM3", "GPU-2", UINT64_C(79) << 30);
    assert_ptr_equal(cli_cards_find(&cards, "H100-80GB", 0), &cards.card[1]);
    assert_null(cli_cards_find(&cards, "L4", 0));
    assert_null(cli_cards_find(&cards, "no such card", 0));
}

static void test_without_a_home_nothing_is_kept_and_nothing_known(void **state)
{
    struct cli_cards cards = {.n = 1};
    struct mt_error error = {0};
    char *home = strdup(getenv("HOME") ? getenv("HOME") : "/");
    (void)state;
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    assert_int_equal(cli_cards_load(&cards, &error), 0);
    assert_int_equal(cards.n, 0);
    cards.n = 1;
    cards.card[0] = card_of("A", "GPU-1", 100);
    assert_int_equal(cli_cards_keep(&cards, &error), MT_ENOTFOUND);
    assert_non_null(strstr(error.text, "neither XDG_STATE_HOME nor HOME"));
    /* By the standard of XDG a folder that is not absolute does not count. */
    setenv("XDG_STATE_HOME", "state", 1);
    assert_int_equal(cli_cards_keep(&cards, &error), MT_ENOTFOUND);
    setenv("HOME", folder, 1);
    assert_int_equal(cli_cards_keep(&cards, &error), 0);
    snprintf(file, sizeof file, "%s/.local/state/memtally/cards.json", folder);
    assert_int_equal(access(file, R_OK), 0);
    setenv("HOME", home, 1);
    free(home);
}

static void test_a_folder_in_the_place_of_the_file_is_an_error(void **state)
{
    struct cli_cards loaded;
    struct mt_error error = {0};
    char inner[192];
    (void)state;
    put_file("");
    unlink(file);
    assert_int_equal(mkdir(file, 0700), 0);
    assert_true(cli_cards_load(&loaded, &error) < 0);
    assert_non_null(strstr(error.text, file));
    snprintf(inner, sizeof inner, "%s/in-use", file);
    assert_int_equal(mkdir(inner, 0700), 0);
    struct cli_cards kept = {.n = 1};
    kept.card[0] = card_of("A", "GPU-1", 100);
    assert_true(cli_cards_keep(&kept, &error) < 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_kept_is_loaded_to_the_figure),
        TEST(test_a_card_measured_again_replaces_its_entry_alone),
        TEST(test_no_file_or_an_empty_one_is_no_card),
        TEST(test_a_file_of_anybody_elses_is_refused_and_says_what_to_do),
        TEST(test_a_broken_file_is_written_anew),
        TEST(test_a_card_is_found_by_a_name_of_the_tables_and_its_size),
        TEST(test_without_a_home_nothing_is_kept_and_nothing_known),
        TEST(test_a_folder_in_the_place_of_the_file_is_an_error),
    };
    return RUN_TESTS(tests);
}
