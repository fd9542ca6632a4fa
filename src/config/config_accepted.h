/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of vgpu-controller and its successors that are accepted and not acted on: what they ask
 * for, or hold, must not be missing without a word. */
#ifndef VGPU_CONFIG_CONFIG_ACCEPTED_H
#define VGPU_CONFIG_CONFIG_ACCEPTED_H

#define CONFIG_CONTROLLER_FILE "/etc/vgpu-manager/vgpu.config"

/* One warning where a variable asks for more memory than the card has, one line for each such
 * variable that is not understood, and one where vgpu-controller's file of settings lies at `file`.
 * `lookup` as for config_read. */
void config_accepted_check(char *(*lookup)(const char *name), const char *file);

#endif
