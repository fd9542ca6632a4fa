/* SPDX-License-Identifier: Apache-2.0 */
/* Exports and imports of device memory. */
#include "rm/rm_export.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/own_memory.h"
#include "base/slab.h"
#include "rm/rm_audit.h"
#include "rm/rm_charging.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define KEPT_MAX 1024

/* The file that was open at a descriptor when memory was exported to it last. */
struct target {
    dev_t device;
    ino_t inode;
    uint32_t number;
};

static struct lock kept_lock;
static struct {
    unsigned count;
    struct rm_freed entries[KEPT_MAX]; /* freed memory that open descriptors still hold */
    struct map targets;                /* by descriptor + 1 */
    struct slab target_slab;
    uint32_t last_number;
} kept GUARDED_BY(kept_lock) = {.target_slab = {.object_bytes = sizeof(struct target)}};

void rm_export_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&kept_lock);
    kept.count = 0;
    map_finish(&kept.targets);
    slab_finish(&kept.target_slab);
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
    if (!memory->importable)
        return;
    account_add_exported(memory->device, -(int64_t)memory->bytes);
    account_add_lingering(memory->device, memory->bytes);
}

static struct target *target_of(int fd) REQUIRES(kept_lock)
{
    return fd >= 0 ? map_get(&kept.targets, (uint64_t)fd + 1) : NULL;
}

static struct target *target_make(int fd) REQUIRES(kept_lock)
{
    struct target *target = target_of(fd);
    if (target || fd < 0)
        return target;
    target = slab_take(&kept.target_slab);
    if (target && map_put(&kept.targets, (uint64_t)fd + 1, target) != 0) {
        slab_give(&kept.target_slab, target);
        target = NULL;
    }
    return target;
}

struct rm_export_fd rm_export_to(int fd)
{
    struct rm_export_fd to = {.fd = -1};
    LOCKED_TO_END(kept_lock);
    struct target *target = target_make(fd);
    if (target && descriptor_file(fd, &target->device, &target->inode)) {
        target->number = ++kept.last_number;
        to = (struct rm_export_fd){.fd = fd, .number = target->number};
    }
    return to;
}

/* What is exported there with more beside it. */
static struct rm_export_fd export_to_same(int fd)
{
    LOCKED_TO_END(kept_lock);
    const struct target *target = target_of(fd);
    return (struct rm_export_fd){.fd = target ? fd : -1, .number = target ? target->number : 0};
}

static void mark_exported(uint32_t client, uint32_t object, struct rm_export_fd to)
{
    unsigned device;
    if (!rm_charging_is_on()) /* the API's hooks count it */
        return;
    uint64_t bytes = rm_ledger_mark_exported(client, object, to, &device);
    if (bytes)
        account_add_exported(device, (int64_t)bytes);
}

/* Whether the same file is open there still, and nothing else was exported to it since. */
static bool is_open(const struct rm_export_fd *to) REQUIRES(kept_lock)
{
    const struct target *target = target_of(to->fd);
    dev_t device;
    ino_t inode;
    return target && target->number == to->number && descriptor_file(to->fd, &device, &inode) &&
           device == target->device && inode == target->inode;
}

static bool is_held(const struct rm_freed *memory) REQUIRES(kept_lock)
{
    bool held = false;
    for (int i = 0; i < RM_EXPORT_FDS && !held; i++)
        held = is_open(&memory->fds[i]);
    return held;
}

void rm_export_freed(const struct rm_freed *memory)
{
    bool keeps = false;
    LOCKED(kept_lock) {
        keeps = kept.count < KEPT_MAX && is_held(memory);
        if (keeps) {
            kept.entries[kept.count] = *memory;
            store_relaxed(&kept.count, kept.count + 1);
        }
    }
    if (!keeps)
        let_go(memory);
}

static bool sweep(void)
{
    bool any = false;
    LOCKED_TO_END(kept_lock);
    for (unsigned i = 0; i < kept.count;) {
        if (is_held(&kept.entries[i])) {
            i++;
            continue;
        }
        any = true;
        let_go(&kept.entries[i]);
        kept.entries[i] = kept.entries[kept.count - 1];
        store_relaxed(&kept.count, kept.count - 1);
    }
    return any;
}

bool rm_export_sweep(void)
{
    return load_relaxed(&kept.count) && sweep();
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
    struct rm_export_fd to = rm_export_to(params.fd);
    (void)rm_export_sweep();
    mark_exported(form->client, params.object, to);
}

static void note_exports(const struct rm_control *form)
{
    struct rm_export_objects params;
    if (!read_params(form, &params, sizeof(params)))
        return;
    struct rm_export_fd to =
        params.index == 0 ? rm_export_to(params.fd) : export_to_same(params.fd);
    (void)rm_export_sweep();
    for (unsigned i = 0; i < params.count && i < RM_EXPORT_OBJECTS_MAX; i++)
        mark_exported(form->client, params.objects[i], to);
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
        mark_exported(form.client, form.object, (struct rm_export_fd){.fd = -1});
    return result;
}

/* What the two forms have in common. */
struct dmabuf {
    int fd;
    uint32_t client, count, index;
    const uint32_t *objects;
};

static void note_dmabuf(const struct dmabuf *dmabuf)
{
    struct rm_export_fd to =
        dmabuf->index == 0 ? rm_export_to(dmabuf->fd) : export_to_same(dmabuf->fd);
    to.is_dmabuf = true;
    (void)rm_export_sweep();
    for (unsigned i = 0; i < dmabuf->count && i < RM_DMABUF_OBJECTS_MAX; i++)
        mark_exported(dmabuf->client, dmabuf->objects[i], to);
}

int rm_export_dmabuf(const struct rm_call *call)
{
    struct rm_export_dmabuf form;
    struct rm_export_dmabuf_old old;
    int result = rm_call_pass(call);
    if (rm_call_answer(call, result, &form, sizeof(form)) && form.status == RM_OK)
        note_dmabuf(&(struct dmabuf){form.fd, form.client, form.count, form.index, form.objects});
    else if (rm_call_answer(call, result, &old, sizeof(old)) && old.status == RM_OK)
        note_dmabuf(&(struct dmabuf){old.fd, old.client, old.count, old.index, old.objects});
    return result;
}
