/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what settings.h holds. */
#ifndef VGPU_NODE_SETTINGS_READ_H
#define VGPU_NODE_SETTINGS_READ_H

#include "flags/flag_table.h"
#include "node/settings.h"

/* Reads the environment, over it the arguments (argv[1] and following); no file yet. `report` gets
 * one line for each accepted flag that has no effect here. Returns 0, or -EINVAL with one line:
 * name, value, what is accepted. The caller finishes it in any case. */
int node_settings_read(struct node_settings *ret_settings, int argc, char *const *argv,
    enum flag_action *ret_action, flag_report *report, void *context, struct error *error)
    __attribute__((warn_unused_result));

/* Reads config_file and node_config_file into `config`. A file that is not there is none, unless it
 * was named. A bad value is one line to `report`, and stays as it was; a file that cannot be read
 * or parsed, or a mode that vgpu does not have, is -EINVAL, and `config` is then as before. */
int node_settings_load(struct node_settings *settings, node_config_report *report, void *context,
    struct error *error) __attribute__((warn_unused_result));

void node_settings_finish(struct node_settings *settings);

#endif
