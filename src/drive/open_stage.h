/* SPDX-License-Identifier: MIT */
/* The inside of a stage that other programs opened. */
#ifndef DRIVE_OPEN_STAGE_H
#define DRIVE_OPEN_STAGE_H

#include "drive/stage.h"

struct mt_stage {
    struct mt_drive_stage drive;
};

#endif
