/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of channels for the control that switches them, and what to make of its refusals. */
#include "rm/rm_channel_switch.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "rm/rm_ledger.h"

#define TEST_TRIES 6 /* a thread that is not run for a while is no slow control */
#define OPEN_TRIES 3

/* Channels that one control can switch. */
struct batch {
    struct rm_group *groups[RM_DISABLE_CHANNELS_MAX];
    struct rm_channel *channels[RM_DISABLE_CHANNELS_MAX];
    unsigned count;
};

enum which { WHICH_OPEN, WHICH_CLOSED, WHICH_ALL };

/* A subdevice may be allocated after the group. */
static uint32_t subdevice_of(struct rm_group *group)
{
    if (!group->subdevice)
        group->subdevice = rm_ledger_subdevice_handle(group->route.client, group->device_handle);
    return group->subdevice;
}

static void gather_group(
    struct batch *batch, struct rm_group *group, enum which which, unsigned round)
{
    struct rm_channel *channel = group->channels;
    for (; channel && batch->count < RM_DISABLE_CHANNELS_MAX; channel = channel->next) {
        if ((which == WHICH_OPEN && channel->closed) ||
            (which == WHICH_CLOSED && !channel->closed) || channel->round == round)
            continue;
        channel->round = round;
        batch->groups[batch->count] = group;
        batch->channels[batch->count++] = channel;
    }
}

/* Channels that had no turn this round and go the same way. False: there is none left. */
static bool gather(
    const struct rm_channel_list *list, unsigned device, enum which which, struct batch *ret_batch)
{
    ret_batch->count = 0;
    for (struct rm_group *group = list->first; group; group = group->next) {
        const struct rm_group *first = ret_batch->count ? ret_batch->groups[0] : group;
        if (group->device == device && !group->gone && subdevice_of(group) &&
            group->subdevice == first->subdevice && rm_route_is_same(&group->route, &first->route))
            gather_group(ret_batch, group, which, list->round);
    }
    return ret_batch->count != 0;
}

/* The control for channels [from, from + count) of the batch. */
static uint32_t switch_channels(const struct batch *batch, unsigned from, unsigned count,
    bool close, struct rm_channels_times *times)
{
    uint32_t handles[RM_DISABLE_CHANNELS_MAX];
    const struct rm_group *group = batch->groups[from];
    for (unsigned i = 0; i < count; i++)
        handles[i] = batch->channels[from + i]->handle;
    if (!times->before_ns)
        times->before_ns = clock_now_ns();
    uint32_t status = rm_route_switch(&group->route, group->subdevice, close, handles, count);
    times->after_ns = clock_now_ns();
    for (unsigned i = 0; status == RM_OK && i < count; i++)
        batch->channels[from + i]->closed = close;
    return status;
}

/* Whether the status comes of objects that the kernel has freed where we did not see it: with their
 * descriptor, or in a way that is not known. Marks them. */
static bool is_gone(struct rm_group *group, struct rm_channel *channel, uint32_t status)
{
    uint64_t us;
    if (!rm_route_may_be_gone(status))
        return false;
    if (rm_route_may_be_gone(rm_route_get_timeslice(&group->route, group->handle, &us)))
        group->gone = true;
    else
        channel->gone = true;
    return true;
}

/* One channel of a list that was refused, which may have been carried out in part. Returns the
 * status; RM_OK where it was freed. */
static uint32_t switch_one(
    const struct batch *batch, unsigned which, bool close, struct rm_channels_times *times)
{
    uint32_t status = RM_OK;
    for (int tries = 0; tries < (close ? 1 : OPEN_TRIES); tries++) {
        status = switch_channels(batch, which, 1, close, times);
        if (status == RM_OK || is_gone(batch->groups[which], batch->channels[which], status))
            return RM_OK;
    }
    if (close)
        (void)!switch_channels(batch, which, 1, false, times);
    return status;
}

/* Once one channel cannot be closed, those after it are let go on: the list may have closed them.
 */
static uint32_t switch_batch(const struct batch *batch, bool close, struct rm_channels_times *times)
{
    uint32_t refused = RM_OK;
    if (switch_channels(batch, 0, batch->count, close, times) == RM_OK)
        return RM_OK;
    for (unsigned i = 0; i < batch->count; i++) {
        if (batch->groups[i]->gone)
            continue;
        uint32_t status = switch_one(batch, i, close && refused == RM_OK, times);
        refused = refused == RM_OK ? status : refused;
    }
    return refused;
}

