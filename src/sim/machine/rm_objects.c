/* SPDX-License-Identifier: Apache-2.0 */
/* Clients, objects and memory: hash and tree links, reference counts, and the totals by device,
 * client and sharing. */
#include "sim/machine/rm_objects.h"

#include "sim/machine/rm_objects_parts.h"

#include <string.h>

#define CLIENT_HANDLE_FIRST                                                                        \
    0xC1D00000u /* as the driver picks them (seen on H200, driver 580.159.04) */
#define CLIENT_HANDLE_COUNT 0x000FFFFFu
#define OBJECT_HANDLE_FIRST 0x5C000001u

/* A kill falls between two instructions: what is written before stays before, as far as the
 * compiler goes. */
static void set_live(uint32_t *live, uint32_t value)
{
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint32_t *)live = value;
    atomic_signal_fence(memory_order_seq_cst);
}

static uint32_t *client_bucket(uint32_t handle)
{
    return &sim_machine->client_buckets[handle % SIM_CLIENTS_MAX];
}

static uint32_t *object_bucket(uint32_t client, uint32_t handle)
{
    uint64_t hash = (((uint64_t)client << 32) | handle) * 0x9e3779b97f4a7c15ull;
    return &sim_machine->object_buckets[hash >> 32 & (SIM_OBJECT_BUCKETS - 1)];
}

void sim_objects_init(struct sim_machine *machine)
{
    fill_none(machine->client_buckets, SIM_CLIENTS_MAX);
    fill_none(machine->object_buckets, SIM_OBJECT_BUCKETS);
    machine->free_object = SIM_NONE;
    machine->free_memory = SIM_NONE;
    sim_timeline_init(machine);
}

uint32_t sim_client_find_locked(uint32_t handle)
{
    uint32_t index = *client_bucket(handle);
    while (index != SIM_NONE && client_at(index)->handle != handle)
        index = client_at(index)->bucket_next;
    return index;
}

uint32_t sim_object_find_locked(uint32_t client, uint32_t handle)
{
    uint32_t index = *object_bucket(client, handle);
    while (index != SIM_NONE &&
           (object_at(index)->client != client || object_at(index)->handle != handle))
        index = object_at(index)->bucket_next;
    return index;
}

void sim_client_link_locked(uint32_t index)
{
    struct sim_client *client = client_at(index);
    uint32_t *bucket = client_bucket(client->handle);
    client->bucket_next = *bucket;
    *bucket = index;
}

static void client_unlink(uint32_t index)
{
    uint32_t *link = client_bucket(client_at(index)->handle);
    while (*link != index)
        link = &client_at(*link)->bucket_next;
    *link = client_at(index)->bucket_next;
}

static uint32_t *first_child_of(const struct sim_object *object)
{
    return object->parent == SIM_NONE ? &client_at(object->client)->first_child
                                      : &object_at(object->parent)->first_child;
}

void sim_object_link_locked(uint32_t index)
{
    struct sim_object *object = object_at(index);
    uint32_t *bucket = object_bucket(object->client, object->handle);
    object->bucket_next = *bucket;
    *bucket = index;

    uint32_t *first = first_child_of(object);
    object->sibling_previous = SIM_NONE;
    object->sibling_next = *first;
    if (*first != SIM_NONE)
        object_at(*first)->sibling_previous = index;
    *first = index;
}

static void object_unlink(uint32_t index)
{
    struct sim_object *object = object_at(index);
    uint32_t *link = object_bucket(object->client, object->handle);
    while (*link != index)
        link = &object_at(*link)->bucket_next;
    *link = object->bucket_next;

    if (object->sibling_next != SIM_NONE)
        object_at(object->sibling_next)->sibling_previous = object->sibling_previous;
    if (object->sibling_previous != SIM_NONE)
        object_at(object->sibling_previous)->sibling_next = object->sibling_next;
    else
        *first_child_of(object) = object->sibling_next;
}

/*
 * As the open kernel module tells them apart for GET_PID_INFO, nvidia-uvm's handles included: what
 * CUDA maps is owned or duped, an import that is not mapped becomes private when it is the last
 * (seen on H200, driver 580.159.04).
 */
static enum sim_share share_of(const struct sim_memory *memory, uint32_t object)
{
    if (memory->references + memory->mappings == 1)
        return SIM_PRIVATE;
    return memory->owner == object ? SIM_SHARED_OWNED : SIM_SHARED_DUPED;
}

