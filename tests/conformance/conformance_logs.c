/* SPDX-License-Identifier: MIT */
/* The error board of published runs of llama.cpp and ik_llama.cpp.
 *
 * usage: conformance_logs FOLDER FLOORS [ROWS]
 *
 * Each run is estimated from its settings, and each buffer compared with the log's. The types of a
 * file's tensors cannot be known from the name of its mix, so weights are taken as given: they are
 * in the totals, and not judged; nor is the band of a buffer through which weights of unknown types
 * are streamed. Then TAP: nothing may be worse than the floors that a table has.
 * With ROWS the file of that name gets each comparison. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/memtally.h>
#include <memtally/model_file.h>

#include "log_case.h"

#define MIB         1048576.0
#define RESULTS_MAX 8192
#define LINES_MAX   256
#define EXACT_MIB   0.6 /* logs have two digits; several buffers of a row may be padded */
#define WHOLE_MIB   1.0
#define DRIVER_MIB  337.0 /* held beside what an engine accounts for: published logs of RTX 3090 */

enum what { KV, STATE, COMPUTE, OUTPUT, BUFFERS, TOTAL, N_WHATS };
static const char *const what_names[N_WHATS] = {"kv cache", "state",   "compute",
                                                "output",   "buffers", "total"};

struct result {
    char engine[16];
    char family[16];
    enum what what;
    double measured;
    double estimated;
    double low;
    double high;
    double tolerance;
    int judged;     /* its band is: the types of weights copied for use elsewhere are known */
    int fits_below; /* the verdict could be FITS where the run does not fit */
};

struct line {
    const char *engine;
    const char *family;
    enum what what;
    int rows;
    int exact;
    int judged;
    int covered; /* of those judged */
    int below;
    int fits_below;
    double median;
    double p95;
    double worst;
};

struct board {
    struct result results[RESULTS_MAX];
    size_t n;
    int runs;
    int refused;
    FILE *rows;
};

struct span {
    double middle;
    double low;
    double high;
};

static struct span span_of(const struct mt_tally_place *place, enum mt_category category)
{
    const struct mt_tally_row *row = mt_tally_row_of(place, category);
    if (!row)
        return (struct span){0, 0, 0};
    return (struct span){(double)row->allocated_bytes / MIB, (double)row->low_bytes / MIB,
                         (double)row->high_bytes / MIB};
}

static struct span sum(struct span a, struct span b)
{
    return (struct span){a.middle + b.middle, a.low + b.low, a.high + b.high};
}

static struct span given(double mib)
{
    return (struct span){mib, mib, mib};
}

static void add(struct board *board, const struct log_case *c, enum what what, double measured,
                struct span estimate, int fits_below)
{
    if (measured < 0 || board->n == RESULTS_MAX || (measured < 0.005 && estimate.middle < 0.005))
        return;
    struct result *r = &board->results[board->n++];
    *r = (struct result){.what = what,
                         .measured = measured,
                         .estimated = estimate.middle,
                         .low = estimate.low,
                         .high = estimate.high,
                         .tolerance = c->whole ? WHOLE_MIB : EXACT_MIB,
                         .judged = what == KV || what == STATE || what == OUTPUT || c->types_known,
                         .fits_below = fits_below};
    snprintf(r->engine, sizeof r->engine, "%s", c->engine);
    snprintf(r->family, sizeof r->family, "%s", c->family);
    if (board->rows)
        fprintf(board->rows, "%s\t%s\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%d\n", c->id, c->engine,
                c->family, what_names[what], measured, estimate.middle, estimate.low, estimate.high,
                fits_below);
}

/* The estimate's output buffer is a term of its own among the activations of the host. */
static double output_of(const struct mt_estimate *e)
{
    for (size_t i = 0; i < e->n_terms; i++)
        if (strstr(e->terms[i].rule, "output_buffer"))
            return (double)e->terms[i].bytes / MIB;
    return 0;
}

static const struct mt_tally_place *place_at(const struct mt_estimate *e, size_t device,
                                             size_t n_devices)
{
    size_t seen = 0;
    for (size_t i = 0; i < e->tally.n_places; i++) {
        int is_host = !strcmp(e->tally.places[i].place, "host");
        if (is_host ? device == n_devices : seen++ == device)
            return &e->tally.places[i];
    }
    return NULL;
}

/* What a run comes to in all, as far as the log has it. */
struct sums {
    double measured;
    double weights;
    struct span estimated;
    int complete;
    int fits_below;
};

static double known(double mib)
{
    return mib < 0 ? 0 : mib;
}

