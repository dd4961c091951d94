/* SPDX-License-Identifier: MIT */
/* One pass over a file's events that gathers what needs no replay: timeline, pictures, marks,
 * processes, what the machine said. */
#include <memtally/error_code.h>
#include <memtally/units.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/secrets.h"
#include "tally/image.h"
#include "tally/table.h"

#define USER_SPACE_BYTES ((uint64_t)1 << 57)

/* A process as the watcher saw it. */
struct sighting {
    uint64_t pid;
    uint64_t parent_pid;
    uint64_t start_ns;
    uint64_t seen_ns;
    char *command;
    int outside; /* the recorder is not in it */
    uint64_t reason;
};

/* The state of reading one stream. */
struct stream {
    struct mt_picture picture; /* being put together */
    int open;
    uint64_t page;
    size_t runs_capacity;
    struct mt_table names; /* number -> texts */
    struct mt_bytes *texts;
    size_t n_texts;
};

/* The state of reading a file. */
struct pass {
    struct mt_recording *recording;
    int looks_for_processes; /* and for nothing else */
    struct sighting *sightings;
    size_t n_sightings;
    struct mt_table last_sightings; /* process id -> its last sighting */
    struct mt_table parents;        /* ids of processes that had children */
    struct mt_image *image;         /* NULL in a watch file */
    const struct mt_record_file *file;
    const struct mt_clock *clock;
    struct mt_device_pass device_pass;
    uint64_t last_label_ticks; /* of blocks */
    struct mt_table by_stream; /* -> streams */
    struct stream *streams;
    size_t n_streams;
};

/* Texts come in pieces as small as a file likes, so that their room doubles. */
static size_t room_for(size_t length)
{
    size_t room = 64;
    while (room <= length)
        room *= 2;
    return room;
}

static int append(struct mt_bytes *bytes, const void *data, size_t length)
{
    size_t room = room_for(bytes->length + length);
    if (!bytes->data || room != room_for(bytes->length)) {
        char *grown = realloc(bytes->data, room);
        if (!grown)
            return MT_ENOMEM;
        bytes->data = grown;
    }
    if (length)
        memcpy(bytes->data + bytes->length, data, length);
    bytes->length += length;
    bytes->data[bytes->length] = '\0';
    return 0;
}

void mt_picture_finish(struct mt_picture *picture)
{
    for (size_t i = 0; i < sizeof picture->text / sizeof *picture->text; i++)
        free(picture->text[i].data);
    free(picture->runs);
    *picture = (struct mt_picture){0};
}

uint64_t mt_picture_field(const struct mt_picture *picture, enum mt_picture_text kind,
                          const char *name)
{
    const struct mt_bytes *text = &picture->text[kind];
    return text->data ? mt_field_bytes(text->data, text->length, name) : MT_UNKNOWN;
}

static int add_point(struct mt_image *image, uint64_t ns, uint64_t resident_bytes)
{
    if (mt_array_grow(image->points, image->n_points) < 0)
        return MT_ENOMEM;
    image->points[image->n_points++] = (struct mt_point){ns, resident_bytes};
    return 0;
}

static void raise_high_water(struct mt_image *image, uint64_t bytes)
{
    if (bytes == MT_UNKNOWN || !bytes)
        return;
    if (image->high_water_bytes == MT_UNKNOWN || image->high_water_bytes < bytes)
        image->high_water_bytes = bytes;
}

static struct stream *find_stream(const struct pass *pass, const struct mt_event *event)
{
    uint64_t index;
    return mt_table_get(&pass->by_stream, event->stream, &index) ? &pass->streams[index] : NULL;
}

/* The stream that the event is from, made when new; NULL where memory ran out. */
static struct stream *stream_of(struct pass *pass, const struct mt_event *event)
{
    struct stream *found = find_stream(pass, event);
    if (found)
        return found;
    if (mt_array_grow(pass->streams, pass->n_streams) < 0)
        return NULL;
    if (mt_table_set(&pass->by_stream, event->stream, pass->n_streams) < 0)
        return NULL;
    pass->streams[pass->n_streams] = (struct stream){0};
    return &pass->streams[pass->n_streams++];
}

