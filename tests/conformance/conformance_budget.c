/* SPDX-License-Identifier: MIT */
/* Published runs of vLLM, SGLang, TensorRT-LLM, transformers and exllamav3 against the library's
 * estimates of the same runs: an error board, and TAP with what it must not fall below.
 *
 * Arguments: budget_rows.csv and the folder of config.json files that it names, and where each
 * comparison is written as it is, if anywhere. A row says what its log printed, in MiB;
 * "not_compared" what of it cannot be, and why. Logs print GiB with two digits, so that a figure is
 * exact within 5.12 MiB. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/memtally.h>
#include <memtally/model_file.h>
#include <memtally/predict.h>

#define COLUMNS_MAX 24
#define ROWS_MAX    64
#define DEVICES_MAX 8
#define MIB         1048576.0
#define DIGIT_MIB   5.2

enum quantity { WEIGHTS, TOKENS, ACTIVATIONS, POOL, TOTAL, N_QUANTITIES };

/* What a quantity has come to. `median`, `p95`, `exact` are floors of the test, in percent and
 * rows. */
static const struct {
    const char *name;
    double median;
    double p95;
    size_t exact;
} floors[N_QUANTITIES] = {
    [WEIGHTS] = {"weights", 0.05, 2.5, 10},       [TOKENS] = {"tokens of the pool", 0.2, 6.1, 4},
    [ACTIVATIONS] = {"activations", 0.2, 5.9, 6}, [POOL] = {"pool", 0.1, 6.2, 3},
    [TOTAL] = {"total in use", 0.1, 2.5, 0},
};

struct board {
    double errors[ROWS_MAX]; /* percent of what was logged */
    size_t n;
    size_t exact;
    size_t covered;
    size_t bounded;
};

static struct board boards[N_QUANTITIES];
static char *columns[COLUMNS_MAX];
static size_t n_columns;
static size_t n_rows;
static size_t n_unused;
static size_t n_failed;
static FILE *compared;
static double logits_mib; /* of the row: what a sampler has a row of for each sequence */
static double hidden_mib; /* and the hidden states of a batch */

/* Cuts a line of CSV in place; quotes are taken off. */
static size_t cut(char *line, char **fields)
{
    size_t n = 0;
    char *from = line;
    while (n < COLUMNS_MAX) {
        int is_quoted = *from == '"';
        char *field = from += is_quoted;
        from += is_quoted ? strcspn(from, "\"") : strcspn(from, ",\n");
        fields[n++] = field;
        char end = *from;
        if (end)
            *from++ = 0;
        if (is_quoted && *from)
            end = *from++;
        if (end != ',')
            return n;
    }
    return n;
}

static const char *field(char **fields, const char *name)
{
    for (size_t i = 0; i < n_columns; i++)
        if (!strcmp(columns[i], name))
            return fields[i];
    fprintf(stderr, "no column %s\n", name);
    exit(1);
}

static double number(char **fields, const char *name)
{
    const char *text = field(fields, name);
    return *text ? strtod(text, NULL) : NAN;
}

static uint64_t count(char **fields, const char *name)
{
    return strtoull(field(fields, name), NULL, 10);
}

/* Whether the row says that the quantity called `word` cannot be compared. */
static int is_left_out(char **fields, const char *word)
{
    const char *text = field(fields, "not_compared");
    const char *colon = strchr(text, ':');
    const char *found = strstr(text, word);
    return colon && found && found < colon;
}

struct figure {
    double bytes;
    double low;
    double high;
};

static struct figure row_of(const struct mt_estimate *estimate, enum mt_category category)
{
    size_t place = estimate->tally.n_places > 1 ? 1 : 0;
    const struct mt_tally_row *row = mt_tally_row_of(&estimate->tally.places[place], category);
    if (!row)
        return (struct figure){0, 0, 0};
    return (struct figure){(double)row->allocated_bytes / MIB, (double)row->low_bytes / MIB,
                           (double)row->high_bytes / MIB};
}

