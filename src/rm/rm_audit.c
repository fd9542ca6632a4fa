/* SPDX-License-Identifier: Apache-2.0 */
/* Controls of our own on the program's subdevices. */
#include "rm/rm_audit.h"

#include "abi/rm.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "container/container.h"
#include "rm/rm_charging.h"
#include "rm/rm_ledger.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define AUDIT_PERIOD_NS 1000000000ull
#define IMPORT_BYTES (1ull << 50) /* where its size is not told: more than any card has */

static struct {
    uint64_t last_ns[VGPU_REGION_DEVICES];
    bool difference_logged;
    struct rm_audit result;
} audit;

void rm_audit_reset(void)
{
    memset(&audit, 0, sizeof(audit));
}

void rm_audit_last(struct rm_audit *ret_audit)
{
    *ret_audit = audit.result;
}

#define IOCTL_FAILED UINT32_MAX

/* Returns the control's status, or IOCTL_FAILED. */
static uint32_t control(int fd, uint32_t client, uint32_t object, uint32_t command, void *params,
    uint32_t params_size, rm_ioctl_function *next)
{
    struct rm_control call = {.client = client,
        .object = object,
        .cmd = command,
        .params = (uintptr_t)params,
        .params_size = params_size,
        .status = IOCTL_FAILED};
    int errno_kept = errno;
    int result = next(fd, RM_IOCTL_CONTROL, &call);
    errno = errno_kept;
    return result == 0 ? call.status : IOCTL_FAILED;
}

/* Asked once more where it fails: memory on a GPU that is not told is not charged, and the audit
 * that finds it is a second away. */
static uint32_t ask_gid(int fd, uint32_t client, uint32_t subdevice, struct rm_gid_info *ret_gid,
    rm_ioctl_function *next)
{
    uint32_t status = IOCTL_FAILED;
    for (int tries = 0; tries < 2 && status != RM_OK; tries++) {
        *ret_gid = (struct rm_gid_info){.flags = RM_GID_FLAGS_ASCII};
        status = control(
            fd, client, subdevice, RM_CTRL_GPU_GET_GID_INFO, ret_gid, sizeof(*ret_gid), next);
    }
    return status;
}

static int device_index_ask(
    int fd, uint32_t client, uint32_t device_handle, rm_ioctl_function *next)
{
    uint32_t subdevice = rm_ledger_subdevice_handle(client, device_handle);
    struct rm_gid_info gid;
    if (!subdevice || ask_gid(fd, client, subdevice, &gid, next) != RM_OK)
        return RM_DEVICE_UNKNOWN;
    gid.data[sizeof(gid.data) - 1] = '\0';
    return container_device((const char *)gid.data);
}

bool rm_device_may_be_asked(int fd, uint32_t client, uint32_t subdevice, rm_ioctl_function *next)
{
    struct rm_gid_info gid;
    return ask_gid(fd, client, subdevice, &gid, next) != IOCTL_FAILED;
}

int rm_device_index(int fd, uint32_t client, uint32_t device_handle, rm_ioctl_function *next)
{
    int index = rm_ledger_device_index(client, device_handle);
    if (index == RM_DEVICE_UNKNOWN) {
        index = device_index_ask(fd, client, device_handle, next);
        if (index >= 0)
            rm_ledger_set_device_index(client, device_handle, index);
    }
    return index;
}

/* Bytes that no object of ours explains count as a kind of their own. */
static void settle(unsigned device, uint64_t ledger_bytes, uint64_t manager_bytes)
{
    uint64_t excess = manager_bytes > ledger_bytes ? manager_bytes - ledger_bytes : 0;
    uint64_t counted = account_own_bytes(device, ACCOUNT_UNEXPLAINED);
    if (excess > counted)
        account_add(device, excess - counted, ACCOUNT_UNEXPLAINED);
    else if (counted > excess)
        account_release(device, counted - excess, ACCOUNT_UNEXPLAINED);
}

static void compare(unsigned device, const struct rm_pid_info *info, uint64_t ledger_bytes)
{
    uint64_t manager_bytes = info->private_bytes + info->shared_owned_bytes;
    account_set_imported(device, info->shared_duped_bytes);
    add_relaxed(&audit.result.count, 1u);
    store_relaxed(&audit.result.ledger_bytes, ledger_bytes);
    store_relaxed(&audit.result.manager_bytes, manager_bytes);
    if (manager_bytes != ledger_bytes) {
        add_relaxed(&audit.result.differences, 1u);
        if (!exchange_acq_rel(&audit.difference_logged, true))
            log_message("device %u: the ledger holds %llu bytes, the driver says %llu; the larger "
                        "counts",
                device, (unsigned long long)ledger_bytes, (unsigned long long)manager_bytes);
    }
    settle(device, ledger_bytes, manager_bytes);
}

bool rm_audit_has_figure(void)
{
    return load_relaxed(&audit.result.count) != 0;
}

/* The driver's figure for this process; false where it gives none. 0 means that it knows the
 * process under another pid, unless it knew it before. */
static bool read_figure(int fd, uint32_t client, uint32_t subdevice, struct rm_pid_info *ret_info,
    rm_ioctl_function *next)
{
    struct rm_pid_info_list list;
    memset(&list, 0, sizeof(list));
    list.count = 1;
    list.list[0].pid = (uint32_t)getpid();
    list.list[0].index = RM_PID_INFO_INDEX_VIDEO_MEMORY;
    if (control(fd, client, subdevice, RM_CTRL_GPU_GET_PID_INFO, &list, sizeof(list), next) !=
            RM_OK ||
        list.list[0].result != RM_OK)
        return false;
    *ret_info = list.list[0];
    return rm_audit_has_figure() ||
           list.list[0].private_bytes + list.list[0].shared_owned_bytes != 0;
}

static bool is_due(uint64_t last, uint64_t now)
{
    return !last || now - last >= AUDIT_PERIOD_NS;
}

bool rm_audit_is_due(unsigned device)
{
    return is_due(load_relaxed(&audit.last_ns[device]), clock_now_ns());
}

enum rm_audited rm_audit(
    int fd, uint32_t client, uint32_t device_handle, bool now, rm_ioctl_function *next)
{
    int index = rm_ledger_device_index(client, device_handle);
    uint32_t subdevice = rm_ledger_subdevice_handle(client, device_handle);
    if (index < 0 || !subdevice || !rm_charging_is_on())
        return RM_AUDIT_NOT_DONE;
    unsigned device = (unsigned)index;
    uint64_t time = clock_now_ns();
    uint64_t last = load_relaxed(&audit.last_ns[device]);
    if ((!now && !is_due(last, time)) || !swap_seq_cst(&audit.last_ns[device], last, time))
        return RM_AUDIT_NOT_DONE;
    uint64_t version, version_after;
    bool quiet = !rm_charging_has_call();
    uint64_t ledger_bytes = rm_ledger_bytes(device, &version);
    struct rm_pid_info info;
    if (!read_figure(fd, client, subdevice, &info, next)) {
        account_set_imported(device, rm_ledger_imports() ? IMPORT_BYTES : 0);
        return RM_AUDIT_BLIND;
    }
    /* Another thread's allocation in between would look like a difference. What was to be known at
     * once is seen when that is settled. */
    (void)rm_ledger_bytes(device, &version_after);
    if (!quiet || rm_charging_has_call() || version != version_after) {
        if (now)
            store_relaxed(&audit.last_ns[device], (uint64_t)0);
        return RM_AUDIT_NOT_DONE;
    }
    compare(device, &info, ledger_bytes);
    return RM_AUDIT_DONE;
}
