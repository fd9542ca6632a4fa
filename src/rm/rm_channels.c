/* SPDX-License-Identifier: Apache-2.0 */
/* The channel gate. */
#include "rm/rm_channels.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/lock.h"
#include "base/log.h"
#include "container/container.h"
#include "rm/rm_audit.h"
#include "rm/rm_channel_list.h"
#include "rm/rm_channel_switch.h"
#include "rm/rm_ledger.h"
#include "rm/rm_route.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct device {
    /* Read without the lock. */
    unsigned count;
    bool closed;    /* wanted, or some channel is closed */
    unsigned state; /* enum rm_channels_state */
    unsigned opens; /* how often it was to be opened */
    bool unsaid;    /* a failure that is not in the log yet */

    bool wanted;     /* closed */
    uint32_t status; /* of the control that was refused */
    uint64_t slice_us;
};

/* A leaf but for the ledger's; held across controls, which are bounded. */
static struct lock gate_lock;
static struct {
    struct rm_channel_list list;
    struct device devices[VGPU_REGION_DEVICES];
    unsigned held;   /* read without the lock */
    bool finished;   /* … */
    unsigned groups; /* … on record */
    bool unplaced;   /* … a compute group was seen whose GPU could not be told */
} gate GUARDED_BY(gate_lock) = {.list = RM_CHANNEL_LIST_INIT};

void rm_channels_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&gate_lock);
    rm_channel_list_finish(&gate.list);
    memset(gate.devices, 0, sizeof(gate.devices));
    gate.held = 0;
    gate.finished = false;
    gate.groups = 0;
    gate.unplaced = false;
}

unsigned rm_channels_count(unsigned device)
{
    return load_relaxed(&gate.devices[device].count);
}

bool rm_channels_is_closed(unsigned device)
{
    return load_acquire(&gate.devices[device].closed);
}

bool rm_channels_any_closed(void)
{
    for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++) {
        if (rm_channels_is_closed(device))
            return true;
    }
    return false;
}

enum rm_channels_state rm_channels_state(unsigned device)
{
    return load_acquire(&gate.devices[device].state);
}

/* What others read without the lock, after the list or a channel changed. */
static void publish_locked(void) REQUIRES(gate_lock)
{
    unsigned counts[VGPU_REGION_DEVICES] = {0}, groups = 0;
    bool closed[VGPU_REGION_DEVICES] = {false};
    for (struct rm_group *group = gate.list.first; group; group = group->next) {
        groups++;
        for (struct rm_channel *channel = group->channels; channel; channel = channel->next) {
            counts[group->device]++;
            closed[group->device] |= channel->closed;
        }
    }
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++) {
        store_relaxed(&gate.devices[i].count, counts[i]);
        store_release(&gate.devices[i].closed, closed[i] || gate.devices[i].wanted);
    }
    store_release(&gate.groups, groups);
}

static bool is_for_good(enum rm_channels_state state)
{
    return state == RM_CHANNELS_FAILED || state == RM_CHANNELS_RESTORED;
}

static void set_state_locked(unsigned device, enum rm_channels_state state, uint32_t status)
    REQUIRES(gate_lock)
{
    struct device *own = &gate.devices[device];
    if (is_for_good(own->state))
        return;
    store_relaxed(&own->status, status);
    store_release(&own->state, state);
    store_relaxed(&own->unsaid, is_for_good(state));
}

static uint32_t switch_locked(struct rm_switch *change) REQUIRES(gate_lock)
{
    uint32_t refused = rm_switch_all(&gate.list, change);
    publish_locked();
    return refused;
}

static int open_locked(unsigned device, struct rm_channels_times *ret_times) REQUIRES(gate_lock)
{
    struct rm_switch change = {.device = device, .close = false};
    gate.devices[device].wanted = false;
    uint32_t refused = switch_locked(&change);
    *ret_times = change.times;
    if (refused == RM_OK)
        return (int)change.switched;
    set_state_locked(device, RM_CHANNELS_FAILED, refused);
    return -EIO;
}

static void give_up_locked(unsigned device, enum rm_channels_state why, uint32_t status)
    REQUIRES(gate_lock)
{
    struct rm_channels_times times;
    set_state_locked(device, why, status);
    (void)open_locked(device, &times);
}

