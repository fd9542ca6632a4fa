/* SPDX-License-Identifier: Apache-2.0 */
/* Values that people write: sizes, percentages, lists. Pure functions, no locale, no allocation. */
#ifndef VGPU_BASE_PARSE_H
#define VGPU_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What parse_size accepts, for messages. */
#define PARSE_SIZE_ACCEPTED                                                                        \
    "a number with an optional k, m, g or t (1024-based), as 2048m, 1.5g or 2GiB"
#define PARSE_PRIORITY_ACCEPTED "a whole number, 0 for high priority and 1 or more for lower"
#define PARSE_SECONDS_ACCEPTED "a whole number of seconds"
#define PARSE_PERCENT_ACCEPTED "a whole number of percent from 0 to 100"

/* A size in bytes: decimal digits, an optional fraction, an optional unit k, m, g or t in either
 * case that may be followed by i, b or ib; blanks around are ignored. Returns 0, -EINVAL where the
 * text is none of this (empty and negative too) or less than a byte but not 0, which would mean no
 * limit; -ERANGE above 2^63-1. */
int parse_size(const char *text, uint64_t *ret_bytes) __attribute__((warn_unused_result));

/* The same as vgpu-controller reads its own variables: letters behind the unit's are ignored
 * ("1000mx"). */
int parse_size_loosely(const char *text, uint64_t *ret_bytes) __attribute__((warn_unused_result));

/* A whole number from 0 up. Returns 0, -EINVAL or -ERANGE (above `max`). */
int parse_number(const char *text, uint64_t max, uint64_t *ret_number)
    __attribute__((warn_unused_result));

/* The value of the digits that the text begins with, 0 where there are none; no bound is checked.
 * (The C library's strtoull is a symbol of glibc 2.38 where it is compiled against that.) */
uint64_t parse_digits(const char *text);

/* Truth as HAMi-core's and vgpu-controller's variables spell it: 1, true, on, yes in any case. */
bool parse_true(const char *text);

/* Takes the next item of a comma list: copies it without its blanks into `item` and moves *list
 * behind it. Returns false at the end. An item longer than the buffer is cut to fit and ends in
 * "...", which no parser takes. */
bool parse_list_next(const char **list, char *item, size_t item_bytes);

#endif