static int keep_name(struct pass *pass, const struct mt_event *event)
{
    struct stream *stream = stream_of(pass, event);
    if (!stream || mt_array_grow(stream->texts, stream->n_texts) < 0)
        return MT_ENOMEM;
    stream->texts[stream->n_texts] = (struct mt_bytes){0};
    struct mt_bytes *text = &stream->texts[stream->n_texts++];
    if (append(text, event->bytes, event->length) < 0)
        return MT_ENOMEM;
    return mt_table_set(&stream->names, event->field[0] & UINT32_MAX, stream->n_texts - 1);
}

static const char *name_of(const struct pass *pass, const struct mt_event *event, uint64_t number)
{
    const struct stream *stream = find_stream(pass, event);
    uint64_t index;
    if (!stream || !mt_table_get(&stream->names, number & UINT32_MAX, &index))
        return "?";
    return stream->texts[index].data;
}

static int begin_picture(struct pass *pass, const struct mt_event *event)
{
    struct stream *stream = stream_of(pass, event);
    if (!stream)
        return MT_ENOMEM;
    mt_picture_finish(&stream->picture);
    stream->picture = (struct mt_picture){
        .pid = event->field[0],
        .reason = (enum mt_picture_reason)event->field[1],
        .ns = event->field[2],
        .ticks = event->ticks,
        .resident_bytes = event->field[3],
    };
    stream->open = 1;
    stream->page = 0;
    stream->runs_capacity = 0;
    return 0;
}

static int add_runs(struct pass *pass, struct stream *stream, const struct mt_event *event)
{
    struct mt_picture *picture = &stream->picture;
    const uint64_t pages = USER_SPACE_BYTES / pass->file->header.page_bytes;
    struct mt_run_pages run;
    struct mt_runs runs;
    mt_runs_init(&runs, event);
    while (mt_runs_next(&runs, &stream->page, &run)) {
        if (!run.n_pages || stream->page > pages)
            continue; /* no kernel shows that */
        if (mt_array_reserve(picture->runs, picture->n_runs, stream->runs_capacity, 512) < 0)
            return MT_ENOMEM;
        picture->runs[picture->n_runs++] = run;
    }
    return 0;
}

static struct mt_image *image_of_picture(const struct pass *pass, const struct mt_picture *picture)
{
    if (pass->image)
        return pass->image;
    struct mt_image *image = mt_image_at(pass->recording, picture->pid, picture->ns);
    if (image && image->file && !mt_image_is_mapped_in(image, &picture->text[MT_TEXT_MAPS]))
        return NULL;
    return image;
}

static int keep_picture(struct mt_image *image, struct mt_picture *picture)
{
    if (mt_array_grow(image->pictures, image->n_pictures) < 0)
        return MT_ENOMEM;
    image->pictures[image->n_pictures++] = *picture;
    *picture = (struct mt_picture){0};
    return 0;
}

static int end_picture(struct pass *pass, struct stream *stream, const struct mt_event *event)
{
    struct mt_picture *picture = &stream->picture;
    struct mt_image *image = image_of_picture(pass, picture);
    int result = 0;
    stream->open = 0;
    picture->complete = event->field[0] == 1;
    picture->cost_ns = event->field[1];
    picture->method = (enum mt_picture_method)event->field[2];
    if (!pass->image)
        picture->ticks = 0;
    if (image && !pass->image)
        image->watched = 1;
    const struct mt_bytes *maps = &picture->text[MT_TEXT_MAPS];
    if (image && picture->reason == MT_PICTURE_START && !image->first_maps.n) {
        mt_maps_finish(&image->first_maps); /* an earlier text may have had no line that is one */
        result = mt_maps_parse(maps->data ? maps->data : "", maps->length, &image->first_maps);
    } else if (image && picture->complete && maps->length) {
        raise_high_water(image, mt_picture_field(picture, MT_TEXT_STATUS, "VmHWM"));
        result = add_point(image, picture->ns, picture->resident_bytes);
        if (result == 0)
            result = keep_picture(image, picture);
    }
    mt_picture_finish(picture);
    return result;
}

static int add_mark(struct pass *pass, const struct mt_event *event)
{
    struct mt_recording *recording = pass->recording;
    char *name = strdup(name_of(pass, event, event->field[0]));
    if (!name || mt_array_grow(recording->marks, recording->n_marks) < 0) {
        free(name);
        return MT_ENOMEM;
    }
    recording->marks[recording->n_marks++] = (struct mt_recording_mark){
        .time_ns = mt_clock_ns(pass->clock, event->ticks),
        .pid = pass->image ? pass->image->pid : 0,
        .name = name,
    };
    return 0;
}