static void fail_locked(unsigned device, uint32_t status) REQUIRES(gate_lock)
{
    give_up_locked(device, RM_CHANNELS_FAILED, status);
}

/* Some channels may not be as their device is. */
static void settle_locked(unsigned device) REQUIRES(gate_lock)
{
    struct rm_switch change = {.device = device, .close = gate.devices[device].wanted};
    uint32_t refused = switch_locked(&change);
    if (refused != RM_OK)
        fail_locked(device, refused);
}

/* Without the lock: a terminal may keep the writer waiting. */
static void say_failures(void)
{
    for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++) {
        char words[RM_CHANNELS_WORDS];
        if (!load_relaxed(&gate.devices[device].unsaid) ||
            !exchange_acq_rel(&gate.devices[device].unsaid, false))
            continue;
        rm_channels_describe(device, words);
        log_message("device %u: the channel gate %s", device, words);
    }
}

/* ---- the self-test ---- */

static bool is_barred(void)
{
    return load_seq_cst(&gate.held) != 0 || load_seq_cst(&gate.finished);
}

/* Not yet, or nothing was there to test. */
static bool may_test(enum rm_channels_state state)
{
    return state == RM_CHANNELS_UNTESTED || state == RM_CHANNELS_NO_GROUP ||
           state == RM_CHANNELS_NO_GPU;
}

static bool is_usable(enum rm_channels_state state)
{
    return may_test(state) || state == RM_CHANNELS_WORKS;
}

static enum rm_channels_state test_locked(unsigned device) REQUIRES(gate_lock)
{
    struct device *own = &gate.devices[device];
    uint32_t status;
    if (!may_test(own->state) || is_barred())
        return own->state;
    enum rm_channels_state state = rm_switch_test(&gate.list, device, &status);
    if (state == RM_CHANNELS_NO_GROUP && load_relaxed(&gate.unplaced))
        state = RM_CHANNELS_NO_GPU;
    set_state_locked(device, state, status);
    if (!is_usable(state))
        own->wanted = false;
    settle_locked(device);
    return own->state;
}

enum rm_channels_state rm_channels_test(unsigned device)
{
    enum rm_channels_state state = RM_CHANNELS_UNTESTED;
    LOCKED(gate_lock)
        state = test_locked(device);
    say_failures();
    return state;
}

static const char *state_words(enum rm_channels_state state)
{
    switch (state) {
    case RM_CHANNELS_WORKS:
        return "works";
    case RM_CHANNELS_NO_GROUP:
        return "does not work: no compute channels are known (a client of MPS has none)";
    case RM_CHANNELS_NO_GPU:
        return "does not work: the kernel module does not tell on which GPU channels are";
    case RM_CHANNELS_REFUSED:
        return "does not work: the kernel module refuses it";
    case RM_CHANNELS_TOO_SLOW:
        return "does not work: a switch takes longer than 20 ms";
    case RM_CHANNELS_FAILED:
        return "is given up: the kernel module has refused a switch";
    case RM_CHANNELS_RESTORED:
        return "is given up: the driver cannot interrupt kernels after it has restored a "
               "checkpoint";
    default:
        return "was not tried yet";
    }
}

void rm_channels_describe(unsigned device, char ret_words[RM_CHANNELS_WORDS])
{
    enum rm_channels_state state = rm_channels_state(device);
    uint32_t status = load_relaxed(&gate.devices[device].status);
    if (state != RM_CHANNELS_REFUSED && state != RM_CHANNELS_FAILED)
        snprintf(ret_words, RM_CHANNELS_WORDS, "%s", state_words(state));
    else if (status & RM_ROUTE_ERRNO)
        snprintf(ret_words, RM_CHANNELS_WORDS, "%s (errno %u)", state_words(state),
            (unsigned)(status & ~RM_ROUTE_ERRNO));
    else
        snprintf(ret_words, RM_CHANNELS_WORDS, "%s (status %#x%s)", state_words(state), status,
            status == RM_ERR_NOT_SUPPORTED ? ", as without GSP firmware" : "");
}

/* ---- opening and closing ---- */

/* An opener that does not wait for the lock has either seen that the device is closed, or is seen
 * here: its count is raised before it looks, ours is read after the device counts as closed. */
