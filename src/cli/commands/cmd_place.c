/* SPDX-License-Identifier: MIT */
/* memtally place: which layers and experts go to which device. */
#include <errno.h>
#include <memtally/error.h>
#include <stdlib.h>
#include <string.h>

#include <memtally/place.h>

#include "base/error.h"
#include "base/out_of_memory.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/document/placement.h"
#include "cli/model/model.h"
#include "cli/shared_options.h"
#include "cli/words.h"

struct place_options {
    struct estimate_options model; /* those that are shared with 'estimate' */
    int objective;
    uint64_t buffer_bytes;
    const char *quantise;
    struct cli_texts pins;
    struct cli_texts links;
    const char *traffic;
    int policy;
    int compare;
    int no_host;
    int no_copies;
    int format;
    const char *output;
};

#define AT(member)       offsetof(struct place_options, member)
#define AT_MODEL(member) offsetof(struct place_options, model.member)

#define NAME(NAME_, name) name,
static const char *const objectives[] = {MT_OBJECTIVE_LIST(NAME) NULL};
static const char *const policies[] = {MT_PLACE_POLICY_LIST(NAME) NULL};
#undef NAME
enum { TABLE, JSON, SVG, HTML };
static const char *const formats[] = {"table", "json", "svg", "html", NULL};

static const struct cli_option place_options[] = {
    {.name = "device",
     .letter = 'd',
     .kind = CLI_TEXTS,
     .argument = "DEVICE[,DEVICE...]",
     .offset = AT_MODEL(devices),
     .words = cli_words_gpus,
     .is_list = 1,
     .help = "each device: its memory, as 24GiB,16GiB or 2x24GiB, or the name of a GPU, as "
             "H100-80GB"},
    {.name = "here",
     .kind = CLI_FLAG,
     .offset = AT_MODEL(here),
     .help = "this machine's NVIDIA devices, less what other processes hold of them"},
    CLI_OPTION_ENGINE(AT_MODEL(engine), cli_words_engines,
                      "llama.cpp, ik_llama.cpp, ollama, vllm, sglang, transformers or exllamav3"),
    {.name = "context",
     .letter = 'c',
     .kind = CLI_COUNT,
     .argument = "TOKENS",
     .most = 1u << 31,
     .offset = AT_MODEL(context),
     .help = "tokens of context for which the cache counts; without it, 8192 or what the model "
             "was trained for"},
    {.name = "kv-type",
     .kind = CLI_TEXT,
     .argument = "TYPE",
     .offset = AT_MODEL(kv_type),
     .words = cli_words_cache_types,
     .help = "how keys and values are stored: f16, q8_0, fp8 and so on"},
    {.name = "sequences",
     .kind = CLI_COUNT,
     .argument = "N",
     .most = 1u << 31,
     .offset = AT_MODEL(sequences),
     .help = "sequences at a time"},
    {.name = "memory-share",
     .kind = CLI_REAL,
     .argument = "SHARE",
     .most = 1,
     .offset = AT_MODEL(memory_share),
     .help = "the share of each device that vLLM or SGLang may take"},
    {.name = "buffer",
     .kind = CLI_SIZE,
     .argument = "SIZE",
     .fallback = "1GiB",
     .offset = AT(buffer_bytes),
     .help = "keep so much of each device free"},
    {.name = "objective",
     .kind = CLI_CHOICE,
     .argument = "WHAT",
     .choices = objectives,
     .fallback = "crossings",
     .offset = AT(objective),
     .help = "what comes first: crossings, the fewest between devices; balance, the least use of "
             "the fullest device; room, the most context; speed, the least time to read weights "
             "and to cross"},
    {.name = "quantise",
     .kind = CLI_TEXT,
     .argument = "TYPE",
     .offset = AT(quantise),
     .help = "the type to which an engine on PyTorch quantises the layers' weights when it loads "
             "them: nf4, nf4-double or int8"},
    {.name = "pin",
     .kind = CLI_TEXTS,
     .argument = "PATTERN=DEVICE",
     .offset = AT(pins),
     .help = "put the layer that has a tensor whose name matches the regular expression on the "
             "device of this number, as 0 or gpu0; you may give it several times"},
    {.name = "link",
     .kind = CLI_TEXTS,
     .argument = "A-B=KIND[,A-B=KIND...]",
     .offset = AT(links),
     .help = "the link between two devices, as 0-1=nvlink; KIND is nvlink, pcie or network; all "
             "other links are pcie"},
    {.name = "expert-traffic",
     .kind = CLI_FILE,
     .argument = "FILE",
     .offset = AT(traffic),
     .help = "how often each expert is used, in lines LAYER,EXPERT,COUNT"},
    {.name = "host",
     .kind = CLI_SIZE,
     .argument = "SIZE",
     .offset = AT_MODEL(host_bytes),
     .help = "room on the host for what leaves the devices; the rest stays on disk"},
    {.name = "no-host",
     .kind = CLI_FLAG,
     .offset = AT(no_host),
     .help = "put nothing on the host, even if the devices have no room for all"},
    {.name = "no-copies",
     .kind = CLI_FLAG,
     .offset = AT(no_copies),
     .help = "have llama.cpp keep no copies of its inputs for devices that work at once; by "
             "itself memtally leaves them out only if not all fits with them"},
    {.name = "policy",
     .kind = CLI_CHOICE,
     .argument = "NAME",
     .choices = policies,
     .fallback = "best",
     .offset = AT(policy),
     .help = "place by another policy than the best one, to see its figures"},
    {.name = "compare",
     .kind = CLI_FLAG,
     .offset = AT(compare),
     .help = "show every policy's figures beside the best placement's"},
    {.name = "remote",
     .kind = CLI_FLAG,
     .offset = AT_MODEL(remote),
     .help = "MODEL may be a URL or a name on huggingface.co; memtally reads headers only"},
    CLI_FORMAT_OPTIONS(AT(format), formats, JSON, "how to write the placement"),
    CLI_OPTION_OUTPUT(AT(output), "placement"),
    {0},
};