static unsigned count_switched(const struct batch *batch, bool close)
{
    unsigned count = 0;
    for (unsigned i = 0; i < batch->count; i++)
        count += batch->channels[i]->closed == close && !batch->channels[i]->gone &&
                 !batch->groups[i]->gone;
    return count;
}

static bool may_go_on(const struct rm_switch *change, uint32_t refused)
{
    return !(change->close && refused != RM_OK) &&
           (!change->overtaken || load_seq_cst(change->overtaken) == change->overtaken_at);
}

uint32_t rm_switch_all(struct rm_channel_list *list, struct rm_switch *change)
{
    struct batch batch;
    uint32_t refused = RM_OK;
    enum which which = change->close ? WHICH_OPEN : WHICH_CLOSED;
    list->round++;
    while (may_go_on(change, refused) && gather(list, change->device, which, &batch)) {
        uint32_t status = switch_batch(&batch, change->close, &change->times);
        refused = refused == RM_OK ? status : refused;
        change->switched += count_switched(&batch, change->close);
    }
    rm_channel_list_sweep(list);
    return refused;
}

void rm_switch_leave_subdevice(struct rm_channel_list *list, uint32_t client, uint32_t subdevice)
{
    list->round++;
    for (struct rm_group *group = list->first; group; group = group->next) {
        struct rm_channels_times times = {0};
        struct batch batch = {.count = 0};
        if (group->route.client != client || group->subdevice != subdevice)
            continue;
        for (gather_group(&batch, group, WHICH_CLOSED, list->round); batch.count;
             gather_group(&batch, group, WHICH_CLOSED, list->round)) {
            (void)!switch_batch(&batch, false, &times);
            batch.count = 0;
        }
        group->subdevice = 0;
    }
    rm_channel_list_sweep(list);
}

/* Forgets groups that have gone; returns RM_OK or the status of one that does not answer. */
static uint32_t ask_groups(struct rm_channel_list *list, unsigned device)
{
    uint32_t refused = RM_OK;
    for (struct rm_group *group = list->first; group; group = group->next) {
        uint64_t us;
        if (group->device != device || !group->channels)
            continue;
        uint32_t status = rm_route_get_timeslice(&group->route, group->handle, &us);
        group->gone = rm_route_may_be_gone(status);
        if (status != RM_OK && !group->gone)
            refused = status;
    }
    rm_channel_list_sweep(list);
    return refused;
}

/* What the fastest of each took so far. */
struct switch_times {
    uint64_t enable_ns, disable_ns;
};

static uint64_t longest_of(const struct switch_times *fastest)
{
    return fastest->enable_ns > fastest->disable_ns ? fastest->enable_ns : fastest->disable_ns;
}

/* Enables, disables and enables. Returns a status. */
static uint32_t try_switches(const struct batch *batch, struct switch_times *fastest)
{
    static const bool steps[] = {false, true, false};
    uint32_t status = RM_OK;
    for (unsigned i = 0; status == RM_OK && i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct rm_channels_times times = {0};
        status = switch_channels(batch, 0, batch->count, steps[i], &times);
        uint64_t took = times.after_ns - times.before_ns;
        uint64_t *least = steps[i] ? &fastest->disable_ns : &fastest->enable_ns;
        *least = took < *least ? took : *least;
    }
    return status;
}

enum rm_channels_state rm_switch_test(
    struct rm_channel_list *list, unsigned device, uint32_t *ret_status)
{
    struct batch batch;
    *ret_status = ask_groups(list, device);
    if (*ret_status != RM_OK)
        return RM_CHANNELS_REFUSED;
    list->round++;
    if (!gather(list, device, WHICH_ALL, &batch))
        return RM_CHANNELS_NO_GROUP;
    struct switch_times fastest = {UINT64_MAX, UINT64_MAX};
    for (int tries = 0; tries < TEST_TRIES; tries++) {
        *ret_status = try_switches(&batch, &fastest);
        if (*ret_status != RM_OK) {
            struct rm_channels_times times = {0};
            (void)!switch_channels(&batch, 0, batch.count, false, &times);
            return RM_CHANNELS_REFUSED;
        }
        if (longest_of(&fastest) <= RM_CHANNELS_SLOW_NS)
            return RM_CHANNELS_WORKS;
    }
    return RM_CHANNELS_TOO_SLOW;
}
