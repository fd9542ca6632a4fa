/* SPDX-License-Identifier: Apache-2.0 */
/* Exports and imports of device memory. */
#include "limit/rm_export.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/own_memory.h"
#include "limit/rm_audit.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define KEPT_MAX 1024

/* Freed memory that open descriptors of this process still hold. */
struct kept {
    struct rm_freed memory;
    dev_t device; /* the descriptors' file, to know it again */
    ino_t inode;
};

static struct {
    struct lock lock;
    unsigned count;
    struct kept entries[KEPT_MAX];
} kept;

void rm_export_reset(void)
{
    lock_reset(&kept.lock);
    kept.count = 0;
}

static bool descriptor_file(int fd, dev_t *ret_device, ino_t *ret_inode)
{
    struct stat status;
    bool open = fd >= 0 && file_status(fd, &status) == 0;
    if (open) {
        *ret_device = status.st_dev;
        *ret_inode = status.st_ino;
    }
    return open;
}

/* Nothing here holds it any more. */
static void let_go(const struct rm_freed *memory)
{
    account_release(memory->device, memory->bytes, memory->kind);
    account_add_exported(memory->device, -(int64_t)memory->bytes);
    account_add_lingering(memory->device, memory->bytes);
}

static void mark_exported(uint32_t client, uint32_t object, int fd)
{
    unsigned device;
    uint64_t bytes = rm_ledger_mark_exported(client, object, fd, &device);
    if (bytes)
        account_add_exported(device, (int64_t)bytes);
}

/* Forgets the descriptors that are closed, or `replaced_fd`, which holds another export by now;
 * true while one is left. */
static bool is_held(struct kept *entry, int replaced_fd)
{
    bool held = false;
    for (int i = 0; i < RM_EXPORT_FDS; i++) {
        int *fd = &entry->memory.fds[i];
        dev_t device;
        ino_t inode;
        bool open = *fd >= 0 && *fd != replaced_fd && descriptor_file(*fd, &device, &inode) &&
                    (!entry->inode || (device == entry->device && inode == entry->inode));
        if (!open) {
            *fd = -1;
            continue;
        }
        entry->device = device;
        entry->inode = inode;
        held = true;
    }
    return held;
}

void rm_export_freed(const struct rm_freed *memory)
{
    struct kept entry = {.memory = *memory};
    bool keeps = is_held(&entry, -1);
    if (keeps) {
        lock_take(&kept.lock);
        keeps = kept.count < KEPT_MAX;
        if (keeps) {
            kept.entries[kept.count] = entry;
            store_relaxed(&kept.count, kept.count + 1);
        }
        lock_release(&kept.lock);
    }
    if (!keeps)
        let_go(memory);
}

static bool sweep(int replaced_fd)
{
    bool any = false;
    lock_take(&kept.lock);
    for (unsigned i = 0; i < kept.count;) {
        struct kept *entry = &kept.entries[i];
        if (is_held(entry, replaced_fd)) {
            i++;
            continue;
        }
        any = true;
        let_go(&entry->memory);
        *entry = kept.entries[kept.count - 1];
        store_relaxed(&kept.count, kept.count - 1);
    }
    lock_release(&kept.lock);
    return any;
}

bool rm_export_sweep(void)
{
    return load_relaxed(&kept.count) && sweep(-1);
}

/* The kernel has read these parameters, so they are there. */
static bool read_params(const struct rm_control *form, void *ret_params, size_t bytes)
{
    return form->params_size >= bytes && own_memory_read(form->params, ret_params, bytes);
}

static void note_export(const struct rm_control *form)
{
    struct rm_export_object params;
    if (!read_params(form, &params, sizeof(params)))
        return;
    sweep(params.fd);
    mark_exported(form->client, params.object, params.fd);
}

static void note_exports(const struct rm_control *form)
{
    struct rm_export_objects params;
    if (!read_params(form, &params, sizeof(params)))
        return;
    if (params.index == 0)
        sweep(params.fd);
    for (unsigned i = 0; i < params.count && i < RM_EXPORT_OBJECTS_MAX; i++)
        mark_exported(form->client, params.objects[i], params.fd);
}

static void note_import(const struct rm_call *call, const struct rm_control *form)
{
    struct rm_import_object params;
    if (read_params(form, &params, sizeof(params)))
        rm_export_imported(call->fd, form->client, params.parent, params.object, call->next);
}

static void note_imports(const struct rm_call *call, const struct rm_control *form)
{
    struct rm_import_objects params;
    if (!read_params(form, &params, sizeof(params)))
        return;
    for (unsigned i = 0; i < params.count && i < RM_IMPORT_OBJECTS_MAX; i++) {
        if (params.objects[i])
            rm_export_imported(
                call->fd, form->client, params.parent, params.objects[i], call->next);
    }
}

void rm_export_imported(
    int fd, uint32_t client, uint32_t parent, uint32_t object, rm_ioctl_function *next)
{
    if (!rm_ledger_knows_client(client))
        return;
    rm_ledger_add_import(client, parent, object);
    uint32_t device_handle = rm_ledger_device_handle(client, parent);
    if (device_handle && rm_device_index(fd, client, device_handle, next) >= 0)
        rm_audit(fd, client, device_handle, true, next);
}

int rm_export_control(const struct rm_call *call)
{
    struct rm_control form;
    int result = rm_call_pass(call);
    if (!rm_call_answer(call, result, &form, sizeof(form)) || form.status != RM_OK ||
        form.object != form.client)
        return result;
    switch (form.cmd) {
    case RM_CTRL_EXPORT_OBJECT_TO_FD:
        note_export(&form);
        break;
    case RM_CTRL_EXPORT_OBJECTS_TO_FD:
        note_exports(&form);
        break;
    case RM_CTRL_IMPORT_OBJECT_FROM_FD:
        note_import(call, &form);
        break;
    case RM_CTRL_IMPORT_OBJECTS_FROM_FD:
        note_imports(call, &form);
        break;
    }
    return result;
}

int rm_export_share(const struct rm_call *call)
{
    struct rm_share form;
    int result = rm_call_pass(call);
    if (rm_call_answer(call, result, &form, sizeof(form)) && form.status == RM_OK)
        mark_exported(form.client, form.object, -1);
    return result;
}
