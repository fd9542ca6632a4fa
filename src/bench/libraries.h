/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries that are compared, as the arguments name them. */
#ifndef VGPU_BENCH_LIBRARIES_H
#define VGPU_BENCH_LIBRARIES_H

#include "bench/results/results.h"

#include <stdbool.h>

/* Stands for this library's path, and is then its label. */
#define BENCH_OWN "vgpu"

/* Adds the subject that "PATH[,NAME=VALUE...]" names; false after one line where it is off. */
bool bench_library_add(struct bench_results *asked, const char *argument);

/* Names the subject that was added last; false after one line. */
bool bench_library_label(struct bench_results *asked, const char *label);

#endif
