/* SPDX-License-Identifier: MIT */
/* One pass over a file's events that gathers what needs no replay: timeline, pictures, marks,
 * processes, what the machine said. Streams are read one after the other, not merged. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/image.h"
#include "tally/table.h"

/* The state of reading one stream. */
struct pass {
    struct mt_recording *recording;
    struct mt_image *image; /* NULL in a watch file */
    const struct mt_record_file *file;
    const struct mt_clock *clock;
    struct mt_picture picture; /* being put together; pid UINT64_MAX: none */
    int open;
    uint64_t page;
    size_t runs_capacity;
    struct mt_table names; /* of this stream: number -> offset of its event in a copy */
    struct mt_bytes *texts;
    size_t n_texts;
};

static int grow(void **items, size_t n, size_t size)
{
    if (n & (n - 1))
        return 0;
    void *grown = realloc(*items, (n ? n * 2 : 1) * size);
    if (!grown)
        return MT_ENOMEM;
    *items = grown;
    return 0;
}

static int append(struct mt_bytes *bytes, const void *data, size_t length)
{
    char *grown = realloc(bytes->data, bytes->length + length + 1);
    if (!grown)
        return MT_ENOMEM;
    if (length)
        memcpy(grown + bytes->length, data, length);
    bytes->data = grown;
    bytes->length += length;
    grown[bytes->length] = '\0';
    return 0;
}

void mt_picture_finish(struct mt_picture *picture)
{
    for (size_t i = 0; i < sizeof picture->text / sizeof *picture->text; i++)
        free(picture->text[i].data);
    free(picture->runs);
    *picture = (struct mt_picture){0};
}

struct mt_image *mt_image_at(const struct mt_recording *recording, uint64_t pid, uint64_t ns)
{
    struct mt_image *found = NULL;
    for (size_t i = 0; i < recording->n_images; i++) {
        struct mt_image *image = &recording->images[i];
        if (image->pid == pid && (!found || image->start_ns <= ns))
            found = image;
    }
    return found;
}