static int add_machine(struct pass *pass, const struct mt_event *event)
{
    struct mt_recording *recording = pass->recording;
    struct mt_bytes text = {0};
    if (mt_array_grow(recording->machine, recording->n_machine) < 0)
        return MT_ENOMEM;
    if (append(&text, event->bytes, event->length) < 0)
        return MT_ENOMEM;
    recording->machine[recording->n_machine++] = (struct mt_machine_sample){
        .ns = mt_clock_ns(pass->clock, event->ticks),
        .kind = (uint32_t)event->field[0],
        .text = text,
    };
    return 0;
}

/* The arguments of a command line are separated by zero bytes. Recordings by older versions have
 * secrets in them. */
static int set_command(struct mt_image *image, const char *bytes, size_t length)
{
    char *command = malloc(MT_MAX_STRING);
    if (!command)
        return MT_ENOMEM;
    while (length && bytes[length - 1] == '\0')
        length--;
    mt_join_arguments(bytes, length, command, MT_MAX_STRING);
    free(image->command);
    image->command = command;
    return 0;
}

/* How late a process's own clock may begin before the kernel's start time, which comes in
 * hundredths of a second. */
#define START_APART_NS 20000000u

static int keep_sighting(struct pass *pass, const struct mt_event *event)
{
    if (event->field[0] > INT32_MAX)
        return 0;
    if (mt_array_grow(pass->sightings, pass->n_sightings) < 0)
        return MT_ENOMEM;
    struct sighting *seen = &pass->sightings[pass->n_sightings];
    *seen = (struct sighting){
        .pid = event->field[0],
        .parent_pid = event->field[1],
        .start_ns = event->field[2],
        .seen_ns = mt_clock_ns(pass->clock, event->ticks),
        .command = strdup(name_of(pass, event, event->field[3])),
    };
    if (!seen->command)
        return MT_ENOMEM;
    return mt_table_set(&pass->last_sightings, seen->pid, pass->n_sightings++);
}

static void set_outside(struct pass *pass, const struct mt_event *event)
{
    uint64_t index;
    if (event->field[0] > INT32_MAX ||
        !mt_table_get(&pass->last_sightings, event->field[0], &index))
        return;
    pass->sightings[index].outside = 1;
    pass->sightings[index].reason = event->field[1];
}

/* The last image with a file that a process had when it was seen, NULL where it had none. Of a
 * process that the recorder is not in only its own count, not those of an earlier one of the same
 * id; of another the time at which its program was first noticed may be long after its start. */
static const struct mt_image *recorded_image_of(const struct mt_recording *recording,
                                                const struct sighting *seen)
{
    const struct mt_image *found = mt_image_begun(recording, seen->pid, seen->seen_ns);
    if (found && seen->outside && found->start_ns + START_APART_NS < seen->start_ns)
        return NULL;
    return found;
}

/* A process that the watcher saw: an image of its own unless the recorder left a file of it. One
 * that the recorder is not in any more began its program after the file's last event. */
static int make_seen_image(struct mt_recording *recording, struct sighting *seen)
{
    const struct mt_image *recorded = recorded_image_of(recording, seen);
    if (recorded && !seen->outside)
        return 0;
    if (recorded && recorded->end_ns >= seen->start_ns)
        seen->start_ns = recorded->end_ns + 1;
    struct mt_image *image = mt_image_add(recording);
    if (!image)
        return MT_ENOMEM;
    image->pid = seen->pid;
    image->parent_pid = seen->parent_pid;
    image->start_ns = image->end_ns = seen->start_ns;
    image->watched = 1;
    image->outside_reason = seen->reason;
    image->command = seen->command;
    seen->command = NULL;
    return 0;
}

/* A fork is no child of the watcher, who finds it gone some time after it has ended: what it said
 * itself is nearer, and holds unless it was seen later. */
static int knows_its_end(const struct mt_image *image)
{
    const struct mt_file_header *header = image->file ? &image->file->header : NULL;
    return header && header->flags & MT_FILE_FORKED && header->end_kind == MT_END_EXIT &&
           header->end_monotonic_ns;
}

static int end_process(struct pass *pass, const struct mt_event *event)
{
    uint64_t ns = mt_clock_ns(pass->clock, event->ticks);
    struct mt_image *image = mt_image_at(pass->recording, event->field[0], ns);
    if (!image)
        return 0;
    image->watched = 1;
    image->end_how = (uint32_t)event->field[1];
    image->end_value = event->field[2];
    if (!knows_its_end(image))
        image->end_ns = ns;
    return 0;
}

