/* SPDX-License-Identifier: MIT */
/* Results as TAP 14 and as JUnit's XML. */
#include <inttypes.h>
#include <memtally/units.h>
#include <stdio.h>
#include <string.h>

#include "cli/budget/suite.h"

const char *budget_outcome_name(enum budget_outcome outcome)
{
    static const char *const names[] = {
        [BUDGET_WAITS] = "waits",   [BUDGET_PASSED] = "passed",
        [BUDGET_FAILED] = "failed", [BUDGET_MEMORY] = "failed for memory",
        [BUDGET_LEAKED] = "leaked", [BUDGET_TIMEOUT] = "timeout",
        [BUDGET_CANNOT] = "cannot", [BUDGET_SKIPPED] = "skipped",
    };
    return (unsigned)outcome < sizeof names / sizeof *names ? names[outcome] : "?";
}

static int is_good(const struct budget_result *result)
{
    return result->outcome == BUDGET_PASSED || result->outcome == BUDGET_SKIPPED;
}

/* ---- TAP ---- */

/* A '#' would begin a directive. */
static void put_tap_name(struct mt_strbuf *out, const char *name)
{
    for (; *name; name++)
        mt_strbuf_printf(out, "%s%c", *name == '#' || *name == '\\' ? "\\" : "",
                         (unsigned char)*name < ' ' ? ' ' : *name);
}

static void put_lines(struct mt_strbuf *out, const char *text, const char *before)
{
    while (text && *text) {
        size_t length = strcspn(text, "\n");
        mt_strbuf_printf(out, "%s%.*s\n", before, (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void put_needs(struct mt_strbuf *out, const struct budget_needs *needs)
{
    char size[MT_SIZE_TEXT];
    for (size_t i = 0; i < needs->n; i++)
        mt_strbuf_printf(out, "%s%.*s=%s", i ? ", " : "", (int)strcspn(needs->items[i].place, "*"),
                         needs->items[i].place, mt_format_size(needs->items[i].bytes, size));
}

void budget_put_tap(const struct budget_suite *suite, size_t test, size_t number,
                    struct mt_strbuf *out)
{
    const struct budget_result *result = &suite->results[test];
    mt_strbuf_printf(out, "%sok %zu - ", is_good(result) ? "" : "not ", number);
    put_tap_name(out, suite->tests->items[test].name);
    if (result->outcome == BUDGET_SKIPPED) {
        mt_strbuf_printf(out, " # SKIP %.*s\n", result->why ? (int)strcspn(result->why, "\n") : 0,
                         result->why ? result->why : "");
        return;
    }
    mt_strbuf_printf(out, "\n  ---\n  outcome: %s\n  seconds: %.3f\n  tries: %d\n",
                     budget_outcome_name(result->outcome), result->seconds, result->n_tries);
    mt_strbuf_printf(out, "  host_peak_bytes: %" PRIu64 "\n  device_peak_bytes: %" PRIu64 "\n",
                     result->host_peak_bytes, result->device_peak_bytes);
    mt_strbuf_puts(out, "  needs: \"");
    put_needs(out, &result->needs);
    mt_strbuf_puts(out, "\"\n");
    if (result->why) {
        mt_strbuf_puts(out, "  message: |\n");
        put_lines(out, result->why, "    ");
    }
    mt_strbuf_puts(out, "  ...\n");
    if (!is_good(result))
        put_lines(out, result->output, "# ");
}

/* ---- JUnit ---- */

/* What XML cannot have at all becomes '?'. */
static void put_xml(struct mt_strbuf *out, const char *text)
{
    for (; text && *text; text++) {
        unsigned char c = (unsigned char)*text;
        const char *escaped = c == '&'                            ? "&amp;"
                              : c == '<'                          ? "&lt;"
                              : c == '>'                          ? "&gt;"
                              : c == '"'                          ? "&quot;"
                              : c >= 0x80                         ? "?"
                              : c < ' ' && c != '\n' && c != '\t' ? "?"
                                                                  : NULL;
        if (escaped)
            mt_strbuf_puts(out, escaped);
        else
            mt_strbuf_append(out, text, 1);
    }
}

static void put_property(struct mt_strbuf *out, const char *name, uint64_t value)
{
    mt_strbuf_printf(out, "        <property name=\"%s\" value=\"%" PRIu64 "\"/>\n", name, value);
}

static void put_case(const struct budget_suite *suite, size_t test, struct mt_strbuf *out)
{
    const struct budget_result *result = &suite->results[test];
    mt_strbuf_puts(out, "    <testcase classname=\"memtally\" name=\"");
    put_xml(out, suite->tests->items[test].name);
    mt_strbuf_printf(out, "\" time=\"%.3f\">\n      <properties>\n", result->seconds);
    put_property(out, "host_peak_bytes", result->host_peak_bytes);
    put_property(out, "device_peak_bytes", result->device_peak_bytes);
    mt_strbuf_puts(out, "      </properties>\n");
    if (result->outcome == BUDGET_SKIPPED || result->outcome == BUDGET_WAITS)
        mt_strbuf_puts(out, "      <skipped/>\n");
    if (!is_good(result) && result->outcome != BUDGET_WAITS) {
        mt_strbuf_printf(out, "      <failure type=\"%s\" message=\"",
                         budget_outcome_name(result->outcome));
        put_xml(out, result->why);
        if (out->length && out->data[out->length - 1] == '\n')
            out->data[out->length - 1] = ' ';
        mt_strbuf_puts(out, "\"/>\n      <system-out>");
        put_xml(out, result->output);
        mt_strbuf_puts(out, "</system-out>\n");
    }
    mt_strbuf_puts(out, "    </testcase>\n");
}

void budget_put_junit(const struct budget_suite *suite, struct mt_strbuf *out)
{
    size_t n_failed = 0;
    size_t n_skipped = 0;
    double seconds = 0;
    for (size_t i = 0; i < suite->tests->n; i++) {
        const struct budget_result *result = &suite->results[i];
        int skipped = result->outcome == BUDGET_SKIPPED || result->outcome == BUDGET_WAITS;
        n_skipped += skipped != 0;
        n_failed += !skipped && !is_good(result);
        seconds += result->seconds;
    }
    mt_strbuf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    mt_strbuf_printf(out,
                     "  <testsuite name=\"memtally\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" "
                     "skipped=\"%zu\" time=\"%.3f\">\n",
                     suite->tests->n, n_failed, n_skipped, seconds);
    for (size_t i = 0; i < suite->tests->n; i++)
        put_case(suite, i, out);
    mt_strbuf_puts(out, "  </testsuite>\n</testsuites>\n");
}
