/* SPDX-License-Identifier: Apache-2.0 */
/* Draws what vgpu top knows, on as many lines and columns as there are. */
#ifndef VGPU_TOP_SCREEN_H
#define VGPU_TOP_SCREEN_H

#include "top/keys.h"

#include <stdio.h>

/* What is neither the model's nor the keys'. */
struct top_notice {
    uint64_t silent_ns; /* how long a look has been on its way, if that is too long */
    bool is_changing;   /* an order is on its way */
    int look_error;     /* of the newest look; -errno */
};

/* Lays out and draws; sets input->page. Between top_terminal_begin and _end. */
void top_screen_draw(
    const struct top_model *model, struct top_input *input, const struct top_notice *notice);

/* The same as plain text: the GPUs and all rows. `width` 0: as wide as the names are. */
void top_screen_print(const struct top_model *model, unsigned width, FILE *stream);

#endif
