/* SPDX-License-Identifier: Apache-2.0 */
/* The table of mapped handles. */
#ifndef VGPU_HOOK_VMM_H
#define VGPU_HOOK_VMM_H

void vmm_reset(void);

#endif