void sim_memory_account_locked(const struct sim_memory *memory, uint64_t bytes)
{
    for (uint32_t index = memory->first_handle; index != SIM_NONE;
         index = object_at(index)->memory_next)
        client_at(object_at(index)->client)->bytes[memory->device][share_of(memory, index)] +=
            bytes;
}

void sim_memory_link_handle_locked(struct sim_memory *memory, uint32_t index)
{
    struct sim_object *object = object_at(index);
    object->memory_previous = SIM_NONE;
    object->memory_next = memory->first_handle;
    if (memory->first_handle != SIM_NONE)
        object_at(memory->first_handle)->memory_previous = index;
    memory->first_handle = index;
}

static void memory_unlink_handle(struct sim_memory *memory, uint32_t index)
{
    struct sim_object *object = object_at(index);
    if (object->memory_next != SIM_NONE)
        object_at(object->memory_next)->memory_previous = object->memory_previous;
    if (object->memory_previous != SIM_NONE)
        object_at(object->memory_previous)->memory_next = object->memory_next;
    else
        memory->first_handle = object->memory_next;
    /* Seen with one importer (H200, driver 580.159.04); which of several it is, is assumed. */
    if (memory->owner == index)
        memory->owner = memory->first_handle;
}

void sim_memory_free_if_unused_locked(uint32_t index)
{
    struct sim_memory *memory = memory_at(index);
    if (memory->references > 0)
        return;
    sim_machine->used_bytes[memory->device] -= memory->bytes;
    memory->first_handle = sim_machine->free_memory;
    sim_machine->free_memory = index;
}

static void memory_add_handle(uint32_t index, uint32_t object)
{
    struct sim_memory *memory = memory_at(index);
    sim_memory_account_locked(memory, ~memory->bytes + 1);
    sim_memory_link_handle_locked(memory, object);
    memory->references++;
    if (memory->owner == SIM_NONE)
        memory->owner = object;
    sim_memory_account_locked(memory, memory->bytes);
}

static void memory_remove_handle(uint32_t index, uint32_t object)
{
    struct sim_memory *memory = memory_at(index);
    sim_memory_account_locked(memory, ~memory->bytes + 1);
    memory_unlink_handle(memory, object);
    memory->references--;
    memory->mappings -= object_at(object)->mapped;
    sim_memory_account_locked(memory, memory->bytes);
    sim_memory_free_if_unused_locked(index);
}

void sim_object_map_locked(uint32_t index, bool mapped)
{
    struct sim_object *object = object_at(index);
    struct sim_memory *memory = memory_at(object->memory);
    sim_memory_account_locked(memory, ~memory->bytes + 1);
    memory->mappings += (uint32_t)mapped - object->mapped;
    object->mapped = mapped;
    sim_memory_account_locked(memory, memory->bytes);
}

void sim_memory_hold_locked(uint32_t index)
{
    struct sim_memory *memory = memory_at(index);
    sim_memory_account_locked(memory, ~memory->bytes + 1);
    memory->references++;
    sim_memory_account_locked(memory, memory->bytes);
}

void sim_memory_release_locked(uint32_t index)
{
    struct sim_memory *memory = memory_at(index);
    sim_memory_account_locked(memory, ~memory->bytes + 1);
    memory->references--;
    sim_memory_account_locked(memory, memory->bytes);
    sim_memory_free_if_unused_locked(index);
}

bool sim_memory_fits_locked(uint32_t device, uint64_t bytes)
{
    const struct sim_model *model = &sim_machine->devices[device].model;
    uint64_t capacity = model->memory_bytes - model->reserved_bytes;
    return bytes <= capacity && sim_machine->used_bytes[device] <= capacity - bytes;
}

/* An unused entry; a kill before it is live leaves it to recovery's free list. */
static uint32_t take_entry(uint32_t *free_list, uint32_t *end, uint32_t next)
{
    if (*free_list == SIM_NONE)
        return *end < SIM_OBJECTS_MAX ? (*end)++ : SIM_NONE;
    uint32_t index = *free_list;
    *free_list = next;
    return index;
}

static uint32_t take_object(void)
{
    uint32_t head = sim_machine->free_object;
    return take_entry(&sim_machine->free_object, &sim_machine->objects_end,
        head == SIM_NONE ? SIM_NONE : object_at(head)->bucket_next);
}

static uint32_t take_memory(void)
{
    uint32_t head = sim_machine->free_memory;
    return take_entry(&sim_machine->free_memory, &sim_machine->memories_end,
        head == SIM_NONE ? SIM_NONE : memory_at(head)->first_handle);
}