/* ---- pins ---- */

/* "blk\.0\..*=gpu0": the last '=' divides. The pattern is copied to `text`. */
static int read_pin(const char *given, struct mt_place_pin *pin, char **text,
                    struct mt_error *error)
{
    const char *equals = strrchr(given, '=');
    const char *number = equals ? equals + 1 : "";
    if (!strncmp(number, "gpu", 3))
        number += number[3] == ':' ? 4 : 3;
    char *end;
    errno = 0;
    unsigned long device = strtoul(number, &end, 10);
    if (!equals || equals == given || number[0] < '0' || number[0] > '9' || *end || errno ||
        device >= MT_PLACE_DEVICES_MAX)
        return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                       "option '--pin' takes PATTERN=DEVICE, as 'blk\\.0\\.=gpu0', not '%.80s'",
                       given);
    *text = strndup(given, (size_t)(equals - given));
    *pin = (struct mt_place_pin){*text, device};
    return *text ? 0 : mt_out_of_memory(error);
}

struct pins {
    struct mt_place_pin pins[CLI_TEXTS_MAX];
    char *texts[CLI_TEXTS_MAX];
};

static int read_pins(const struct cli_texts *given, struct pins *pins, struct mt_error *error)
{
    int result = 0;
    for (size_t i = 0; !result && i < given->n; i++)
        result = read_pin(given->items[i], &pins->pins[i], &pins->texts[i], error);
    return result;
}

static void pins_finish(struct pins *pins)
{
    for (size_t i = 0; i < CLI_TEXTS_MAX; i++)
        free(pins->texts[i]);
}

/* ---- links ---- */

#define LINKS_MAX 256

/* "0-1=nvlink"; "gpu0" and "gpu:0" are 0. *next is where it ends: at a comma, or at the end of all.
 */
static int read_link(const char *text, struct mt_place_link *link, const char **next)
{
    size_t ends[2] = {0};
    char *end = NULL;
    for (int i = 0; i < 2; i++) {
        text = i ? end + 1 : text;
        text += strncmp(text, "gpu", 3) ? 0 : text[3] == ':' ? 4 : 3;
        errno = 0;
        unsigned long number = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || errno || number >= MT_PLACE_DEVICES_MAX ||
            *end != (i ? '=' : '-'))
            return 0;
        ends[i] = number;
    }
    int kind = 0;
    size_t length = strcspn(++end, ",");
    while (kind < MT_PLACE_LINK_COUNT) {
        const char *name = mt_place_link_name((enum mt_place_link_kind)kind);
        if (strlen(name) == length && !strncmp(name, end, length))
            break;
        kind++;
    }
    *next = end + length;
    *link = (struct mt_place_link){ends[0], ends[1], (enum mt_place_link_kind)kind};
    return kind < MT_PLACE_LINK_COUNT;
}

