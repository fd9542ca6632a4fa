/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that a subject's processes get beside LD_PRELOAD: what was asked for, and what is
 * set for every library. Runs set them, and reports list them. */
#ifndef VGPU_BENCH_RESULTS_SETTINGS_H
#define VGPU_BENCH_RESULTS_SETTINGS_H

#include "bench/results/results.h"

/* What stands for something in a value, and is filled in for each process. */
#define BENCH_WORD_BYTES "{bytes}"     /* the memory limit */
#define BENCH_WORD_MIB "{mib}"         /* the same */
#define BENCH_WORD_PERCENT "{percent}" /* the compute limit */
#define BENCH_WORD_REGION "{region}"   /* a file of the container's own */
#define BENCH_WORD_BOARD "{board}"     /* a directory that containers beside each other share */

/* Each name once: an asked one replaces what would be set. The list is to be freed, the texts are
 * the subject's or static. Of native it is empty. */
struct bench_setting *bench_settings_of(const struct bench_subject *subject, size_t *ret_count);

/* Whether a value that is set has the word. */
bool bench_settings_have(const struct bench_subject *subject, const char *word);

#endif
