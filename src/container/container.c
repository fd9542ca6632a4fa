/* SPDX-License-Identifier: Apache-2.0 */
/* The process's membership of its container. */
#include "container/container.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/guard.h"
#include "base/lock.h"
#include "base/log.h"
#include "config/config_oversubscription.h"
#include "config/config_process.h"
#include "driver/device_list.h"
#include "driver/instance.h"
#include "account/account.h"
#include "region/grant.h"
#include "region/region.h"
#include "region/region_device.h"
#include "region/region_file.h"

#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define ABOVE_MAX 4 /* that container_on_reset is for: rm, memory, hook, hook/door */
#define ATTACH_RETRY_NS 1000000000ull

static struct {
    struct lock lock; /* attaching devices; held over file locks, never over driver calls */
    struct config config;
    struct grant grant;
    struct region region;
    bool limited; /* somebody meant to limit memory: what cannot be told or kept is closed */
    bool attached;
    bool may_attach; /* what stood in the way may pass */
    uint64_t attach_failed_ns;
    int attach_error; /* of the attempt at the start */
} container = {.region = {.fd = -1, .slot = -1}};

static void (*reset_above[ABOVE_MAX])(void);

void container_on_reset(void (*reset)(void))
{
    unsigned i = 0;
    while (i < ABOVE_MAX && reset_above[i])
        i++;
    if (i < ABOVE_MAX)
        reset_above[i] = reset;
}

static void copy_text(char *to, const char *from, size_t bytes)
{
    if (from[0])
        snprintf(to, bytes, "%s", from);
}

/* A grant goes before the environment, which its container can change: limits, region, priority,
 * policy, ledger and gate are not taken from there. */
static void take_grant(void)
{
    struct config *config = &container.config;
    struct grant_texts texts;
    grant_close(&container.grant);
    grant_open(&container.grant, GRANT_PATH);
    if (!grant_is_given(&container.grant))
        return;
    grant_texts(&container.grant, &texts);
    config_forget_limits(config);
    config_oversubscription_set(config, texts.memory_ratio);
    config->grant = &container.grant;
    copy_text(config->region_path, texts.region_path, sizeof(config->region_path));
    config->region_named = texts.region_path[0] || config->region_named;
    config->region_too_long = false;
    struct config_identity *identity = &config->identity;
    copy_text(identity->pod_name, texts.pod_name, sizeof(identity->pod_name));
    copy_text(identity->text[CONFIG_POD_NAMESPACE], texts.pod_namespace, sizeof(identity->text[0]));
    copy_text(identity->text[CONFIG_POD_UID], texts.pod_uid, sizeof(identity->text[0]));
    copy_text(
        identity->text[CONFIG_CONTAINER_NAME], texts.container_name, sizeof(identity->text[0]));
    identity->given |= texts.pod_name[0] || texts.pod_uid[0] || texts.container_name[0];
}

/* A program that runs with more rights than its caller (set-user-ID) does not listen to the
 * caller's environment, and makes no file: only a pinned region holds it.
 *
 * What a forked child inherited is let go without closing the descriptor: the parent's slot stays
 * locked through it as long as the child also holds the driver's descriptors. */
void container_reset(void)
{
    lock_reset(&container.lock);
    guard_reset();
    region_abandon(&container.region);
    bool secure = getauxval(AT_SECURE) != 0;
    config_process_read(&container.config, secure);
    take_grant();
    bool pinned = region_file_is_pinned() && !container.config.grant;
    device_list_reset();
    instance_reset();
    for (unsigned i = 0; i < ABOVE_MAX && reset_above[i]; i++)
        reset_above[i]();
    bool granted = container.config.grant;
    int error = secure && !pinned && !granted ? -EPERM
                                              : region_attach(&container.region, &container.config);
    container.limited = pinned || granted || config_limits_memory(&container.config);
    container.attached = !error;
    container.attach_error = error;
    container.may_attach = error && container.limited && (!secure || pinned || granted);
    container.attach_failed_ns = clock_now_ns();
    account_start(error ? NULL : &container.region, error && container.limited ? -ENOMEM : 0);
    account_set_host_budget(config_host_pool(&container.config));
    if (!error)
        log_debug("this process has slot %d of the container's region %s", container.region.slot,
            container.region.path);
}

static void attach_again_locked(void) REQUIRES(container.lock)
{
    if (container.grant.closed) /* want of descriptors, say, passes */
        take_grant();
    if (container.attached || region_attach_again(&container.region, &container.config) != 0) {
        store_relaxed(&container.attach_failed_ns, clock_now_ns());
        return;
    }
    log_warning("the shared region %.256s can be used now", container.region.path);
    account_start_late(&container.region);
    store_release(&container.attached, true);
}

