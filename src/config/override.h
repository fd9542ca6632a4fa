/* SPDX-License-Identifier: Apache-2.0 */
/* /overrideEnv: variables that go before the environment's, as HAMi-core reads them. Lines of
 * NAME=VALUE; blank ones and those that begin with "#" say nothing, blanks around name and value do
 * not count, and of a name that comes twice the last holds. Only this library's variables are
 * looked up in it: the program's own environment is not changed.
 *
 * The file is the container's administrator's: one that is not a regular file of root's (or of the
 * process's own user), or that others may write, is not read, with a warning. One that is, and
 * cannot be understood, may have set a limit: memory then fails closed. */
#ifndef VGPU_CONFIG_OVERRIDE_H
#define VGPU_CONFIG_OVERRIDE_H

#include <stdbool.h>

#define OVERRIDE_PATH "/overrideEnv"
#define OVERRIDE_BYTES 16384 /* a larger file is not understood */
#define OVERRIDE_LINES 256

/* Reads the file in place of what was read before. False where it could not be understood; one log
 * line each says why. No file: nothing is overridden, and true. One thread at a time; keeps errno.
 * It takes a look by the name, and no more where there is no file. */
bool override_read(const char *path) __attribute__((warn_unused_result));

/* The value by name, "" where it is set to nothing, NULL where the file does not name it: getenv's
 * contract. It lasts until the next override_read. */
char *override_find(const char *name);

/* All lines as environ(7) has them. */
char *const *override_lines(void);

#endif
