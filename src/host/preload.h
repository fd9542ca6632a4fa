/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a library before a program that is to be started. */
#ifndef VGPU_HOST_PRELOAD_H
#define VGPU_HOST_PRELOAD_H

#include <stdbool.h>

/* Puts `value` in front of the environment's list `variable`. */
void preload_first(const char *variable, const char *value, char separator);

/* Why the loader would not preload the library at `path`, in words that follow its name; NULL where
 * it would. Loads it into this process. The answer lasts until the next call. */
const char *preload_obstacle(const char *path);

/* Whether a word of the loader's list names this library, by either of its names: libvgpu.so and
 * libvgpu-control.so, in whatever directory. */
bool preload_names_library(const char *word);

#endif
