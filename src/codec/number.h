/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers and truth values inside annotations, with the spelling that the other writers of
 * the protocol use (Go's strconv): no blanks, no locale. Pure. */
#ifndef VGPU_CODEC_NUMBER_H
#define VGPU_CODEC_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits with an optional sign, all of `length` bytes. Returns 0, -EINVAL where the text is
 * no such number, -ERANGE where it is not in [min, max]. */
int number_parse(const char *text, size_t length, int64_t min, int64_t max, int64_t *ret_number)
    __attribute__((warn_unused_result));

/* 1 t T TRUE true True, 0 f F FALSE false False. Returns 0, or -EINVAL for anything else. */
int number_parse_bool(const char *text, size_t length, bool *ret_truth)
    __attribute__((warn_unused_result));

#endif
