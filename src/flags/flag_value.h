/* SPDX-License-Identifier: Apache-2.0 */
/* One flag's value: from text into its member. */
#ifndef VGPU_FLAGS_FLAG_VALUE_H
#define VGPU_FLAGS_FLAG_VALUE_H

#include "flags/flag_row.h"

#include <stdbool.h>
#include <stddef.h>

/* `to` is the row's member. False where the text is not accepted. */
bool flag_value_take(const struct flag_row *row, const char *text, void *to)
    __attribute__((warn_unused_result));

/* What it accepts, as a part of a sentence. */
void flag_value_describe(const struct flag_row *row, char *text, size_t size);

#endif