static void compare(char **fields, enum quantity quantity, double logged, struct figure figure)
{
    static const char *const words[] = {"weights", "tokens", "activations", "pool", "total"};
    if (isnan(logged) || is_left_out(fields, words[quantity]))
        return;
    struct board *board = &boards[quantity];
    double error = figure.bytes - logged;
    if (compared)
        fprintf(compared, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.3f\t%.3f\n", field(fields, "id"),
                words[quantity], logged, figure.bytes, figure.low, figure.high, logits_mib,
                hidden_mib);
    int is_exact = fabs(error) <= DIGIT_MIB;
    int is_covered = figure.low - DIGIT_MIB <= logged && logged <= figure.high + DIGIT_MIB;
    board->errors[board->n++] = fabs(error) / logged * 100;
    board->exact += (size_t)is_exact;
    int is_bounded = figure.low < figure.high;
    board->bounded += (size_t)is_bounded;
    board->covered += (size_t)(is_bounded && is_covered);
    printf("# %-5s %-19s %10.2f logged %10.2f predicted %+9.2f MiB %+6.2f %%%s%s\n",
           field(fields, "id"), floors[quantity].name, logged, figure.bytes, error,
           error / logged * 100, is_exact ? " exact" : "",
           !is_bounded || is_covered ? "" : " outside the band");
}

/* What the logged tokens take, by the engine's rule; one engine has no pool but a whole cache. */
static void compare_tokens(char **fields, const struct mt_estimate *estimate)
{
    double tokens = number(fields, "kv_tokens");
    double bytes = (double)estimate->pool.bytes_per_token;
    if (!estimate->pool.present)
        bytes = row_of(estimate, MT_CATEGORY_KV_CACHE).bytes * MIB /
                (double)estimate->settings.context_tokens;
    double mib = tokens * bytes / MIB;
    if (!isnan(tokens))
        compare(fields, TOKENS, number(fields, "kv_mib"), (struct figure){mib, mib, mib});
}

static double pool_mib(const struct mt_estimate *estimate, uint64_t tokens)
{
    const struct mt_estimate_pool *pool = &estimate->pool;
    double share = pool->pool_tokens ? (double)tokens / (double)pool->pool_tokens : 0;
    return share * (double)pool->pool_bytes / MIB;
}

static void compare_all(char **fields, const struct mt_estimate *estimate)
{
    struct figure weights = row_of(estimate, MT_CATEGORY_WEIGHTS);
    struct figure activations = row_of(estimate, MT_CATEGORY_ACTIVATIONS);
    struct figure graphs = row_of(estimate, MT_CATEGORY_GRAPHS);
    compare(fields, WEIGHTS, number(fields, "weights_mib"), weights);
    compare(fields, ACTIVATIONS, number(fields, "activations_mib"), activations);
    compare_tokens(fields, estimate);
    if (!estimate->pool.present || isnan(number(fields, "memory_share")) ||
        is_left_out(fields, "pool"))
        return;
    const struct mt_tally_place *place = &estimate->tally.places[1];
    compare(fields, POOL, number(fields, "kv_mib"),
            (struct figure){(double)estimate->pool.pool_bytes / MIB,
                            pool_mib(estimate, estimate->pool.pool_tokens_low),
                            pool_mib(estimate, estimate->pool.pool_tokens_high)});
    compare(fields, TOTAL,
            number(fields, "weights_mib") + number(fields, "kv_mib") +
                number(fields, "activations_mib") + number(fields, "other_mib"),
            (struct figure){(double)place->total_allocated_bytes / MIB - graphs.bytes,
                            (double)place->total_low_bytes / MIB - graphs.low,
                            (double)place->total_high_bytes / MIB - graphs.high});
}

static void note_batch(const struct mt_model *model, const struct mt_estimate *estimate)
{
    const struct mt_model_description *d = mt_model_describe(model);
    const struct mt_predict_settings *s = &estimate->settings;
    uint64_t rows = s->sequences < s->batched_tokens ? s->sequences : s->batched_tokens;
    logits_mib = (double)(rows * d->vocabulary * 4) / MIB;
    hidden_mib = (double)(s->batched_tokens * d->embedding_length * 2) / MIB;
}