static int read_links(const struct cli_texts *given, struct mt_place_link links[LINKS_MAX],
                      size_t *n, struct mt_error *error)
{
    *n = 0;
    for (size_t i = 0; i < given->n; i++)
        for (const char *at = given->items[i], *next;; at = next + 1) {
            if (*n == LINKS_MAX || !read_link(at, &links[(*n)++], &next))
                return mt_fail(error, MT_EARG, MT_NO_OFFSET,
                               "option '--link' takes A-B=KIND, as '0-1=nvlink', with nvlink, pcie "
                               "or network, and at most %d of them, not '%.80s'",
                               LINKS_MAX, at);
            if (!*next)
                break;
        }
    return 0;
}

/* ---- the command ---- */

/* A model without experts has none to divide. */
static int is_of_use(const struct mt_placed *placed, int policy)
{
    return policy == MT_PLACE_POLICY_IN_ORDER || placed->placement->experts_most;
}

static int add_policies(const struct place_options *options, const struct mt_placed *placed,
                        struct mt_placement **made, struct mt_error *error)
{
    int result = 0;
    for (int policy = 1; !result && policy < MT_PLACE_POLICY_COUNT; policy++)
        if (options->policy == policy || (options->compare && is_of_use(placed, policy)))
            result = mt_place_by_policy(&placed->problem, (enum mt_place_policy)policy,
                                        &made[policy], error);
    return result;
}

static int show(const struct place_options *options, const struct mt_model *model,
                const struct mt_placed *placed, struct mt_strbuf *out, struct mt_error *error)
{
    struct mt_placement *made[MT_PLACE_POLICY_COUNT] = {0};
    struct cli_placement_document document = {.model = mt_model_describe(model),
                                              .engine = options->model.engine,
                                              .placed = placed,
                                              .policy = (enum mt_place_policy)options->policy};
    struct cli_terminal terminal = cli_terminal_of_output(options->output);
    int result = add_policies(options, placed, made, error);
    if (!result) {
        document.shown = options->policy ? made[options->policy] : placed->placement;
        for (int i = 0; options->compare && i < MT_PLACE_POLICY_COUNT; i++)
            document.compared[i] = i ? made[i] : placed->placement;
        if (options->format == JSON)
            cli_placement_json(&document, out);
        else if (options->format == SVG)
            cli_placement_svg(&document, out);
        else if (options->format == HTML)
            cli_placement_html(&document, out);
        else
            cli_placement_table(&document, &terminal, out);
    }
    for (int i = 0; i < MT_PLACE_POLICY_COUNT; i++)
        mt_placement_destroy(made[i]);
    return result;
}

static int place(const struct cli_call *call, struct estimate_request *request,
                 struct mt_strbuf *out, struct mt_error *error)
{
    const struct place_options *options = call->options;
    struct mt_model *model = NULL;
    struct mt_placed *placed = NULL;
    struct pins pins = {0};
    struct mt_place_link links[LINKS_MAX];
    size_t n_links = 0;
    struct mt_expert_use *uses = NULL;
    size_t n_uses = 0;
    int result = read_pins(&options->pins, &pins, error);
    if (!result)
        result = read_links(&options->links, links, &n_links, error);
    if (!result && options->traffic)
        result = mt_expert_uses_read(options->traffic, &uses, &n_uses, error);
    if (!result && !options->model.devices.n && !options->model.here)
        result = mt_fail(error, MT_EARG, MT_NO_OFFSET,
                         "there is no device to place anything on; name some with '--device' or "
                         "take this machine's with '--here'");
    if (!result)
        result = estimate_request_init(request, &options->model, error);
    if (!result)
        result = estimate_open_model(call->operands[0], options->model.remote, &model, error);
    if (!result) {
        const struct mt_place_options how = {
            .objective = (enum mt_objective)options->objective,
            .buffer_bytes = options->buffer_bytes,
            .quantisation = options->quantise,
            .pins = pins.pins,
            .n_pins = options->pins.n,
            .links = links,
            .n_links = n_links,
            .uses = uses,
            .n_uses = n_uses,
            .host_bytes = options->model.host_bytes,
            .keep_on_devices = options->no_host,
            .drops_copies = options->no_copies,
        };
        result = mt_place_model(model, &request->settings, &how, &placed, error);
    }
    if (!result)
        result = show(options, model, placed, out, error);
    mt_placed_destroy(placed);
    mt_model_close(model);
    pins_finish(&pins);
    mt_expert_uses_destroy(uses);
    return result;
}

