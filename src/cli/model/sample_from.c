/* SPDX-License-Identifier: MIT */
/* Sample models made from a model that exists. The summary is read back from the written file. */
#include "cli/model/sample_from.h"

#include <inttypes.h>
#include <memtally/error.h>
#include <memtally/units.h>
#include <stdio.h>

#include "cli/console.h"
#include "cli/model/model.h"
#include "emit/json.h"

const char *cli_format_parameters(uint64_t parameters, char text[32])
{
    if (parameters == UINT64_MAX)
        snprintf(text, 32, "?");
    else if (parameters < 1000000000)
        snprintf(text, 32, "%.1f million", (double)parameters / 1e6);
    else
        snprintf(text, 32, "%.2f billion", (double)parameters / 1e9);
    return text;
}

/* The bytes of layers that predict further tokens; engines load these layers only to do so. */
static uint64_t draft_bytes(const struct mt_model_description *d)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < d->n_layers; i++)
        bytes += d->layers[i].is_draft ? d->layers[i].weight_bytes : 0;
    return bytes;
}

static void put_json(const struct cli_sample_from *from, const struct mt_model_description *d,
                     struct mt_strbuf *out)
{
    struct mt_json json = {0};
    mt_json_begin_object(&json, NULL);
    mt_json_text(&json, "from", from->model);
    mt_json_text(&json, "architecture", d->architecture);
    mt_json_text(&json, "type", d->dtype);
    mt_json_count(&json, "layers", d->n_layers);
    mt_json_count(&json, "parameters", d->parameters);
    mt_json_count(&json, "tensors", d->n_tensors);
    mt_json_count(&json, "tensor_bytes", d->weight_bytes);
    mt_json_count(&json, "draft_tensor_bytes", draft_bytes(d));
    mt_json_count(&json, "header_bytes", d->header_bytes);
    mt_json_count(&json, "file_bytes", d->file_bytes);
    mt_json_end(&json);
    mt_json_finish(&json, out);
}

static void put_line(const struct cli_sample_from *from, const struct mt_model_description *d,
                     struct mt_strbuf *out)
{
    char size[MT_SIZE_TEXT];
    char parameters[32];
    mt_strbuf_printf(out,
                     "%s: %s, mostly %s, %s parameters in %" PRIu64
                     " tensors, %s with a hole for the weights\n",
                     from->path, d->architecture ? d->architecture : "?", d->dtype ? d->dtype : "?",
                     cli_format_parameters(d->parameters, parameters), d->n_tensors,
                     mt_format_size(d->file_bytes, size));
}

static int print_written(const struct cli_sample_from *from, struct mt_error *error)
{
    struct mt_strbuf out = {0};
    struct mt_model *written = NULL;
    if (mt_model_open(from->path, NULL, &written, error))
        return cli_fail(error);
    if (from->json)
        put_json(from, mt_model_describe(written), &out);
    else
        put_line(from, mt_model_describe(written), &out);
    int code = cli_print(&out);
    mt_strbuf_finish(&out);
    mt_model_close(written);
    return code;
}

int cli_sample_from(const struct cli_sample_from *from)
{
    struct mt_error error = {.offset = MT_NO_OFFSET};
    struct mt_sparse_options sparse = {.drop_vocabulary = from->drop_vocabulary};
    struct mt_model *model = NULL;
    int result = mt_file_type_by_name(from->type, &sparse.type);
    if (!result)
        result = estimate_open_model(from->model, from->remote, &model, &error);
    if (!result)
        result = estimate_write_sparse(model, from->remote, from->path, &sparse, &error);
    mt_model_close(model);
    if (result)
        return cli_fail(&error);
    return from->quiet ? CLI_EXIT_OK : print_written(from, &error);
}
