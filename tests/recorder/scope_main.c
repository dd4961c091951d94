/* SPDX-License-Identifier: MIT */
/* A C program that uses scope.h directly or through a library. */
#include <stdio.h>

#include "recorder/scope_user.h"

int main(void)
{
    printf("%d calls\n", use_scopes("from C"));
    return 0;
}
