/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is shared with other processes: exported by descriptor or by handle, imported.
 *
 * Freeing exported memory does not make it free while others hold it. Seen on an H200 (580.159.04):
 * the driver counts it for the owner until it frees it, then for the importer that is left, and for
 * nobody while only a descriptor holds it. So bytes freed here after an export stay charged while
 * the descriptor is open in this process, and after that "linger": they count as far as other
 * processes of the container hold imports (account/account_charge.c), whose audits then find them.
 */
#ifndef VGPU_RM_RM_EXPORT_H
#define VGPU_RM_RM_EXPORT_H

#include "rm/rm_call.h"
#include "rm/rm_ledger.h"

#include <stdbool.h>
#include <stdint.h>

/* RM_CONTROL and RM_SHARE, carried out; exports and imports among them are noted. */
int rm_export_control(const struct rm_call *call);
int rm_export_share(const struct rm_call *call);

/* RM_EXPORT_TO_DMABUF, carried out: the kernel holds what goes into the dma-buf, whose descriptor
 * counts as one that memory was exported to. Another holder of the dma-buf, as an RDMA adapter's
 * driver may when it is closed here, is not seen. */
int rm_export_dmabuf(const struct rm_call *call);

/* A handle (client, object) on another process's memory came to be. */
void rm_export_imported(
    int fd, uint32_t client, uint32_t parent, uint32_t object, rm_ioctl_function *next);

/* Memory was, or is about to be, exported to the descriptor: what is open there now. -1 where
 * nothing is. */
struct rm_export_fd rm_export_to(int fd);

/* Exported memory was freed by its owner. While one of its descriptors is open here its bytes stay
 * charged, until rm_export_sweep; else they are given back, and linger where another process may
 * have imported them. */
void rm_export_freed(const struct rm_freed *memory);

/* Gives back what was kept for descriptors that are closed by now; false where that is nothing. */
bool rm_export_sweep(void);

void rm_export_reset(void);

#endif
