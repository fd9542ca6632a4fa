/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon's flags as one table: name, variable, kind, default and text. From it come the parser,
 * --help and the checks of man pages. */
#ifndef VGPU_FLAGS_FLAG_TABLE_H
#define VGPU_FLAGS_FLAG_TABLE_H

#include "flags/flag_row.h"
#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct flag_table {
    const char *usage; /* what stands before the flags in --help */
    const char *notes; /* what stands behind them; may be NULL */
    const struct flag_row *rows;
    size_t count; /* 64 at most for ret_given */
};

enum flag_action {
    FLAG_RUN,
    FLAG_HELP,
    FLAG_VERSION,
};

/* `report` gets one line for each flag that was given and has no effect. */
typedef void flag_report(void *context, const char *line);

struct flag_reader {
    flag_report *report; /* may be NULL */
    void *context;
    uint64_t *ret_given; /* a bit for each row that was given; may be NULL */
};

/* Fills the struct from the defaults, over them the environment (an empty variable is as if it were
 * not set), over it the arguments: "--name=value", "--name value", a switch also alone; one dash as
 * well. Returns 0, or -EINVAL with one line: name, value, what is accepted. */
int flag_table_read(const struct flag_table *table, void *to, int argc, char *const *argv,
    const struct flag_reader *reader, enum flag_action *ret_action, struct error *error)
    __attribute__((warn_unused_result));

/* The row's bit in `ret_given`. The name is one of the table's. */
uint64_t flag_table_bit(const struct flag_table *table, const char *name);

void flag_table_print_help(const struct flag_table *table, FILE *file);

#endif
