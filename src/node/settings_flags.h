/* SPDX-License-Identifier: Apache-2.0 */
/* The table of vgpu-device-plugin's flags, which fills a struct node_settings. */
#ifndef VGPU_NODE_SETTINGS_FLAGS_H
#define VGPU_NODE_SETTINGS_FLAGS_H

#include "flags/flag_table.h"
#include "node/settings.h"

extern const struct flag_table settings_flag_table;

#endif
