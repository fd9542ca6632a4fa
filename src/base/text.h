/* SPDX-License-Identifier: Apache-2.0 */
/* Text of others (values, paths, names) on its way into a line of ours: it must not end the line,
 * begin one of its own, or steer a terminal. */
#ifndef VGPU_BASE_TEXT_H
#define VGPU_BASE_TEXT_H

#include <stddef.h>

/* Copies `length` bytes with each control character and each byte that is no well-formed UTF-8
 * written as \n, \t, \r or \xHH. Stops before what does not fit whole, and terminates. Returns the
 * target's length. Does not allocate; `size` is at least 1. */
size_t text_escape(char *target, size_t size, const char *text, size_t length);

#endif