/* Want of descriptors or of room, say, passes. Until then everything is refused where there is a
 * limit, so that nothing is held that the account would not know; without one nothing is tried
 * again, for that reason. */
static bool is_attached(void)
{
    if (load_acquire(&container.attached))
        return true;
    if (!container.may_attach ||
        clock_now_ns() - load_relaxed(&container.attach_failed_ns) < ATTACH_RETRY_NS)
        return false;
    int errno_kept = errno;
    if (lock_try(&container.lock)) { /* else somebody is at it, maybe this very thread */
        if (clock_now_ns() - load_relaxed(&container.attach_failed_ns) >= ATTACH_RETRY_NS)
            attach_again_locked();
        lock_release(&container.lock);
    }
    errno = errno_kept;
    return load_acquire(&container.attached);
}

void container_prepare_devices(void)
{
    if (config_is_indexed(&container.config))
        device_list_prepare();
}

void container_confirm_device(const char *uuid)
{
    if (config_is_indexed(&container.config))
        device_list_confirm(instance_of(uuid));
}

const struct config *container_config(void)
{
    return &container.config;
}

/* A limit that was set for some position must not be lost because the order cannot be told: then
 * devices count in the order in which they are met. */
static int position_locked(const char *uuid) REQUIRES(container.lock)
{
    static bool logged;
    if (!config_is_indexed(&container.config))
        return -1;
    int position = device_list_position(container.config.device_lists, uuid);
    if (position >= 0)
        return position;
    if (!logged)
        log_warning("the position of %s in the container's device list cannot be told; devices "
                    "count in the order in which they are met",
            uuid);
    logged = true;
    return REGION_INDEX_AS_MET;
}

void container_file(struct container_file *ret_file)
{
    bool attached = is_attached();
    const struct region *region = &container.region;
    *ret_file = (struct container_file){
        .path = attached ? region->path : container.config.region_path,
        .error = attached ? 0 : container.attach_error,
        .pinned = attached && region->pinned,
        .slot = attached ? region->slot : -1,
    };
}

int container_unidentified_device(void)
{
    return container.limited ? CONTAINER_DEVICE_CLOSED : CONTAINER_DEVICE_UNKNOWN;
}

static void say_not_entered(const char *uuid, int error) REQUIRES(container.lock)
{
    static bool logged;
    const char *path = container.region.path; /* the log escapes it */
    if (logged)
        return;
    logged = true;
    if (container.limited)
        log_error("the shared region %s cannot take %s: %s; the device looks full", path, uuid,
            strerror(-error));
    else
        log_info("the shared region %s cannot take %s: %s", path, uuid, strerror(-error));
}

static int enter_device(const char *uuid)
{
    int errno_kept = errno;
    int device = -ENODEV;
    LOCKED(container.lock) {
        device = account_device(uuid, position_locked(uuid));
        if (device < 0) {
            say_not_entered(uuid, device);
        } else {
            int position = container.region.devices[device].index;
            account_set_ratio(
                (unsigned)device, config_oversubscription(&container.config, position));
            log_debug("device %d is %s", device, uuid);
        }
    }
    errno = errno_kept;
    return device >= 0 ? device : container_unidentified_device();
}

int container_device(const char *uuid)
{
    if (!is_attached())
        return container_unidentified_device();
    uuid = instance_of(uuid);
    int device = region_device_known(&container.region, uuid);
    if (device >= 0)
        return device;
    return device_list_is_learning() ? container_unidentified_device() : enter_device(uuid);
}

bool container_memory_view(int device, uint64_t physical_total, uint64_t physical_free,
    uint64_t *ret_total, uint64_t *ret_used, uint64_t *ret_free)
{
    struct account_view view = {.closed = device == CONTAINER_DEVICE_CLOSED};
    if (device >= 0)
        account_view((unsigned)device, &view);
    if (view.closed) {
        *ret_total = *ret_used = physical_total;
        *ret_free = 0;
        return true;
    }
    if (device < 0 || !view.limit_bytes)
        return false;
    bool beyond = view.oversubscribed; /* the card's own memory bounds nothing */
    uint64_t total =
        beyond || view.limit_bytes < physical_total ? view.limit_bytes : physical_total;
    uint64_t free = view.used_bytes < total ? total - view.used_bytes : 0;
    *ret_total = total;
    *ret_used = view.used_bytes;
    *ret_free = beyond || free < physical_free ? free : physical_free;
    return true;
}
