/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs that stand above and below the table on the screen. */
#ifndef VGPU_TOP_GRAPHS_H
#define VGPU_TOP_GRAPHS_H

#include "top/model.h"

/* One line of a GPU's graph and, on its first one, what is said of the GPU. `line` of `lines`, from
 * above. `text`: TOP_TEXT_BYTES(TOP_WIDTH_MAX). */
void top_graph_gpu(const struct top_model *model, const struct top_gpu *gpu, unsigned width,
    unsigned line, unsigned lines, char *text);

/* The selected container: what is said of it, above its graphs. */
void top_graph_caption(
    const struct top_model *model, uint64_t delay_ns, unsigned width, char *text);

/* One line of the graphs of its GPU time and its memory, side by side, with their scales. */
void top_graph_detail(
    const struct top_model *model, unsigned width, unsigned line, unsigned lines, char *text);

#endif