static int close_locked(struct rm_switch *change) REQUIRES(gate_lock)
{
    struct device *own = &gate.devices[change->device];
    if (is_barred())
        return -EBUSY;
    if (own->count)
        (void)test_locked(change->device);
    if (!is_usable(own->state))
        return -ENOTSUP;
    if (own->wanted)
        return 0;
    own->wanted = true;
    store_seq_cst(&own->closed, true);
    uint32_t refused = switch_locked(change);
    if (load_seq_cst(&own->opens) != change->overtaken_at) {
        struct rm_channels_times times;
        (void)open_locked(change->device, &times);
        return -ECANCELED;
    }
    if (refused == RM_OK)
        return (int)change->switched;
    fail_locked(change->device, refused);
    return -ENOTSUP;
}

int rm_channels_close(unsigned device, struct rm_channels_times *ret_times)
{
    const unsigned *opens = &gate.devices[device].opens;
    struct rm_switch change = {
        .device = device, .close = true, .overtaken = opens, .overtaken_at = load_seq_cst(opens)};
    int result = -EIO;
    LOCKED(gate_lock)
        result = close_locked(&change);
    say_failures();
    if (ret_times)
        *ret_times = change.times;
    return result;
}

int rm_channels_open(unsigned device, struct rm_channels_times *ret_times)
{
    struct device *own = &gate.devices[device];
    struct rm_channels_times times = {0};
    int result = 0;
    (void)add_seq_cst(&own->opens, 1u);
    if (load_seq_cst(&own->closed)) {
        container_enter(); /* what a forked child has of its parent is not its own to open */
        LOCKED(gate_lock)
            result = open_locked(device, &times);
        say_failures();
    }
    if (ret_times)
        *ret_times = times;
    return result;
}

static void open_all(void)
{
    for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++)
        (void)rm_channels_open(device, NULL);
}

void rm_channels_hold_open(void)
{
    (void)add_seq_cst(&gate.held, 1u);
    open_all();
}

void rm_channels_release(void)
{
    unsigned held = load_seq_cst(&gate.held);
    while (held && !swap_seq_cst(&gate.held, held, held - 1)) /* 0: reset meanwhile */
        held = load_seq_cst(&gate.held);
}

void rm_channels_end_holds(void)
{
    store_seq_cst(&gate.held, 0u);
}

void rm_channels_finish(void)
{
    store_seq_cst(&gate.finished, true);
    open_all();
}

/* ---- other processes ---- */

static uint32_t ask_pids_locked(unsigned device, struct rm_pids *ret_pids) REQUIRES(gate_lock)
{
    uint32_t status = RM_ERR_NOT_SUPPORTED;
    for (struct rm_group *group = gate.list.first; group; group = group->next) {
        uint32_t subdevice = rm_ledger_subdevice_handle(group->route.client, group->device_handle);
        if (group->device != device || group->gone || !subdevice)
            continue;
        *ret_pids =
            (struct rm_pids){.id_type = RM_PIDS_BY_CLASS, .class_id = RM_CLASS_CHANNEL_GROUP};
        status = rm_route_control(
            &group->route, subdevice, RM_CTRL_GPU_GET_PIDS, ret_pids, sizeof(*ret_pids));
        if (!rm_route_may_be_gone(status))
            break;
    }
    return status;
}

bool rm_channels_processes(unsigned device, struct rm_pids *ret_pids)
{
    LOCKED_TO_END(gate_lock);
    uint32_t status = ask_pids_locked(device, ret_pids);
    return status == RM_OK && ret_pids->count <= RM_PIDS_MAX;
}

/* ---- time slices ---- */

static uint32_t apply_slice(struct rm_group *group, uint64_t us)
{
    uint32_t status = RM_OK;
    if (!us && !group->first_us)
        return RM_OK;
    if (!group->first_us)
        status = rm_route_get_timeslice(&group->route, group->handle, &group->first_us);
    if (status == RM_OK)
        status = rm_route_set_timeslice(&group->route, group->handle, us ? us : group->first_us);
    return status;
}

