/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of resource-manager objects. */
#include "rm/rm_ledger.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/slab.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Device memory, shared by its handles. */
struct memory {
    uint64_t bytes;
    unsigned device;
    enum account_kind kind;
    unsigned handles;
    bool exported, importable;              /* as in struct rm_freed */
    struct rm_export_fd fds[RM_EXPORT_FDS]; /* the latest first */
};

struct object {
    struct object *parent, *first_child, *next, *previous;
    struct memory *memory; /* NULL: no device memory */
    uint32_t client, handle, class_id;
    uint32_t parent_handle; /* where a detached object goes back to */
    int device_index;       /* of a device object */
    uint32_t subdevice;     /* of a device object: a subdevice below it, or 0 */
};

/* What is detached is a tree of objects by its root. */
struct rm_subtree {
    struct object root;
};

static struct lock ledger_lock;
static struct {
    struct slab objects, memories;
    struct map index;
    uint64_t bytes[VGPU_REGION_DEVICES];
    uint64_t version;
    unsigned imports; /* read without the lock */
} ledger GUARDED_BY(ledger_lock) = {.objects = {.object_bytes = sizeof(struct object)},
    .memories = {.object_bytes = sizeof(struct memory)}};

/* An import has no memory of ours; its class tells it from a plain object. */
#define CLASS_IMPORT 0xfffffff0u

void rm_ledger_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&ledger_lock);
    slab_finish(&ledger.objects);
    slab_finish(&ledger.memories);
    map_finish(&ledger.index);
    memset(ledger.bytes, 0, sizeof(ledger.bytes));
    ledger.version = 0;
    ledger.imports = 0;
}

static uint64_t key_of(uint32_t client, uint32_t handle)
{
    return (uint64_t)client << 32 | handle;
}

static struct object *find_locked(uint32_t client, uint32_t handle) REQUIRES(ledger_lock)
{
    return map_get(&ledger.index, key_of(client, handle));
}

static void link_below(struct object *parent, struct object *object)
{
    object->parent = parent;
    object->previous = NULL;
    object->next = parent ? parent->first_child : NULL;
    if (object->next)
        object->next->previous = object;
    if (parent)
        parent->first_child = object;
}

static void unlink_object(struct object *object)
{
    if (object->previous)
        object->previous->next = object->next;
    else if (object->parent)
        object->parent->first_child = object->next;
    if (object->next)
        object->next->previous = object->previous;
    object->parent = object->next = object->previous = NULL;
}

/* The parent where it is known, else the client, which every object hangs below in the end. */
static struct object *above_locked(const struct object *object) REQUIRES(ledger_lock)
{
    if (object->handle == object->client)
        return NULL;
    struct object *parent = find_locked(object->client, object->parent_handle);
    return parent ? parent : find_locked(object->client, object->client);
}

static struct object *add_locked(
    uint32_t client, uint32_t parent, uint32_t handle, uint32_t class_id) REQUIRES(ledger_lock)
{
    struct object *object = slab_take(&ledger.objects);
    if (!object)
        return NULL;
    object->client = client;
    object->handle = handle;
    object->class_id = class_id;
    object->parent_handle = parent;
    object->device_index = RM_DEVICE_UNKNOWN;
    /* Before it can be found itself: nothing is its own ancestor, whatever a call says. */
    struct object *above = above_locked(object);
    if (map_put(&ledger.index, key_of(client, handle), object) != 0) {
        slab_give(&ledger.objects, object);
        return NULL;
    }
    link_below(above, object);
    if (class_id == RM_CLASS_SUBDEVICE && object->parent)
        object->parent->subdevice = handle;
    ledger.version++;
    return object;
}

int rm_ledger_add_client(uint32_t client)
{
    LOCKED_TO_END(ledger_lock);
    struct object *object = add_locked(client, 0, client, RM_CLASS_CLIENT);
    return object ? 0 : -ENOMEM;
}

bool rm_ledger_knows_client(uint32_t client)
{
    LOCKED_TO_END(ledger_lock);
    return find_locked(client, client) != NULL;
}

int rm_ledger_add(uint32_t client, uint32_t parent, uint32_t handle, uint32_t class_id,
    uint64_t bytes, unsigned device, enum account_kind kind)
{
    int error = -ENOMEM;
    LOCKED_TO_END(ledger_lock);
    struct memory *memory = bytes ? slab_take(&ledger.memories) : NULL;
    struct object *object = bytes && !memory ? NULL : add_locked(client, parent, handle, class_id);
    if (object) {
        error = 0;
        object->memory = memory;
        if (memory) {
            *memory = (struct memory){.bytes = bytes, .device = device, .kind = kind, .handles = 1};
            memset(memory->fds, 0xff, sizeof(memory->fds));
            ledger.bytes[device] += bytes;
        }
    } else if (memory) {
        slab_give(&ledger.memories, memory);
    }
    return error;
}

bool rm_ledger_add_duplicate(
    uint32_t client, uint32_t parent, uint32_t handle, uint32_t client_src, uint32_t object_src)
{
    LOCKED_TO_END(ledger_lock);
    struct object *source = find_locked(client_src, object_src);
    bool ours = source && source->class_id != CLASS_IMPORT;
    struct memory *memory = source ? source->memory : NULL;
    if (memory) {
        struct object *object = add_locked(client, parent, handle, source->class_id);
        if (object) {
            object->memory = memory;
            memory->handles++;
        }
    }
    return ours;
}

