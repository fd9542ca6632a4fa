/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the ledger with the resource manager's own figure for this process, and tells which GPU
 * a device object stands for: controls on the program's own objects, a few microseconds each. */
#ifndef VGPU_RM_RM_AUDIT_H
#define VGPU_RM_RM_AUDIT_H

#include "rm/rm_ioctl.h"

#include <stdbool.h>
#include <stdint.h>

/* The region's index of the device object's GPU, asked of the driver once; RM_DEVICE_UNKNOWN where
 * it cannot be told. */
int rm_device_index(int fd, uint32_t client, uint32_t device_handle, rm_ioctl_function *next);

/* Whether it can be asked which GPU a subdevice is on: a sandbox may refuse the ioctl. */
bool rm_device_may_be_asked(int fd, uint32_t client, uint32_t subdevice, rm_ioctl_function *next);

enum rm_audited {
    RM_AUDIT_NOT_DONE, /* not due, or another thread's allocation was on its way */
    RM_AUDIT_BLIND,    /* the driver gives no figure of this process */
    RM_AUDIT_DONE,
};

/* Audits the device at most once a second; `now` true: at once (after imports changed, which no
 * event of ours would tell). The larger figure counts. */
enum rm_audited rm_audit(
    int fd, uint32_t client, uint32_t device_handle, bool now, rm_ioctl_function *next);

/* Whether the device's last audit is a second old: the cheap first question. */
bool rm_audit_is_due(unsigned device);

/* Whether an audit of this process was done yet: the driver gives a figure to compare with. */
bool rm_audit_has_figure(void);

/* What the audit last found, for tools and tests. */
struct rm_audit {
    uint64_t count;         /* audits done */
    uint64_t ledger_bytes;  /* ours, of the last audit */
    uint64_t manager_bytes; /* the resource manager's */
    uint64_t differences;   /* audits in which they were not equal */
};
void rm_audit_last(struct rm_audit *ret_audit);

void rm_audit_reset(void);

#endif
