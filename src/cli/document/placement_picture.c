/* SPDX-License-Identifier: MIT */
/* A placement as a picture: a bar for each device, in the order of a token's path, and as a page
 * that has the picture and the table. Both stand alone: no script, no other file. */
#include <inttypes.h>
#include <memtally/units.h>
#include <stdio.h>

#include "placement.h"

enum { WIDTH = 720, LEFT = 90, BAR = 500, ROW = 44, TOP = 24, HEIGHT = 26 };

struct part {
    const char *name;
    const char *colour; /* told apart in grey, too */
};

static const struct part parts[] = {
    {"weights", "#1f5a94"}, {"experts", "#4c9bd6"}, {"cache", "#f0a83c"}, {"beside", "#8c8c8c"}};
enum { N_PARTS = sizeof parts / sizeof *parts };

static void put_escaped(struct mt_strbuf *out, const char *text)
{
    for (; *text; text++) {
        const char *entity = *text == '<'   ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '&' ? "&amp;"
                                            : NULL;
        if (entity)
            mt_strbuf_puts(out, entity);
        else
            mt_strbuf_append(out, text, 1);
    }
}

static void put_bar(const struct cli_placement_document *document, size_t device,
                    struct mt_strbuf *out)
{
    const struct mt_placement_device *held = &document->shown->devices[device];
    const struct mt_place_device *given = &document->placed->problem.devices[device];
    const uint64_t bytes[N_PARTS] = {held->dense_bytes, held->expert_bytes, held->cache_bytes,
                                     held->overhead_bytes};
    double scale = BAR / (double)given->capacity_bytes;
    double y = TOP + (double)device * ROW;
    double x = LEFT;
    char text[MT_SIZE_TEXT];
    mt_strbuf_printf(out, "<text x=\"0\" y=\"%.0f\">%s</text>\n", y + 18, given->name);
    mt_strbuf_printf(out,
                     "<rect x=\"%d\" y=\"%.0f\" width=\"%d\" height=\"%d\" fill=\"#eeeeee\"/>\n",
                     LEFT, y, BAR, HEIGHT);
    for (size_t i = 0; i < N_PARTS; i++) {
        double width = (double)bytes[i] * scale;
        if (bytes[i])
            mt_strbuf_printf(out,
                             "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" "
                             "fill=\"%s\"><title>%s %s</title></rect>\n",
                             x, y, width, HEIGHT, parts[i].colour, parts[i].name,
                             mt_format_size(bytes[i], text));
        x += width;
    }
    double limit = LEFT + (double)given->limit_bytes * scale;
    mt_strbuf_printf(out,
                     "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"#c00000\">"
                     "<title>limit %s</title></line>\n",
                     limit, limit, y - 3, y + HEIGHT + 3, mt_format_size(given->limit_bytes, text));
    mt_strbuf_printf(out, "<text x=\"%d\" y=\"%.0f\">%.1f %%, %" PRIu64 " layers</text>\n",
                     LEFT + BAR + 10, y + 18,
                     100 * (double)held->used_bytes / (double)given->capacity_bytes, held->layers);
}

static void put_key(double y, struct mt_strbuf *out)
{
    for (int i = 0; i < N_PARTS; i++)
        mt_strbuf_printf(out,
                         "<rect x=\"%d\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                         "<text x=\"%d\" y=\"%.0f\">%s</text>\n",
                         LEFT + i * 110, y, parts[i].colour, LEFT + i * 110 + 18, y + 11,
                         parts[i].name);
}

void cli_placement_svg(const struct cli_placement_document *document, struct mt_strbuf *out)
{
    size_t n = document->shown->n_devices;
    double height = TOP + (double)n * ROW + 30;
    mt_strbuf_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                     "font-family=\"sans-serif\" font-size=\"13\">\n<title>",
                     WIDTH, height);
    put_escaped(out, document->model->path);
    mt_strbuf_printf(out, ": %.3g crossings for each token</title>\n", document->shown->crossings);
    for (size_t d = 0; d < n; d++)
        put_bar(document, d, out);
    put_key(height - 24, out);
    mt_strbuf_puts(out, "</svg>\n");
}

void cli_placement_html(const struct cli_placement_document *document, struct mt_strbuf *out)
{
    const struct cli_terminal plain = {.columns = CLI_COLUMNS_TEXT, .utf8 = 1};
    struct mt_strbuf table = {0};
    cli_placement_table(document, &plain, &table);
    mt_strbuf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>");
    put_escaped(out, document->model->path);
    mt_strbuf_puts(out, "</title>\n<body style=\"max-width: 60em; margin: 2em auto\">\n");
    cli_placement_svg(document, out);
    mt_strbuf_puts(out, "<pre>\n");
    put_escaped(out, mt_strbuf_text(&table));
    mt_strbuf_puts(out, "</pre>\n</body>\n</html>\n");
    mt_strbuf_finish_part(&table, out);
}