void sim_object_give_locked(uint32_t index)
{
    object_at(index)->bucket_next = sim_machine->free_object;
    sim_machine->free_object = index;
}

static uint32_t memory_create(uint32_t device, uint64_t bytes, uint32_t owner)
{
    uint32_t index = take_memory();
    if (index == SIM_NONE)
        return SIM_NONE;
    *memory_at(index) = (struct sim_memory){
        .device = device, .owner = owner, .first_handle = SIM_NONE, .bytes = bytes};
    sim_machine->used_bytes[device] += bytes;
    return index;
}

/* The group of a channel that came or went may run now, or no longer. */
static void channel_changed(const struct sim_object *object)
{
    if (RM_CLASS_IS_CHANNEL(object->class_id) && object->parent != SIM_NONE)
        sim_timeline_channels_changed_locked(object->parent);
}

static uint32_t pick_object_handle(uint32_t client)
{
    uint32_t handle;
    do
        handle = client_at(client)->next_handle++;
    while (handle == 0 || handle == client_at(client)->handle ||
           sim_object_find_locked(client, handle) != SIM_NONE);
    return handle;
}

uint32_t sim_object_create_locked(const struct sim_object_request *request)
{
    uint32_t index = take_object();
    if (index == SIM_NONE)
        return SIM_NONE;
    struct sim_object *object = object_at(index);
    *object = (struct sim_object){
        .client = request->client,
        .parent = request->parent,
        .handle = request->handle != 0 ? request->handle : pick_object_handle(request->client),
        .class_id = request->class_id,
        .device = request->device,
        .memory = request->memory,
        .engine_type = request->engine_type,
        .timeslice_us = request->timeslice_us,
        .first_child = SIM_NONE,
        .memory_next = SIM_NONE,
        .memory_previous = SIM_NONE,
    };
    if (request->memory == SIM_NONE && request->bytes > 0) {
        object->memory = memory_create(request->device, request->bytes, index);
        if (object->memory == SIM_NONE) {
            sim_object_give_locked(index);
            return SIM_NONE;
        }
    }
    set_live(&object->live, 1);
    sim_object_link_locked(index);
    if (object->memory != SIM_NONE)
        memory_add_handle(object->memory, index);
    uint32_t device = group_device(object);
    if (device != SIM_NONE)
        client_at(object->client)->channel_groups[device]++;
    channel_changed(object);
    return index;
}

static void object_destroy_leaf(uint32_t index)
{
    struct sim_object *object = object_at(index);
    uint32_t device = group_device(object);
    set_live(&object->live, 0);
    if (device != SIM_NONE)
        client_at(object->client)->channel_groups[device]--;
    if (object->memory != SIM_NONE)
        memory_remove_handle(object->memory, index);
    object_unlink(index);
    channel_changed(object);
    if (device != SIM_NONE)
        sim_timeline_object_gone_locked(index);
    sim_object_give_locked(index);
}

void sim_object_destroy_locked(uint32_t index)
{
    /* Leaves first, without recursion: a program may build a chain of any depth. */
    for (uint32_t at = index;;) {
        while (object_at(at)->first_child != SIM_NONE)
            at = object_at(at)->first_child;
        uint32_t parent = object_at(at)->parent;
        object_destroy_leaf(at);
        if (at == index)
            return;
        at = parent;
    }
}

uint32_t sim_client_create_locked(uint32_t slot, uint32_t handle, int32_t pid)
{
    uint32_t index = 0;
    while (index < SIM_CLIENTS_MAX && client_at(index)->live)
        index++;
    if (index == SIM_CLIENTS_MAX)
        return SIM_NONE;
    while (handle == 0) {
        handle = CLIENT_HANDLE_FIRST + (++sim_machine->next_client & CLIENT_HANDLE_COUNT);
        if (sim_client_find_locked(handle) != SIM_NONE)
            handle = 0;
    }
    if (index >= sim_machine->clients_end)
        sim_machine->clients_end = index + 1;
    *client_at(index) = (struct sim_client){.handle = handle,
        .slot = slot,
        .pid = pid,
        .next_handle = OBJECT_HANDLE_FIRST,
        .first_child = SIM_NONE};
    set_live(&client_at(index)->live, 1);
    sim_client_link_locked(index);
    return index;
}

void sim_client_destroy_locked(uint32_t index)
{
    struct sim_client *client = client_at(index);
    while (client->first_child != SIM_NONE)
        sim_object_destroy_locked(client->first_child);
    set_live(&client->live, 0);
    client_unlink(index);
}