/* Compares the buffers of one place and adds them to the sums. */
static void compare_place(struct board *board, const struct log_case *c,
                          const struct mt_estimate *e, size_t device, struct sums *sums)
{
    const struct mt_tally_place *place = place_at(e, device, c->n_devices);
    const double *mib = c->mib[device];
    int is_host = device == c->n_devices;
    if (!place)
        return;
    struct span kv = span_of(place, MT_CATEGORY_KV_CACHE);
    struct span state = span_of(place, MT_CATEGORY_RECURRENT_STATE);
    struct span compute = span_of(place, MT_CATEGORY_ACTIVATIONS);
    struct span context = span_of(place, MT_CATEGORY_CONTEXT);
    if (is_host)
        compute = sum(compute, given(-output_of(e)));
    if (c->whole) {
        kv = sum(kv, state);
        state = given(0);
    }
    add(board, c, KV, mib[CASE_KV], kv, 0);
    if (!c->whole)
        add(board, c, STATE, mib[CASE_STATE], state, 0);
    add(board, c, COMPUTE, mib[CASE_COMPUTE], compute, 0);
    sums->complete &= mib[CASE_COMPUTE] >= 0 && (is_host || mib[CASE_KV] >= 0);
    double measured = known(mib[CASE_KV]) + known(mib[CASE_STATE]) + known(mib[CASE_COMPUTE]);
    struct span all = sum(sum(kv, state), compute);
    sums->measured += measured;
    sums->weights += known(mib[CASE_WEIGHTS]);
    sums->estimated = sum(sums->estimated, all);
    if (!is_host && c->types_known && mib[CASE_COMPUTE] >= 0 && mib[CASE_KV] >= 0 &&
        measured + DRIVER_MIB > all.high + context.high)
        sums->fits_below = 1;
}

static void compare(struct board *board, const struct log_case *c, const struct mt_estimate *e)
{
    struct sums sums = {.complete = 1};
    for (size_t i = 0; i <= c->n_devices; i++)
        compare_place(board, c, e, i, &sums);
    add(board, c, OUTPUT, c->output_mib, given(output_of(e)), 0);
    if (!sums.complete)
        return;
    if (c->output_mib >= 0) {
        sums.measured += c->output_mib;
        sums.estimated = sum(sums.estimated, given(output_of(e)));
    }
    add(board, c, BUFFERS, sums.measured, sums.estimated, sums.fits_below);
    if (sums.weights > 0)
        add(board, c, TOTAL, sums.measured + sums.weights, sum(sums.estimated, given(sums.weights)),
            sums.fits_below);
}

static void run(struct board *board, const struct log_case *c)
{
    struct mt_model *model = NULL;
    struct mt_estimate *estimate = NULL;
    struct mt_error error;
    board->runs++;
    if (mt_model_open(c->model, NULL, &model, &error) < 0 ||
        mt_estimate_create(model, &c->settings, &estimate, &error) < 0) {
        printf("# %s (%s) is refused: %s\n", c->id, c->engine_version, error.text);
        board->refused++;
    } else {
        compare(board, c, estimate);
    }
    mt_estimate_destroy(estimate);
    mt_model_close(model);
}

static double error_percent(const struct result *r)
{
    double base = r->measured > EXACT_MIB ? r->measured : EXACT_MIB;
    double off = fabs(r->estimated - r->measured);
    return off <= r->tolerance ? 0 : off / base * 100;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double percentile(const double *sorted, int n, double share)
{
    int at = (int)ceil(share * n) - 1;
    return sorted[at < 0 ? 0 : at];
}

/* The same run once more, of a file in its other form: it says nothing more of all runs. */
static int is_twin(const struct result *r)
{
    const char *form = strstr(r->family, "-kv_b");
    return form && form[5] == '\0';
}

/* One line of the board; `family` NULL: of all. */
static struct line line_of(const struct board *board, const char *engine, const char *family,
                           enum what what)
{
    static double errors[RESULTS_MAX];
    struct line line = {.engine = engine, .family = family ? family : "all", .what = what};
    for (size_t i = 0; i < board->n; i++) {
        const struct result *r = &board->results[i];
        if (r->what != what || strcmp(r->engine, engine) ||
            (family ? strcmp(r->family, family) : is_twin(r)))
            continue;
        errors[line.rows++] = error_percent(r);
        line.exact += errors[line.rows - 1] <= 0;
        line.below += r->estimated < r->measured - r->tolerance;
        line.judged += r->judged;
        line.covered += r->judged && r->measured >= r->low - r->tolerance &&
                        r->measured <= r->high + r->tolerance;
        line.fits_below += r->fits_below;
    }
    if (!line.rows)
        return line;
    qsort(errors, (size_t)line.rows, sizeof *errors, ascending);
    line.median = percentile(errors, line.rows, 0.5);
    line.p95 = percentile(errors, line.rows, 0.95);
    line.worst = errors[line.rows - 1];
    return line;
}

static size_t lines_of(const struct board *board, struct line *lines)
{
    size_t n = 0;
    for (int all = 1; all >= 0; all--)
        for (size_t i = 0; i < board->n; i++) {
            const struct result *r = &board->results[i];
            const char *family = all ? NULL : r->family;
            size_t k = 0;
            while (k < n && (lines[k].what != r->what || strcmp(lines[k].engine, r->engine) ||
                             strcmp(lines[k].family, family ? family : "all")))
                k++;
            if (k == n && n < LINES_MAX)
                lines[n++] = line_of(board, r->engine, family, r->what);
        }
    return n;
}

static void print_board(const struct board *board, const struct line *lines, size_t n)
{
    printf("# %d published runs, %d refused. Errors in %% of the buffer; weights are given.\n",
           board->runs, board->refused);
    printf("# %-12s %-11s %-8s %5s %5s %7s %7s %7s %6s %8s %5s %10s\n", "engine", "family", "what",
           "n", "exact", "median", "p95", "worst", "judged", "in band", "below", "FITS below");
    for (size_t i = 0; i < n; i++) {
        const struct line *l = &lines[i];
        char in_band[16] = "-";
        if (l->judged)
            snprintf(in_band, sizeof in_band, "%.1f%%", 100.0 * l->covered / l->judged);
        printf("# %-12s %-11s %-8s %5d %5d %7.2f %7.2f %7.1f %6d %8s %5d %10d\n", l->engine,
               l->family, what_names[l->what], l->rows, l->exact, l->median, l->p95, l->worst,
               l->judged, in_band, l->below, l->fits_below);
    }
}

static const struct line *find(const struct line *lines, size_t n, const char *engine,
                               const char *family, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(lines[i].engine, engine) && !strcmp(lines[i].family, family) &&
            !strcmp(what_names[lines[i].what], what))
            return &lines[i];
    return NULL;
}

