/* SPDX-License-Identifier: MIT */
/* The reading thread. */
#include "output_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <memtally/error_code.h>

#include "base/fail_errno.h"
#include "base/ticks.h"

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int make_pipe(int *reading, int *writing)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    *reading = ends[0];
    *writing = ends[1];
    return 1;
}

int mt_profile_reader_open(struct mt_profile_reader *reader, struct mt_profile_job *job,
                           struct mt_error *error)
{
    *reader = (struct mt_profile_reader){
        .job = job, .streams = {-1, -1}, .writers = {-1, -1}, .wake = {-1, -1}};
    if (!make_pipe(&reader->wake[0], &reader->wake[1]))
        return mt_fail_errno(error, errno, "cannot make a pipe");
    for (int i = 0; i < 2; i++) {
        if (!make_pipe(&reader->streams[i], &reader->writers[i]))
            return mt_fail_errno(error, errno, "cannot make a pipe");
        fcntl(reader->streams[i], F_SETFL, O_NONBLOCK);
    }
    return MT_OK;
}

static void log_line(struct mt_profile_reader *reader, const char *line, size_t length)
{
    fwrite(line, 1, length, reader->log);
    fputc('\n', reader->log);
    if (length > 0)
        snprintf(reader->tail[reader->n_tail++ % MT_PROFILE_TAIL_LINES], MT_PROFILE_TAIL_TEXT, "%s",
                 line);
}

static void take_line(void *context, const char *line, size_t length)
{
    struct mt_profile_reader *reader = context;
    const struct mt_profile_driver *driver = reader->job->engine->driver;
    if (!driver->take_line(reader->job, reader->current, line, length, reader->arrived_ns))
        log_line(reader, line, length);
}

/* Takes what is there of a stream, at most a piece. Returns 0 at its end. */
static int take_piece(struct mt_profile_reader *reader, enum mt_profile_stream stream)
{
    char piece[8192];
    ssize_t got = read(reader->streams[stream], piece, sizeof piece);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    reader->current = stream;
    reader->arrived_ns = mt_monotonic_ns();
    mt_profile_lines_feed(&reader->lines[stream], piece, (size_t)got, take_line, reader);
    return got > 0;
}

static void end_stream(struct mt_profile_reader *reader, enum mt_profile_stream stream)
{
    reader->current = stream;
    reader->arrived_ns = mt_monotonic_ns();
    mt_profile_lines_finish(&reader->lines[stream], take_line, reader);
    close_end(&reader->streams[stream]);
}

static void *read_streams(void *context)
{
    struct mt_profile_reader *reader = context;
    int woken = 0;
    while (reader->streams[0] >= 0 || reader->streams[1] >= 0) {
        struct pollfd ready[3] = {{.fd = reader->streams[0], .events = POLLIN},
                                  {.fd = reader->streams[1], .events = POLLIN},
                                  {.fd = woken ? -1 : reader->wake[0], .events = POLLIN}};
        int n = poll(ready, 3, woken ? 0 : -1);
        for (enum mt_profile_stream i = 0; i < 2; i++)
            if (ready[i].revents && !take_piece(reader, i))
                end_stream(reader, i);
        if (woken && n == 0)
            break;
        woken = woken || ready[2].revents;
    }
    for (enum mt_profile_stream i = 0; i < 2; i++)
        end_stream(reader, i);
    return NULL;
}

int mt_profile_reader_start(struct mt_profile_reader *reader, const char *log_path,
                            struct mt_error *error)
{
    close_end(&reader->writers[0]);
    close_end(&reader->writers[1]);
    reader->log = fopen(log_path, "we");
    if (!reader->log)
        return mt_fail_errno(error, errno, "%s", log_path);
    int failure = pthread_create(&reader->thread, NULL, read_streams, reader);
    if (failure)
        return mt_fail_errno(error, failure, "cannot start a thread");
    reader->running = 1;
    return MT_OK;
}

void mt_profile_reader_stop(struct mt_profile_reader *reader)
{
    if (!reader->running)
        return;
    close_end(&reader->wake[1]);
    pthread_join(reader->thread, NULL);
    reader->running = 0;
    fflush(reader->log);
}

void mt_profile_reader_close(struct mt_profile_reader *reader)
{
    mt_profile_reader_stop(reader);
    for (int i = 0; i < 2; i++) {
        close_end(&reader->streams[i]);
        close_end(&reader->writers[i]);
        close_end(&reader->wake[i]);
    }
    if (reader->log)
        fclose(reader->log);
    reader->log = NULL;
}
