/* SPDX-License-Identifier: MIT */
/* A library that can be preloaded and does nothing. */
int rehearsed_nothing(void);

int rehearsed_nothing(void)
{
    return 0;
}