/* A floor is a line of the table: exact and covered are least, p95 and FITS below are most. */
static int hold(const struct line *lines, size_t n, const char *text, int number)
{
    char engine[32];
    char family[32];
    char what[32];
    int exact;
    int covered;
    int fits_below;
    double p95;
    if (sscanf(text, "%31[^\t]\t%31[^\t]\t%31[^\t]\t%d\t%d\t%lf\t%d", engine, family, what, &exact,
               &covered, &p95, &fits_below) != 7)
        return 0;
    const struct line *l = find(lines, n, engine, family, what);
    int holds = l && l->exact >= exact && l->covered >= covered && l->p95 <= p95 + 0.005 &&
                l->fits_below <= fits_below;
    printf("%s %d - %s, %s: %s is as good as before\n", holds ? "ok" : "not ok", number, engine,
           family, what);
    if (!holds)
        printf("# floor: %d exact, %d covered, p95 %.2f %%, %d FITS below; now: %d, %d, %.2f, %d\n",
               exact, covered, p95, fits_below, l ? l->exact : -1, l ? l->covered : -1,
               l ? l->p95 : -1.0, l ? l->fits_below : -1);
    return holds ? 1 : -1;
}

static int check_floors(const struct line *lines, size_t n, const char *path)
{
    char text[256];
    int number = 0;
    int failed = 0;
    FILE *floors = fopen(path, "r");
    while (floors && fgets(text, sizeof text, floors)) {
        if (*text == '#')
            continue;
        int held = hold(lines, n, text, number + 1);
        number += held != 0;
        failed |= held < 0;
    }
    if (floors)
        fclose(floors);
    printf("1..%d\n", number);
    return failed || !number;
}

static void write_floors(const struct line *lines, size_t n, const char *path)
{
    FILE *floors = fopen(path, "w");
    if (!floors)
        return;
    fputs("# What the board of published runs may not fall below: engine, family, what, exact,\n"
          "# covered by the band, p95 of the error in %, runs where FITS would be said below.\n",
          floors);
    for (size_t i = 0; i < n; i++)
        fprintf(floors, "%s\t%s\t%s\t%d\t%d\t%.2f\t%d\n", lines[i].engine, lines[i].family,
                what_names[lines[i].what], lines[i].exact, lines[i].covered, lines[i].p95,
                lines[i].fits_below);
    fclose(floors);
}

int main(int argc, char **argv)
{
    static struct board board;
    static struct log_case c;
    struct line lines[LINES_MAX];
    struct case_table table;
    if (argc < 3 || !case_table_open(&table, argv[1])) {
        fprintf(stderr, "usage: conformance_logs FOLDER FLOORS [ROWS]\n");
        return 2;
    }
    board.rows = argc > 3 ? fopen(argv[3], "w") : NULL;
    while (case_next(&table, &c))
        run(&board, &c);
    case_table_close(&table);
    if (board.rows)
        fclose(board.rows);
    size_t n = lines_of(&board, lines);
    print_board(&board, lines, n);
    const char *rewrite = getenv("MEMTALLY_FLOORS");
    if (rewrite && !strcmp(rewrite, "rewrite"))
        write_floors(lines, n, argv[2]);
    return check_floors(lines, n, argv[2]);
}
