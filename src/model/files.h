/* SPDX-License-Identifier: MIT */
/* Files that models lie in, beside those of <memtally/model_file.h>. */
#ifndef MT_MODEL_FILES_H
#define MT_MODEL_FILES_H

#include <memtally/model_file.h>

/* The files of the folder open as *root. Paths and links in it are as to a process whose root it
 * is: none leads out. *root is borrowed, for as long as *files is used. Before Linux 5.6 nothing
 * can be opened there. */
void mt_model_files_within(const int *root, struct mt_model_files *files);

#endif