static void run_row(char **fields, const char *folder)
{
    char path[512];
    uint64_t devices[DEVICES_MAX];
    double device = number(fields, "device_mib");
    double share = number(fields, "memory_share");
    const char *kv = field(fields, "kv_type");
    struct mt_predict_settings settings = {
        .engine = field(fields, "engine"),
        .context_tokens = count(fields, "context"),
        .batched_tokens = count(fields, "batched_tokens"),
        .sequences = count(fields, "sequences"),
        .tensor_parallel = count(fields, "tensor_parallel"),
        .memory_share = isnan(share) ? 0 : share,
        .kv_type_k = *kv ? kv : NULL,
        .device_bytes = devices,
        .n_devices = isnan(device) ? 0 : (size_t)count(fields, "tensor_parallel")};
    for (size_t i = 0; i < DEVICES_MAX; i++)
        devices[i] = isnan(device) ? 0 : (uint64_t)(device * MIB);
    snprintf(path, sizeof path, "%s/%s.json", folder, field(fields, "config"));
    struct mt_model *model = NULL;
    struct mt_estimate *estimate = NULL;
    struct mt_error error = {0};
    n_rows++;
    if (mt_model_open(path, NULL, &model, &error) == 0 &&
        mt_estimate_create(model, &settings, &estimate, &error) == 0) {
        note_batch(model, estimate);
        compare_all(fields, estimate);
    } else {
        n_failed++;
        printf("# %-5s %s\n", field(fields, "id"), error.text);
    }
    mt_estimate_destroy(estimate);
    mt_model_close(model);
}

static int by_size(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* The value that `part` of all are not above. */
static double part_of(const struct board *board, double part)
{
    if (!board->n)
        return 0;
    size_t at = (size_t)ceil(part * (double)board->n);
    return board->errors[at ? at - 1 : 0];
}

static void print_boards(void)
{
    printf("# error in percent of the log; judged: rows whose figure has a band\n"
           "# %-20s %4s %7s %7s %7s %6s %7s %8s\n",
           "quantity", "rows", "median", "p95", "worst", "exact", "judged", "in band");
    for (size_t i = 0; i < N_QUANTITIES; i++) {
        struct board *board = &boards[i];
        qsort(board->errors, board->n, sizeof *board->errors, by_size);
        printf("# %-20s %4zu %7.2f %7.2f %7.2f %6zu %7zu %8zu\n", floors[i].name, board->n,
               part_of(board, 0.5), part_of(board, 0.95), part_of(board, 1), board->exact,
               board->bounded, board->covered);
    }
}

static int check(int number_of_test, int is_good, const char *name, const char *what)
{
    printf("%sok %d - %s: %s\n", is_good ? "" : "not ", number_of_test, name, what);
    return !is_good;
}

static int read_rows(const char *path, const char *folder)
{
    static char head[4096];
    static char line[4096];
    FILE *file = fopen(path, "r");
    if (!file || !fgets(head, sizeof head, file)) {
        fprintf(stderr, "%s cannot be read\n", path);
        return -1;
    }
    n_columns = cut(head, columns);
    while (fgets(line, sizeof line, file)) {
        char *fields[COLUMNS_MAX] = {NULL};
        if (cut(line, fields) != n_columns) {
            fprintf(stderr, "a row has another number of columns: %s\n", line);
            fclose(file);
            return -1;
        }
        if (*field(fields, "engine")) {
            run_row(fields, folder);
        } else {
            n_unused++;
            printf("# %-5s not compared: %s\n", field(fields, "id"), field(fields, "not_compared"));
        }
    }
    fclose(file);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    int test = 0;
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: conformance_budget ROWS.csv CONFIGS [COMPARED]\n");
        return 2;
    }
    compared = argc > 3 ? fopen(argv[3], "w") : NULL;
    printf("1..%d\n", 1 + 3 * N_QUANTITIES);
    if (read_rows(argv[1], argv[2]) < 0)
        return 1;
    if (compared)
        fclose(compared);
    print_boards();
    printf("# %zu rows compared, %zu not\n", n_rows, n_unused);
    failed += check(++test, n_failed == 0 && n_rows > 0, "rows", "all are estimated");
    for (size_t i = 0; i < N_QUANTITIES; i++) {
        const struct board *board = &boards[i];
        failed += check(++test, part_of(board, 0.5) <= floors[i].median, floors[i].name, "median");
        failed += check(++test, part_of(board, 0.95) <= floors[i].p95, floors[i].name, "p95");
        failed += check(++test, board->exact >= floors[i].exact, floors[i].name,
                        "exact to the printed digit");
    }
    return failed ? 1 : 0;
}
