/* SPDX-License-Identifier: Apache-2.0 */
/* Controls on the program's objects. */
#include "rm/rm_route.h"

#include "base/file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* The kernel module may be interrupted before it has begun (while the GPU wakes up). */
#define INTERRUPTED_MAX 100

/* All 0 where the descriptor is none of the kernel's: then there is nothing to compare. */
static void identify(struct rm_route *route)
{
    struct stat file;
    bool is_file = file_status(route->fd, &file) == 0;
    route->file_device = is_file ? file.st_dev : 0;
    route->file_inode = is_file ? file.st_ino : 0;
    route->file_number = is_file ? file.st_rdev : 0;
}

void rm_route_init(struct rm_route *route, int fd, uint32_t client, rm_ioctl_function *next)
{
    *route = (struct rm_route){.fd = fd, .next = next, .client = client};
    identify(route);
}

bool rm_route_is_same(const struct rm_route *one, const struct rm_route *other)
{
    return one->fd == other->fd && one->client == other->client && one->next == other->next &&
           one->file_device == other->file_device && one->file_inode == other->file_inode &&
           one->file_number == other->file_number;
}

static bool is_still_there(const struct rm_route *route)
{
    struct rm_route now = *route;
    identify(&now);
    return rm_route_is_same(route, &now);
}

uint32_t rm_route_control(const struct rm_route *route, uint32_t object, uint32_t command,
    void *params, uint32_t params_size)
{
    struct rm_control call = {.client = route->client,
        .object = object,
        .cmd = command,
        .params = (uintptr_t)params,
        .params_size = params_size,
        .status = RM_ROUTE_ERRNO | EIO};
    if (!is_still_there(route))
        return RM_ROUTE_ERRNO | EBADF;
    int errno_kept = errno, error = EINTR;
    int result = -1;
    for (int tries = 0; result != 0 && error == EINTR && tries < INTERRUPTED_MAX; tries++) {
        result = route->next(route->fd, RM_IOCTL_CONTROL, &call);
        error = errno;
    }
    errno = errno_kept;
    return result != 0 ? RM_ROUTE_ERRNO | (uint32_t)error : call.status;
}

bool rm_route_may_be_gone(uint32_t status)
{
    switch (status) {
    case RM_ERR_INVALID_CLIENT:
    case RM_ERR_INVALID_OBJECT_HANDLE:
    case RM_ERR_OBJECT_NOT_FOUND:
    case RM_ROUTE_ERRNO | EBADF:
    case RM_ROUTE_ERRNO | ENOTTY: /* another file of the same device number and inode */
        return true;
    default:
        return false;
    }
}

uint32_t rm_route_switch(const struct rm_route *route, uint32_t subdevice, bool disable,
    const uint32_t *channels, unsigned count)
{
    struct rm_disable_channels params = {.disable = disable, .count = count};
    for (unsigned i = 0; i < count; i++) {
        params.clients[i] = route->client;
        params.channels[i] = channels[i];
    }
    return rm_route_control(
        route, subdevice, RM_CTRL_FIFO_DISABLE_CHANNELS, &params, sizeof(params));
}

uint32_t rm_route_get_timeslice(const struct rm_route *route, uint32_t group, uint64_t *ret_us)
{
    struct rm_timeslice params = {0};
    uint32_t status =
        rm_route_control(route, group, RM_CTRL_GET_TIMESLICE, &params, sizeof(params));
    if (status == RM_OK)
        *ret_us = params.timeslice_us;
    return status;
}

uint32_t rm_route_set_timeslice(const struct rm_route *route, uint32_t group, uint64_t us)
{
    struct rm_timeslice params = {.timeslice_us = us};
    return rm_route_control(route, group, RM_CTRL_SET_TIMESLICE, &params, sizeof(params));
}
