/* SPDX-License-Identifier: Apache-2.0 */
/* One flag of a daemon: a row of its table (flags/flag_table.h). */
#ifndef VGPU_FLAGS_FLAG_ROW_H
#define VGPU_FLAGS_FLAG_ROW_H

#include <stddef.h>
#include <stdint.h>

enum flag_kind {
    FLAG_TEXT,     /* char[]: visible characters */
    FLAG_PATH,     /* char[]: absolute, or "" */
    FLAG_BOOL,     /* bool */
    FLAG_DURATION, /* int64_t nanoseconds, `least` and above */
    FLAG_NUMBER,   /* int32_t, -1 and above */
    FLAG_COUNT,    /* int64_t, from `least` to `most` */
    FLAG_SCALING,  /* double, above 0 and up to 100 */
    FLAG_WORD,     /* char[]: one of the words in `accepted` */
    FLAG_CHOICE,   /* bool: the second of the two words in `accepted` */
    FLAG_LIST,     /* unsigned: a bit for each of the words in `accepted`; several by commas */
    FLAG_ONLY,     /* one of the words in `accepted`; changes nothing */
    /* From here on the value is not read: */
    FLAG_UNUSED,       /* `help` says in one line why it has no effect, also to the log */
    FLAG_SWITCH,       /* the same for one that may stand without a value */
    FLAG_QUIET,        /* the same without a line in the log */
    FLAG_QUIET_SWITCH, /* and without a value */
};

struct flag_row {
    const char *name, *variable; /* variable may be NULL */
    enum flag_kind kind;
    size_t offset, size;  /* of the member */
    const char *value;    /* the default as text; NULL: the member is not set */
    const char *accepted; /* words, separated by one blank */
    const char *help;
    int64_t least, most;
    const char *alias, *variable_alias; /* former names; may be NULL */
};

#endif
