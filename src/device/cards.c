/* SPDX-License-Identifier: MIT */
/* Cards under /sys/class/drm: card0, card1; what is attached to them (card0-HDMI-A-1) is none. */
#include "device/cards.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct look {
    const struct mt_host_os *os;
    struct mt_cards *cards;
};

/* Whether it drives devices of AMD or Intel, whose memory the recorder does not see. */
static int is_unseen(const char *driver)
{
    static const char *const drivers[] = {"amdgpu", "radeon", "i915", "xe"};
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (strcmp(driver, drivers[i]) == 0)
            return 1;
    return 0;
}

static void append(char text[MT_CARDS_BYTES], const char *driver, const char *name)
{
    size_t length = strlen(text);
    int n = snprintf(text + length, MT_CARDS_BYTES - length, "%s%.40s (%s)", length ? ", " : "",
                     driver, name);
    if (n < 0 || (size_t)n >= MT_CARDS_BYTES - length)
        text[length] = '\0';
}

static int add_card(void *context, const char *name)
{
    struct look *look = context;
    char path[128];
    char target[PATH_MAX];
    if (strncmp(name, "card", 4) != 0 || !name[4] ||
        strspn(name + 4, "0123456789") + 4 < strlen(name))
        return 0;
    int used = snprintf(path, sizeof path, "/sys/class/drm/%s/device/driver", name);
    if (used < 0 || (size_t)used >= sizeof path)
        return 0;
    long n = look->os->read_link(look->os->context, path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(target, '/');
    const char *driver = slash ? slash + 1 : "unknown driver";
    append(look->cards->all, driver, name);
    if (is_unseen(driver))
        append(look->cards->unseen, driver, name);
    return 0;
}

int mt_cards_read(const struct mt_host_os *os, struct mt_cards *cards)
{
    struct look look = {os, cards};
    *cards = (struct mt_cards){{0}, {0}};
    return os->list(os->context, "/sys/class/drm", add_card, &look);
}