static int sample_process(struct pass *pass, const struct mt_event *event)
{
    uint64_t ns = mt_clock_ns(pass->clock, event->ticks);
    struct mt_image *image = mt_image_at(pass->recording, event->field[0], ns);
    if (!image)
        return 0;
    image->watched = 1;
    raise_high_water(image, event->field[2]);
    return add_point(image, ns, event->field[1]);
}

/* The largest of all programs that a process ran, and of all children that it waited for: of the
 * one program that it ran where it was one and it had no children. */
static void take_peak(struct pass *pass, const struct mt_event *event)
{
    uint64_t fields[2];
    size_t n;
    if (!mt_event_skipped_fields(event, fields, 2))
        return;
    const size_t *images = mt_images_of(pass->recording, fields[0], &n);
    if (n == 1 && !mt_table_get(&pass->parents, fields[0], &(uint64_t){0}))
        raise_high_water(&pass->recording->images[images[0]], fields[1]);
}

static int take_seen(struct pass *pass, const struct mt_event *event)
{
    uint64_t fields[4];
    if (!mt_event_skipped_fields(event, fields, 4))
        return 0;
    const struct mt_device_sight sight = {
        .uuid = name_of(pass, event, fields[0]),
        .name = name_of(pass, event, fields[1]),
        .total_bytes = fields[2],
        .bytes = fields[3],
    };
    return mt_device_take_seen(&pass->recording->devices, &sight,
                               mt_clock_ns(pass->clock, event->ticks));
}

/* The first pass over a watch file. */
static int take_sighting(struct pass *pass, const struct mt_event *event)
{
    switch (event->op) {
    case MT_EVENT_STRING:
        return keep_name(pass, event);
    case MT_EVENT_PROCESS:
        return keep_sighting(pass, event);
    case MT_EVENT_OUTSIDE_ONLY:
        set_outside(pass, event);
        return 0;
    default:
        return 0;
    }
}

static int take_of_process(struct pass *pass, const struct mt_event *event)
{
    switch (event->op) {
    case MT_EVENT_LOOK:
        return add_point(pass->image, mt_clock_ns(pass->clock, event->ticks), event->field[0]);
    case MT_EVENT_MACHINE:
        return event->field[0] == MT_MACHINE_COMMAND && !pass->image->command
                   ? set_command(pass->image, (const char *)event->bytes, event->length)
                   : 0;
    case MT_EVENT_BUFFER_ALLOC:
        return mt_device_take(&pass->device_pass, event, mt_clock_ns(pass->clock, event->ticks),
                              NULL, name_of(pass, event, event->field[5]));
    case MT_EVENT_LABEL:
        return mt_device_take(&pass->device_pass, event, mt_clock_ns(pass->clock, event->ticks),
                              NULL, name_of(pass, event, event->field[3]));
    case MT_EVENT_DEVICE_CALLER:
        return mt_device_take(&pass->device_pass, event, mt_clock_ns(pass->clock, event->ticks),
                              NULL, name_of(pass, event, event->field[1]));
    case MT_EVENT_DEVICE:
        return mt_device_take(&pass->device_pass, event, mt_clock_ns(pass->clock, event->ticks),
                              name_of(pass, event, event->field[2]),
                              name_of(pass, event, event->field[3]));
    default:
        return mt_device_take(&pass->device_pass, event, mt_clock_ns(pass->clock, event->ticks),
                              NULL, NULL);
    }
}

static int take_of_watch(struct pass *pass, const struct mt_event *event)
{
    switch (event->op) {
    case MT_EVENT_MACHINE:
        return add_machine(pass, event);
    case MT_EVENT_PROCESS_END:
        return end_process(pass, event);
    case MT_EVENT_PROCESS_SAMPLE:
        return sample_process(pass, event);
    case MT_EVENT_PROCESS_PEAK:
        take_peak(pass, event);
        return 0;
    case MT_EVENT_DEVICE_SEEN:
        return take_seen(pass, event);
    case MT_EVENT_DEVICE_OTHERS:
        return mt_device_take_others(&pass->recording->devices,
                                     name_of(pass, event, event->field[0]), event->field[1],
                                     mt_clock_ns(pass->clock, event->ticks));
    default:
        return 0;
    }
}

