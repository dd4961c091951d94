/* SPDX-License-Identifier: MIT */
/* To come. */
typedef int mt_to_come;
