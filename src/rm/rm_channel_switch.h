/* SPDX-License-Identifier: Apache-2.0 */
/* Disables and enables recorded channels, at most 64 with a control. The owner of the list holds
 * its lock; nothing here waits for anything but the controls. */
#ifndef VGPU_RM_RM_CHANNEL_SWITCH_H
#define VGPU_RM_RM_CHANNEL_SWITCH_H

#include "rm/rm_channel_list.h"
#include "rm/rm_channels_state.h"

struct rm_switch {
    unsigned device;
    bool close;
    const unsigned *overtaken; /* stops where this is no longer `overtaken_at`; NULL: never */
    unsigned overtaken_at;
    struct rm_channels_times times; /* out */
    unsigned switched;              /* out: channels */
};

/* Switches all channels of the device that are not so; those of groups without a subdevice cannot
 * be. Returns RM_OK, or the status of the first that was refused (rm/rm_route.h): then nothing
 * more is closed, and what could not be closed was let go on; what could not be opened counts as
 * closed still. Channels that the kernel does not know any more are forgotten. */
uint32_t rm_switch_all(struct rm_channel_list *list, struct rm_switch *change)
    __attribute__((warn_unused_result));

/* Opens what is switched through the subdevice, which is about to go. */
void rm_switch_leave_subdevice(struct rm_channel_list *list, uint32_t client, uint32_t subdevice);

/* The self-test of rm/rm_channels.h: what it found, with the status of what was refused. */
enum rm_channels_state rm_switch_test(
    struct rm_channel_list *list, unsigned device, uint32_t *ret_status);

#endif