static int take_of_picture(struct pass *pass, const struct mt_event *event)
{
    struct stream *stream = find_stream(pass, event);
    if (!stream || !stream->open)
        return 0;
    if (event->op == MT_EVENT_PICTURE_RUNS)
        return add_runs(pass, stream, event);
    if (event->op == MT_EVENT_PICTURE_END)
        return end_picture(pass, stream, event);
    if (event->field[0] > MT_TEXT_MEMINFO)
        return 0;
    return append(&stream->picture.text[event->field[0]], event->bytes, event->length);
}

static int take(struct pass *pass, const struct mt_event *event)
{
    if (pass->looks_for_processes)
        return take_sighting(pass, event);
    switch (event->op) {
    case MT_EVENT_STRING:
        return keep_name(pass, event);
    case MT_EVENT_MARK:
        return add_mark(pass, event);
    case MT_EVENT_LABEL_BLOCK:
        pass->last_label_ticks = event->ticks;
        return 0;
    case MT_EVENT_PICTURE_BEGIN:
        return begin_picture(pass, event);
    case MT_EVENT_PICTURE_TEXT:
    case MT_EVENT_PICTURE_RUNS:
    case MT_EVENT_PICTURE_END:
        return take_of_picture(pass, event);
    default:
        return pass->image ? take_of_process(pass, event) : take_of_watch(pass, event);
    }
}

static void finish_streams(struct pass *pass)
{
    for (size_t i = 0; i < pass->n_streams; i++) {
        struct stream *stream = &pass->streams[i];
        mt_picture_finish(&stream->picture);
        mt_table_finish(&stream->names);
        for (size_t j = 0; j < stream->n_texts; j++)
            free(stream->texts[j].data);
        free(stream->texts);
    }
    free(pass->streams);
    mt_table_finish(&pass->by_stream);
}

static int read_file(struct pass *pass)
{
    struct mt_merge *merge;
    struct mt_event event;
    int result = mt_merge_create(pass->file, &merge);
    if (result < 0)
        return result;
    if (pass->image)
        mt_merge_skip_blocks(merge);
    while (result == 0 && mt_merge_next(merge, &event))
        result = take(pass, &event);
    if (result == 0)
        result = mt_merge_failed(merge);
    if (!pass->image) /* a process's events are all checked when its peaks are found */
        pass->recording->damage.blocks_bad += mt_merge_blocks_bad(merge);
    pass->recording->damage.blocks_open += mt_merge_blocks_open(merge);
    mt_merge_destroy(merge);
    finish_streams(pass);
    return result;
}

int mt_facts_of_process(struct mt_recording *recording, struct mt_image *image)
{
    struct pass pass = {
        .recording = recording,
        .image = image,
        .file = image->file,
        .clock = &image->clock,
    };
    mt_device_pass_init(&pass.device_pass, &recording->devices, image->pid);
    int result = read_file(&pass);
    /* At the moment of its last event it had all that, and that may be the peak. */
    uint64_t gone_ns = image->end_ns + (image->end_ns < UINT64_MAX);
    int failed = mt_device_pass_finish(&pass.device_pass, gone_ns);
    image->file->last_label_ticks = pass.last_label_ticks;
    return result < 0 ? result : failed;
}

static void finish_sightings(struct pass *pass)
{
    for (size_t i = 0; i < pass->n_sightings; i++)
        free(pass->sightings[i].command);
    free(pass->sightings);
    mt_table_finish(&pass->last_sightings);
}

int mt_facts_of_watched_processes(struct mt_recording *recording)
{
    struct pass pass = {
        .recording = recording,
        .file = recording->watch,
        .clock = &recording->watch_clock,
        .looks_for_processes = 1,
    };
    const struct mt_recording_damage before = recording->damage;
    int result = read_file(&pass);
    recording->damage = before; /* it is counted in the other pass */
    for (size_t i = 0; i < pass.n_sightings && result == 0; i++)
        result = make_seen_image(recording, &pass.sightings[i]);
    finish_sightings(&pass);
    return result;
}

int mt_facts_of_watch(struct mt_recording *recording)
{
    struct pass pass = {
        .recording = recording,
        .file = recording->watch,
        .clock = &recording->watch_clock,
    };
    int result = 0;
    for (size_t i = 0; i < recording->n_images && result == 0; i++)
        result = mt_table_set(&pass.parents, recording->images[i].parent_pid, 1);
    if (result == 0)
        result = read_file(&pass);
    mt_table_finish(&pass.parents);
    return result;
}
