/* SPDX-License-Identifier: Apache-2.0 */
/* The table of vgpu-device-plugin's flags. */
#ifndef VGPU_NODE_SETTINGS_FLAGS_H
#define VGPU_NODE_SETTINGS_FLAGS_H

#include "net/error.h"
#include "node/settings.h"

enum settings_kind {
    SETTINGS_KIND_TEXT, /* visible characters, shorter than `size` */
    SETTINGS_KIND_PATH, /* absolute, or "" */
    SETTINGS_KIND_BOOL,
    SETTINGS_KIND_COUNT,      /* int64_t, 1 to NODE_CONFIG_SPLIT_MAX */
    SETTINGS_KIND_SCALING,    /* double, above 0, up to 100 */
    SETTINGS_KIND_STRATEGIES, /* of enum settings_list_strategy, by commas */
    SETTINGS_KIND_CHOICE,     /* bool: the second of the two words in `accepted` */
    SETTINGS_KIND_ONLY,       /* a word of `accepted`; changes nothing */
    SETTINGS_KIND_UNUSED,     /* HAMi's; its value is not read, `help` says why */
    SETTINGS_KIND_QUIET,      /* the same without a line, for what its chart gives always */
};

struct settings_flag {
    const char *name, *alias;              /* alias may be NULL */
    const char *variable, *variable_alias; /* may be NULL */
    enum settings_kind kind;
    size_t offset, size;
    const char *value;    /* the default as text */
    const char *accepted; /* of words */
    const char *help;
};

extern const struct settings_flag settings_flags[];
extern const size_t settings_flag_count;

/* The row of a name, without dashes, of `length` bytes; NULL. */
const struct settings_flag *settings_flag_find(const char *name, size_t length);

/* Whether it may stand without a value. */
bool settings_flag_is_switch(const struct settings_flag *flag);

/* Takes a value; `shown` is how the line names it ("--mig-strategy", "MIG_STRATEGY"). */
int settings_flag_take(const struct settings_flag *flag, const char *shown, const char *value,
    struct node_settings *settings, struct error *error) __attribute__((warn_unused_result));

#endif
