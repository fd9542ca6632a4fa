/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of resource-manager objects that this process allocated, with the device memory that
 * each one stands for. Pure bookkeeping: no ioctl, no charge; its caller (rm/rm_memory.c) does
 * both. Any thread; one lock inside, held for a few instructions.
 *
 * Memory may have several handles (RM_DUP_OBJECT): its bytes go with the last of them. */
#ifndef VGPU_RM_RM_LEDGER_H
#define VGPU_RM_RM_LEDGER_H

#include "account/account.h"

#include <stdbool.h>
#include <stdint.h>

#define RM_DEVICE_UNKNOWN (-1)
#define RM_EXPORT_FDS 4

/* A descriptor that memory was exported to: the file that was open there then. */
struct rm_export_fd {
    int fd;          /* -1: none */
    uint32_t number; /* of the export: another one to the same descriptor has another */
    bool is_dmabuf;  /* the kernel holds the memory; no process of CUDA imports it */
};

/* A memory that left the ledger with its last handle. */
struct rm_freed {
    unsigned device; /* index into the region's devices */
    uint64_t bytes;
    enum account_kind kind;
    bool exported;                          /* a descriptor or another process may hold it */
    bool importable;                        /* another process may */
    struct rm_export_fd fds[RM_EXPORT_FDS]; /* it was last exported to */
};

struct rm_subtree; /* objects taken out of the ledger while the driver frees them */

/* Empties the ledger without a lock: the start of a process or of a forked child. */
void rm_ledger_reset(void);

/* A client that this process allocated. Returns 0 or -ENOMEM. */
int rm_ledger_add_client(uint32_t client) __attribute__((warn_unused_result));
bool rm_ledger_knows_client(uint32_t client);

/* An object below `parent`; parents that are not known hang it below the client. bytes > 0: device
 * memory on `device`. Returns 0 or -ENOMEM. */
int rm_ledger_add(uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id,
    uint64_t bytes, unsigned device, enum account_kind kind) __attribute__((warn_unused_result));

/* Another handle on (client_src, object_src) where that is device memory of ours. Returns true if
 * it is; false: the memory is another process's (an import). */
bool rm_ledger_add_duplicate(
    uint32_t client, uint32_t parent, uint32_t object, uint32_t client_src, uint32_t object_src);

/* Notes that the object was exported; to.fd -1: by handle, not by descriptor. Returns the bytes
 * that other processes may import from now on and could not before, and their device. */
uint64_t rm_ledger_mark_exported(
    uint32_t client, uint32_t object, struct rm_export_fd to, unsigned *ret_device);

/* The object's class; 0 where it is not known. */
uint32_t rm_ledger_class(uint32_t client, uint32_t object);

/* The object's ancestor of class RM_CLASS_DEVICE (or itself): its handle; 0 where there is none. */
uint32_t rm_ledger_device_handle(uint32_t client, uint32_t object);

/* The region's device index kept with a device object, RM_DEVICE_UNKNOWN where not told yet. */
int rm_ledger_device_index(uint32_t client, uint32_t device_handle);
void rm_ledger_set_device_index(uint32_t client, uint32_t device_handle, int index);

/* A subdevice below the device object; 0 where there is none. */
uint32_t rm_ledger_subdevice_handle(uint32_t client, uint32_t device_handle);

/* Takes the object and all below it out, before the driver is asked to free it (its handles may be
 * given out again at once). NULL where it is not known. */
struct rm_subtree *rm_ledger_detach(uint32_t client, uint32_t object);

/* The driver refused: back as it was. NULL is accepted. */
void rm_ledger_attach(struct rm_subtree *subtree);

/* The driver freed it: calls `freed` for each memory whose last handle it was, then forgets it. */
void rm_ledger_drop(struct rm_subtree *subtree,
    void (*freed)(const struct rm_freed *memory, void *context), void *context);

/* Bytes of live memory on the device, and a number that changes whenever the ledger does. */
uint64_t rm_ledger_bytes(unsigned device, uint64_t *ret_version);

/* Handles on memory of other processes. */
unsigned rm_ledger_imports(void);
void rm_ledger_add_import(uint32_t client, uint32_t parent, uint32_t object);

#endif