int rm_channels_set_timeslice(unsigned device, uint64_t us)
{
    int changed = 0;
    bool refused = false;
    LOCKED_TO_END(gate_lock);
    gate.devices[device].slice_us = us;
    for (struct rm_group *group = gate.list.first; group; group = group->next) {
        if (group->device != device || (!us && !group->first_us))
            continue;
        uint32_t status = apply_slice(group, us);
        changed += status == RM_OK;
        group->gone = rm_route_may_be_gone(status);
        refused |= status != RM_OK && !group->gone;
    }
    rm_channel_list_sweep(&gate.list);
    publish_locked();
    return refused ? -EIO : changed;
}

/* ---- the record ---- */

static void add_group(const struct rm_call *call, const struct rm_allocation *allocation)
{
    struct rm_route route;
    uint32_t device_handle = rm_ledger_device_handle(allocation->client, allocation->parent);
    int device = rm_device_index(call->fd, allocation->client, device_handle, call->next);
    if (device < 0) {
        store_relaxed(&gate.unplaced, true);
        return;
    }
    rm_route_init(&route, call->fd, allocation->client, call->next);
    LOCKED_TO_END(gate_lock);
    bool restored = rm_channel_list_is_restored(&gate.list, allocation->client, allocation->object);
    struct rm_group *group = rm_channel_list_add_group(&gate.list, &route, allocation->object);
    if (group) {
        group->restored = restored;
        group->device_handle = device_handle;
        group->device = (unsigned)device;
        (void)!apply_slice(group, gate.devices[device].slice_us);
        publish_locked();
        if (restored)
            give_up_locked(group->device, RM_CHANNELS_RESTORED, RM_OK);
    }
}

static void add_channel(const struct rm_allocation *allocation)
{
    LOCKED_TO_END(gate_lock);
    struct rm_group *group =
        rm_channel_list_find(&gate.list, allocation->client, allocation->parent);
    if (group && group->handle == allocation->parent &&
        rm_channel_list_add_channel(&gate.list, group, allocation->object)) {
        settle_locked(group->device);
    }
}

void rm_channels_added(const struct rm_call *call, const struct rm_allocation *allocation)
{
    if (allocation->class_id == RM_CLASS_CHANNEL_GROUP) {
        if (RM_ENGINE_IS_GR(allocation->engine_type)) {
            add_group(call, allocation);
            say_failures();
        }
    } else if (RM_CLASS_IS_CHANNEL(allocation->class_id) && load_acquire(&gate.groups)) {
        add_channel(allocation);
        say_failures();
    }
}

void rm_channels_scheduled(uint32_t client, uint32_t object)
{
    LOCKED(gate_lock) {
        struct rm_group *group = rm_channel_list_find(&gate.list, client, object);
        if (group && gate.devices[group->device].wanted) {
            for (struct rm_channel *channel = group->channels; channel; channel = channel->next) {
                if (group->handle == object || channel->handle == object)
                    channel->closed = false;
            }
            settle_locked(group->device);
        }
    }
    say_failures();
}

static bool is_above_channels(uint32_t class_id)
{
    return class_id == RM_CLASS_CHANNEL_GROUP || RM_CLASS_IS_CHANNEL(class_id) ||
           class_id == RM_CLASS_DEVICE || class_id == RM_CLASS_CLIENT;
}

struct rm_channels_detached {
    struct rm_group first;
};

struct rm_channels_detached *rm_channels_detach(uint32_t client, uint32_t object, uint32_t class_id)
{
    struct rm_group *taken = NULL;
    if (!load_acquire(&gate.groups) ||
        (class_id != RM_CLASS_SUBDEVICE && !is_above_channels(class_id)))
        return NULL;
    LOCKED(gate_lock) {
        if (class_id == RM_CLASS_SUBDEVICE)
            rm_switch_leave_subdevice(&gate.list, client, object);
        else
            taken = rm_channel_list_take(&gate.list, client, object);
        publish_locked();
    }
    return (struct rm_channels_detached *)taken;
}

void rm_channels_attach(struct rm_channels_detached *detached)
{
    if (!detached)
        return;
    LOCKED(gate_lock) {
        rm_channel_list_put(&gate.list, &detached->first);
        for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++)
            settle_locked(device);
    }
    say_failures();
}

void rm_channels_drop(struct rm_channels_detached *detached)
{
    if (!detached)
        return;
    LOCKED_TO_END(gate_lock);
    rm_channel_list_drop(&gate.list, &detached->first);
}
