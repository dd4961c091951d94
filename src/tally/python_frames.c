/* SPDX-License-Identifier: MIT */
/* Python's frames among a stack's native ones. */
#include "tally/python_frames.h"

#include <string.h>

#include "recording/format.h"

/* The interpreter's loop: native code that runs Python functions up to one that it was entered for.
 */
static int is_loop(const char *name)
{
    return strncmp(name, "_PyEval_EvalFrame", strlen("_PyEval_EvalFrame")) == 0;
}

int mt_is_python_frame(uint64_t frame)
{
    return frame >> 62 == MT_FRAME_PYTHON >> 62;
}

struct counts {
    size_t n_native;
    size_t n_loops;
    size_t n_entries;
    size_t first_loop; /* n_native where there is none */
};

static struct counts count(const uint64_t *frames, const char *const *names, size_t n)
{
    struct counts counts = {0};
    while (counts.n_native < n && !mt_is_python_frame(frames[counts.n_native]))
        counts.n_native++;
    counts.first_loop = counts.n_native;
    for (size_t i = counts.n_native; i-- > 0;)
        if (is_loop(names[i])) {
            counts.n_loops++;
            counts.first_loop = i;
        }
    for (size_t i = counts.n_native; i < n; i++)
        counts.n_entries += (frames[i] & MT_FRAME_ENTERED) != 0;
    return counts;
}

/* Each loop gives its place to the functions that it ran. */
static size_t weave(const uint64_t *frames, const char **names, size_t n, size_t n_native)
{
    const char *woven[MT_MAX_FRAMES];
    size_t python = n_native;
    size_t made = 0;
    for (size_t i = 0; i < n_native; i++) {
        if (!is_loop(names[i])) {
            woven[made++] = names[i];
            continue;
        }
        while (python < n) {
            woven[made++] = names[python];
            if (frames[python++] & MT_FRAME_ENTERED)
                break;
        }
    }
    memcpy(names, woven, made * sizeof *names);
    return made;
}

/* Where native frames are missing, what is left of them outside of the first loop cannot be told
 * apart from it and goes. */
size_t mt_python_frames_place(const uint64_t *frames, const char **names, size_t n)
{
    const struct counts counts = count(frames, names, n);
    if (counts.n_native == n || n > MT_MAX_FRAMES)
        return n;
    if (counts.n_loops == counts.n_entries)
        return weave(frames, names, n, counts.n_native);
    size_t n_python = n - counts.n_native;
    memmove(&names[counts.first_loop], &names[counts.n_native], n_python * sizeof *names);
    return counts.first_loop + n_python;
}
