/* SPDX-License-Identifier: Apache-2.0 */
/* A program's flags as one table: name, variable, kind, default and text. From it come the parser,
 * --help and the checks of man pages. */
#ifndef VGPU_DAEMON_FLAG_TABLE_H
#define VGPU_DAEMON_FLAG_TABLE_H

#include "net/error.h"

#include <stddef.h>
#include <stdio.h>

enum flag_kind {
    FLAG_TEXT,     /* char[]: visible characters */
    FLAG_PATH,     /* char[]: absolute, or "" */
    FLAG_BOOL,     /* bool */
    FLAG_DURATION, /* int64_t nanoseconds, 0 and above */
    FLAG_NUMBER,   /* int32_t, -1 and above */
    FLAG_WORD,     /* char[]: one of the words in `accepted` */
    FLAG_UNUSED,   /* accepted; `help` says in one line why it has no effect */
    FLAG_SWITCH,   /* the same for one that may stand without a value */
};

struct flag_row {
    const char *name, *variable; /* variable may be NULL */
    enum flag_kind kind;
    size_t offset, size; /* of the member */
    const char *value;   /* the default as text */
    const char *accepted;
    const char *help;
};

struct flag_table {
    const char *usage; /* what stands before the flags in --help */
    const struct flag_row *rows;
    size_t count;
};

enum flag_action {
    FLAG_RUN,
    FLAG_HELP,
    FLAG_VERSION,
};

/* Fills the struct from the defaults, over them the environment (an empty variable is as if it were
 * not set), over it the arguments: "--name=value", "--name value", a switch also alone; one dash as
 * well. `report` gets one line for each flag that has no effect. Returns 0, or -EINVAL with one
 * line: name, value, what is accepted. */
int flag_table_read(const struct flag_table *table, void *to, int argc, char *const *argv,
    void (*report)(const char *line), enum flag_action *ret_action, struct error *error)
    __attribute__((warn_unused_result));

void flag_table_print_help(const struct flag_table *table, FILE *file);

#endif
