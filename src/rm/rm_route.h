/* SPDX-License-Identifier: Apache-2.0 */
/* The way of our own controls to the program's objects: the descriptor on which they were
 * allocated, for as long as it is that one. */
#ifndef VGPU_RM_RM_ROUTE_H
#define VGPU_RM_RM_ROUTE_H

#include "abi/rm.h"
#include "rm/rm_ioctl.h"

#include <stdbool.h>
#include <stdint.h>

struct rm_route {
    int fd;
    rm_ioctl_function *next;
    uint32_t client;
    uint64_t file_device, file_inode, file_number; /* what the descriptor stood for */
};

/* Beside the resource manager's statuses: the ioctl itself failed, with the errno in the lower
 * bits. */
#define RM_ROUTE_ERRNO 0x80000000u

void rm_route_init(struct rm_route *route, int fd, uint32_t client, rm_ioctl_function *next);
bool rm_route_is_same(const struct rm_route *one, const struct rm_route *other);

/* Makes a control; returns its status, or RM_ROUTE_ERRNO and an errno (EBADF: the program closed
 * the descriptor, or has another file there). Keeps errno. */
uint32_t rm_route_control(const struct rm_route *route, uint32_t object, uint32_t command,
    void *params, uint32_t params_size) __attribute__((warn_unused_result));

/* Whether a control that answered `status` may have named what the kernel has freed. */
bool rm_route_may_be_gone(uint32_t status);

/* Disables or enables `count` channels (RM_DISABLE_CHANNELS_MAX at most) of the route's client, by
 * its subdevice. Returns a status as above. */
uint32_t rm_route_switch(const struct rm_route *route, uint32_t subdevice, bool disable,
    const uint32_t *channels, unsigned count) __attribute__((warn_unused_result));

/* The channel group's time slice, in microseconds. */
uint32_t rm_route_get_timeslice(const struct rm_route *route, uint32_t group, uint64_t *ret_us)
    __attribute__((warn_unused_result));
uint32_t rm_route_set_timeslice(const struct rm_route *route, uint32_t group, uint64_t us)
    __attribute__((warn_unused_result));

#endif