/* That it does not fit is an answer; what cannot be read or placed is bad input. */
static int fail(const struct mt_error *error)
{
    int code = estimate_fail_as("place", error);
    if (error->code == MT_ELIMIT)
        return CLI_EXIT_NO;
    if (error->code == MT_EIO || error->code == MT_ETIMEOUT)
        return CLI_EXIT_CANNOT;
    return code == CLI_EXIT_NO || error->code == MT_EUNSUPPORTED ? CLI_EXIT_USAGE : code;
}

static int run_place(const struct cli_call *call)
{
    const struct place_options *options = call->options;
    struct estimate_request *request = calloc(1, sizeof *request);
    struct mt_strbuf out = {0};
    struct mt_error error = {.offset = MT_NO_OFFSET};
    if (!request) {
        cli_complain("place: out of memory");
        return CLI_EXIT_CANNOT;
    }
    int code =
        place(call, request, &out, &error) ? fail(&error) : cli_write_output(&out, options->output);
    estimate_request_finish(request);
    free(request);
    mt_strbuf_finish(&out);
    return code;
}

static const char *const description[] = {
    "Says which layers go to which device, so that the model fits with the fewest crossings "
    "between "
    "devices and the most room. It counts weights, the cache, compute buffers and the driver's "
    "context, and keeps 1 GiB of each device free (--buffer).",
    "A device gets one stretch of layers. Of all such placements memtally takes the best one by "
    "the "
    "objective, and says how far any other placement could be better. It tries each order of "
    "devices that differ. For transformers, if no such placement fits, it looks for any that does.",
    "If the devices have no room for all, llama.cpp and its kin leave a part on the host: first "
    "the "
    "routed experts of as few layers as possible, then the first layers. For transformers the "
    "first layers leave; they are computed on the first device, which keeps their cache and room "
    "for one of them. What the host has no room for (--host) stays on disk. For other engines "
    "memtally says what is missing.",
    "The links of devices (--link) decide which of several equal devices get neighbouring "
    "layers. Their speeds are assumed. With '--objective speed' memtally counts the time to read "
    "the weights, by the memory of cards that it knows by name, and that of the crossings.",
    "For llama.cpp memtally estimates the placement again as the engine will load it, and changes "
    "it until each device keeps to its limit with the high end of its band.",
    NULL,
};

static const struct cli_example examples[] = {
    {"memtally place model.gguf --device 16GiB,16GiB", "The split for two cards, with its flags."},
    {"memtally place model.gguf --device 24GiB,12GiB --objective room",
     "Cards that differ; the most context."},
    {"memtally place config.json -e transformers --quantise nf4 -d 2x16GiB --json",
     "A device_map for from_pretrained()."},
    {"memtally place config.json --engine vllm --device 4xH100-80GB", "Layers of each stage."},
    {"memtally place model.gguf --device 2x16GiB --compare", "Other policies beside it."},
    {"memtally place model.gguf --device 4x16GiB --link 0-1=nvlink,2-3=nvlink",
     "Cards in pairs that are bridged."},
    {0},
};

static const struct cli_status statuses[] = {
    {"0", "there is a placement"},
    {"1", "it does not fit; the message says how much is missing"},
    {"2", "wrong usage, or a model or setting that cannot be used"},
    {"3", "this machine cannot: no permission, no memory, no network for --remote"},
    {0},
};

const struct cmd_entry cmd_place = {
    .name = "place",
    .synopsis = "[options] --device DEVICE[,DEVICE...] MODEL",
    .summary = "place layers and experts on devices",
    .description = description,
    .examples = examples,
    .statuses = statuses,
    .options = place_options,
    .options_size = sizeof(struct place_options),
    .operands = CLI_OPERANDS_FILES,
    .least_operands = 1,
    .most_operands = 1,
    .run = run_place,
};