static int add_point(struct mt_image *image, uint64_t ns, uint64_t resident_bytes)
{
    void *points = image->points;
    if (grow(&points, image->n_points, sizeof *image->points) < 0)
        return MT_ENOMEM;
    image->points = points;
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

static int keep_name(struct pass *pass, const struct mt_event *event)
{
    void *texts = pass->texts;
    if (grow(&texts, pass->n_texts, sizeof *pass->texts) < 0)
        return MT_ENOMEM;
    pass->texts = texts;
    pass->texts[pass->n_texts] = (struct mt_bytes){0};
    if (append(&pass->texts[pass->n_texts], event->bytes, event->length) < 0)
        return MT_ENOMEM;
    return mt_table_set(&pass->names, event->field[0] & UINT32_MAX, pass->n_texts++);
}

static const char *name_of(const struct pass *pass, uint64_t number)
{
    uint64_t index;
    if (!mt_table_get(&pass->names, number & UINT32_MAX, &index))
        return "?";
    return pass->texts[index].data;
}

static int begin_picture(struct pass *pass, const struct mt_event *event)
{
    mt_picture_finish(&pass->picture);
    pass->picture = (struct mt_picture){
        .pid = event->field[0],
        .reason = (enum mt_picture_reason)event->field[1],
        .ns = event->field[2],
        .ticks = event->ticks,
        .resident_bytes = event->field[3],
    };
    pass->open = 1;
    pass->page = 0;
    pass->runs_capacity = 0;
    return 0;
}

static int add_runs(struct pass *pass, const struct mt_event *event)
{
    struct mt_picture *picture = &pass->picture;
    struct mt_run_pages run;
    struct mt_runs runs;
    mt_runs_init(&runs, event);
    while (mt_runs_next(&runs, &pass->page, &run)) {
        if (picture->n_runs == pass->runs_capacity) {
            size_t more = pass->runs_capacity ? pass->runs_capacity * 2 : 512;
            void *grown = realloc(picture->runs, more * sizeof *picture->runs);
            if (!grown)
                return MT_ENOMEM;
            picture->runs = grown;
            pass->runs_capacity = more;
        }
        picture->runs[picture->n_runs++] = run;
    }
    return 0;
}

static struct mt_image *image_of_picture(const struct pass *pass)
{
    if (pass->image)
        return pass->image;
    return mt_image_at(pass->recording, pass->picture.pid, pass->picture.ns);
}

static int keep_picture(struct mt_image *image, struct mt_picture *picture)
{
    void *pictures = image->pictures;
    if (grow(&pictures, image->n_pictures, sizeof *image->pictures) < 0)
        return MT_ENOMEM;
    image->pictures = pictures;
    image->pictures[image->n_pictures++] = *picture;
    *picture = (struct mt_picture){0};
    return 0;
}

static int end_picture(struct pass *pass, const struct mt_event *event)
{
    struct mt_picture *picture = &pass->picture;
    struct mt_image *image = image_of_picture(pass);
    int result = 0;
    pass->open = 0;
    picture->complete = event->field[0] == 1;
    picture->cost_ns = event->field[1];
    picture->method = (enum mt_picture_method)event->field[2];
    if (!pass->image)
        picture->ticks = 0;
    const struct mt_bytes *maps = &picture->text[MT_TEXT_MAPS];
    const struct mt_bytes *status = &picture->text[MT_TEXT_STATUS];
    if (image && picture->reason == MT_PICTURE_START && !image->first_maps.n)
        result = mt_maps_parse(maps->data ? maps->data : "", maps->length, &image->first_maps);
    else if (image && picture->complete && maps->length) {
        raise_high_water(image,
                         mt_field_bytes(status->data ? status->data : "", status->length, "VmHWM"));
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
    void *marks = recording->marks;
    char *name = strdup(name_of(pass, event->field[0]));
    if (!name || grow(&marks, recording->n_marks, sizeof *recording->marks) < 0) {
        free(name);
        return MT_ENOMEM;
    }
    recording->marks = marks;
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
    void *machine = recording->machine;
    if (grow(&machine, recording->n_machine, sizeof *recording->machine) < 0)
        return MT_ENOMEM;
    recording->machine = machine;
    if (append(&text, event->bytes, event->length) < 0)
        return MT_ENOMEM;
    recording->machine[recording->n_machine++] = (struct mt_machine_sample){
        .ns = mt_clock_ns(pass->clock, event->ticks),
        .kind = (uint32_t)event->field[0],
        .text = text,
    };
    return 0;
}

/* The arguments of a command line are separated by zero bytes. */
static int set_command(struct mt_image *image, const void *bytes, size_t length)
{
    char *command = malloc(length + 1);
    if (!command)
        return MT_ENOMEM;
    memcpy(command, bytes, length);
    while (length && command[length - 1] == '\0')
        length--;
    for (size_t i = 0; i < length; i++)
        if (command[i] == '\0')
            command[i] = ' ';
    command[length] = '\0';
    free(image->command);
    image->command = command;
    return 0;
}

/* The watcher saw a process: an image of its own where the recorder left no file. */
static int see_process(struct pass *pass, const struct mt_event *event)
{
    struct mt_recording *recording = pass->recording;
    struct mt_image *image = mt_image_at(recording, event->field[0], event->field[2]);
    if (image) {
        for (size_t i = 0; i < recording->n_images; i++)
            if (recording->images[i].pid == event->field[0])
                recording->images[i].parent_pid = event->field[1];
        return 0;
    }
    void *images = realloc(recording->images, (recording->n_images + 1) * sizeof *image);
    if (!images)
        return MT_ENOMEM;
    recording->images = images;
    image = &recording->images[recording->n_images++];
    *image = (struct mt_image){
        .pid = event->field[0],
        .parent_pid = event->field[1],
        .start_ns = event->field[2],
        .high_water_bytes = MT_UNKNOWN,
    };
    const char *command = name_of(pass, event->field[3]);
    return set_command(image, command, strlen(command));
}

static int end_process(struct pass *pass, const struct mt_event *event)
{
    uint64_t ns = mt_clock_ns(pass->clock, event->ticks);
    struct mt_image *image = mt_image_at(pass->recording, event->field[0], ns);
    if (!image)
        return 0;
    image->end_how = (uint32_t)event->field[1];
    image->end_value = event->field[2];
    image->end_ns = ns;
    return 0;
}

static int sample_process(struct pass *pass, const struct mt_event *event)
{
    uint64_t ns = mt_clock_ns(pass->clock, event->ticks);
    struct mt_image *image = mt_image_at(pass->recording, event->field[0], ns);
    if (!image)
        return 0;
    raise_high_water(image, event->field[2]);
    return add_point(image, ns, event->field[1]);
}

static int take(struct pass *pass, const struct mt_event *event)
{
    struct mt_picture *picture = &pass->picture;
    switch (event->op) {
    case MT_EVENT_STRING:
        return keep_name(pass, event);
    case MT_EVENT_MARK:
        return add_mark(pass, event);
    case MT_EVENT_LOOK:
        return pass->image
                   ? add_point(pass->image, mt_clock_ns(pass->clock, event->ticks), event->field[0])
                   : 0;
    case MT_EVENT_PICTURE_BEGIN:
        return begin_picture(pass, event);
    case MT_EVENT_PICTURE_TEXT:
        if (!pass->open || event->field[0] > MT_TEXT_MEMINFO)
            return 0;
        return append(&picture->text[event->field[0]], event->bytes, event->length);
    case MT_EVENT_PICTURE_RUNS:
        return pass->open ? add_runs(pass, event) : 0;
    case MT_EVENT_PICTURE_END:
        return pass->open ? end_picture(pass, event) : 0;
    case MT_EVENT_MACHINE:
        if (pass->image)
            return event->field[0] == MT_MACHINE_COMMAND && !pass->image->command
                       ? set_command(pass->image, event->bytes, event->length)
                       : 0;
        return add_machine(pass, event);
    case MT_EVENT_PROCESS:
        return pass->image ? 0 : see_process(pass, event);
    case MT_EVENT_PROCESS_END:
        return pass->image ? 0 : end_process(pass, event);
    case MT_EVENT_PROCESS_SAMPLE:
        return pass->image ? 0 : sample_process(pass, event);
    case MT_EVENT_OUTSIDE_ONLY: {
        struct mt_image *image = mt_image_at(pass->recording, event->field[0], UINT64_MAX);
        if (image && !pass->image)
            image->outside_reason = event->field[1];
        return 0;
    }
    default:
        return 0;
    }
}

static void finish_stream(struct pass *pass)
{
    mt_picture_finish(&pass->picture);
    mt_table_finish(&pass->names);
    for (size_t i = 0; i < pass->n_texts; i++)
        free(pass->texts[i].data);
    free(pass->texts);
    pass->texts = NULL;
    pass->n_texts = 0;
    pass->open = 0;
}

static int read_stream(struct pass *pass, size_t first, size_t end)
{
    struct mt_cursor cursor;
    struct mt_event event;
    int result = 0;
    mt_cursor_init(&cursor, pass->file, first, end);
    while (result == 0 && mt_cursor_next(&cursor, &event))
        result = take(pass, &event);
    pass->recording->damage.blocks_bad += cursor.blocks_bad;
    finish_stream(pass);
    return result;
}

static int read_file(struct pass *pass)
{
    const struct mt_record_file *file = pass->file;
    int result = 0;
    for (size_t first = 0; first < file->n_blocks && result == 0;) {
        size_t end = first + 1;
        while (end < file->n_blocks &&
               file->blocks[end].header.stream == file->blocks[first].header.stream)
            end++;
        result = read_stream(pass, first, end);
        first = end;
    }
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
    return read_file(&pass);
}

int mt_facts_of_watch(struct mt_recording *recording)
{
    struct pass pass = {
        .recording = recording,
        .file = recording->watch,
        .clock = &recording->watch_clock,
    };
    return read_file(&pass);
}