void rm_ledger_add_import(uint32_t client, uint32_t parent, uint32_t handle)
{
    LOCKED_TO_END(ledger_lock);
    /* Where the handle is known it is no new one: the object that has it stays. */
    if (!find_locked(client, handle) && add_locked(client, parent, handle, CLASS_IMPORT))
        add_relaxed(&ledger.imports, 1u);
}

static void remember_fd(struct memory *memory, struct rm_export_fd to)
{
    for (int i = RM_EXPORT_FDS - 1; i > 0; i--)
        memory->fds[i] = memory->fds[i - 1];
    memory->fds[0] = to;
}

uint64_t rm_ledger_mark_exported(
    uint32_t client, uint32_t handle, struct rm_export_fd to, unsigned *ret_device)
{
    uint64_t bytes = 0;
    LOCKED_TO_END(ledger_lock);
    struct object *object = find_locked(client, handle);
    struct memory *memory = object ? object->memory : NULL;
    if (memory) {
        bool newly = !to.is_dmabuf && !memory->importable;
        bytes = newly ? memory->bytes : 0;
        *ret_device = memory->device;
        memory->exported = true;
        memory->importable |= newly;
        if (to.fd >= 0)
            remember_fd(memory, to);
    }
    return bytes;
}

uint32_t rm_ledger_class(uint32_t client, uint32_t handle)
{
    LOCKED_TO_END(ledger_lock);
    struct object *object = find_locked(client, handle);
    return object ? object->class_id : 0;
}

uint32_t rm_ledger_device_handle(uint32_t client, uint32_t handle)
{
    LOCKED_TO_END(ledger_lock);
    struct object *object = find_locked(client, handle);
    while (object && object->class_id != RM_CLASS_DEVICE)
        object = object->parent;
    return object ? object->handle : 0;
}

int rm_ledger_device_index(uint32_t client, uint32_t device_handle)
{
    LOCKED_TO_END(ledger_lock);
    struct object *object = find_locked(client, device_handle);
    return object ? object->device_index : RM_DEVICE_UNKNOWN;
}

void rm_ledger_set_device_index(uint32_t client, uint32_t device_handle, int index)
{
    LOCKED_TO_END(ledger_lock);
    struct object *object = find_locked(client, device_handle);
    if (object)
        object->device_index = index;
}

uint32_t rm_ledger_subdevice_handle(uint32_t client, uint32_t device_handle)
{
    LOCKED_TO_END(ledger_lock);
    struct object *device = find_locked(client, device_handle);
    return device ? device->subdevice : 0;
}

/* Depth-first successor within the tree below root; NULL after the last. */
static struct object *next_in_tree(struct object *object, const struct object *root)
{
    if (object->first_child)
        return object->first_child;
    while (object != root && !object->next)
        object = object->parent;
    return object == root ? NULL : object->next;
}

struct rm_subtree *rm_ledger_detach(uint32_t client, uint32_t handle)
{
    LOCKED_TO_END(ledger_lock);
    struct object *root = find_locked(client, handle);
    if (root) {
        for (struct object *object = root; object; object = next_in_tree(object, root))
            map_remove(&ledger.index, key_of(object->client, object->handle));
        if (root->parent && root->parent->subdevice == handle)
            root->parent->subdevice = 0;
        unlink_object(root);
        ledger.version++;
    }
    return (struct rm_subtree *)root;
}

void rm_ledger_attach(struct rm_subtree *subtree)
{
    if (!subtree)
        return;
    struct object *root = &subtree->root;
    LOCKED_TO_END(ledger_lock);
    struct object *above = above_locked(root); /* before those below it can be found */
    for (struct object *object = root; object; object = next_in_tree(object, root))
        (void)!map_put(&ledger.index, key_of(object->client, object->handle), object);
    link_below(above, root);
    if (root->class_id == RM_CLASS_SUBDEVICE && root->parent)
        root->parent->subdevice = root->handle;
    ledger.version++;
}

/* One leaf of the detached tree at a time, so that the visitor runs without the lock. */
static bool drop_leaf(struct object *root, struct rm_freed *ret_freed, bool *ret_memory)
{
    LOCKED_TO_END(ledger_lock);
    struct object *leaf = root;
    while (leaf->first_child)
        leaf = leaf->first_child;
    struct memory *memory = leaf->memory;
    *ret_memory = memory && --memory->handles == 0;
    if (*ret_memory) {
        *ret_freed = (struct rm_freed){.device = memory->device,
            .bytes = memory->bytes,
            .kind = memory->kind,
            .exported = memory->exported,
            .importable = memory->importable};
        memcpy(ret_freed->fds, memory->fds, sizeof(memory->fds));
        ledger.bytes[memory->device] -= memory->bytes;
        slab_give(&ledger.memories, memory);
    }
    if (leaf->class_id == CLASS_IMPORT)
        add_relaxed(&ledger.imports, -1u);
    bool last = leaf == root;
    if (!last)
        unlink_object(leaf);
    slab_give(&ledger.objects, leaf);
    ledger.version++;
    return last;
}

void rm_ledger_drop(struct rm_subtree *subtree,
    void (*freed)(const struct rm_freed *memory, void *context), void *context)
{
    bool last;
    do {
        struct rm_freed memory;
        bool has_memory;
        last = drop_leaf(&subtree->root, &memory, &has_memory);
        if (has_memory)
            freed(&memory, context);
    } while (!last);
}

uint64_t rm_ledger_bytes(unsigned device, uint64_t *ret_version)
{
    LOCKED_TO_END(ledger_lock);
    uint64_t bytes = ledger.bytes[device];
    *ret_version = ledger.version;
    return bytes;
}

unsigned rm_ledger_imports(void)
{
    return load_relaxed(&ledger.imports);
}
