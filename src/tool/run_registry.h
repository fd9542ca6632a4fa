/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of the registries (docs/registry.md) for the containers of `vgpu run`. */
#ifndef VGPU_TOOL_RUN_REGISTRY_H
#define VGPU_TOOL_RUN_REGISTRY_H

/* Sees to it that the command's containers find a directory for their registries. One that the
 * environment names is left as it is. Else it is the library's default, which is made where it is
 * missing. Where that is not to be trusted or cannot be made it is one of this user's own, and
 * VGPU_BOARD_DIR is set to it; one line on stderr says so, or that there is none. On a simulated
 * machine, whose description is `sim` (NULL: a real one), it is one beside the machine, because
 * machines have devices of the same UUIDs. Before there are threads: it changes the umask for a
 * moment. */
void run_registry_choose(const char *sim);

#endif
