/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of vgpu-controller that are not acted on: what they hold must not be missing without a
 * word. */
#ifndef VGPU_CONFIG_CONFIG_ACCEPTED_H
#define VGPU_CONFIG_CONFIG_ACCEPTED_H

#define CONFIG_CONTROLLER_FILE "/etc/vgpu-manager/vgpu.config"

/* One warning where vgpu-controller's file of settings lies at `file`. */
void config_accepted_check(const char *file);

#endif
