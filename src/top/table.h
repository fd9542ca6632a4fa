/* SPDX-License-Identifier: Apache-2.0 */
/* The table of vgpu top as text: for the screen, and for the plain form (--batch). */
#ifndef VGPU_TOP_TABLE_H
#define VGPU_TOP_TABLE_H

#include "top/model.h"
#include "top/text.h"

#define TOP_WIDTH_MAX 512 /* columns; a wider terminal's rest stays empty */

enum top_column {
    TOP_NAME,
    TOP_DEVICE,
    TOP_MEMORY,
    TOP_SPILLED,
    TOP_LIMIT,
    TOP_NOW,
    TOP_MINUTE,
    TOP_MOST,
    TOP_PRIORITY,
    TOP_STATE,
    TOP_GRAPH,
    TOP_COLUMNS
};

/* How many columns of the terminal each has; 0: it is left out. */
struct top_layout {
    unsigned widths[TOP_COLUMNS];
};

/* For a table so wide; what is asked for least is left out first. 0: as wide as its names are. */
void top_table_lay_out(
    const struct top_model *model, unsigned width, struct top_layout *ret_layout);

/* One line without its end, terminated; `line` has TOP_TEXT_BYTES(TOP_WIDTH_MAX). */
void top_table_header(const struct top_model *model, const struct top_layout *layout, char *line);
void top_table_row(const struct top_model *model, const struct top_layout *layout,
    const struct top_row *row, char *line);

/* "13 containers, 45 processes, 2 throttled, 1 paused", and what is not shown. */
void top_table_summary(const struct top_model *model, char *text, size_t size);

/* What is said of a GPU beside its graph: "GPU-1b7e..  93 %  40.2GiB of 139.8GiB  3 containers". */
void top_table_gpu(const struct top_gpu *gpu, char *text, size_t size);

/* "12.3", "100"; "-" where it cannot be told. */
void top_table_share(double share, char *text, size_t size);

/* A row's name as it is printed: the container's, or pid and command line; escaped. */
void top_table_name(const struct top_row *row, char *text, size_t size);

#endif
