/* SPDX-License-Identifier: Apache-2.0 */
/* This process's account in the region: charge, take back, and what the container uses in all.
 *
 * Never over the limit: an addition is made in the process's own slot first, sequentially
 * consistent, then all live slots are summed; over the limit, it is taken back. No total exists
 * that a killed process could leave wrong.
 *
 * Nothing is lost with the region's file: where others delete, replace or shorten it, the process
 * writes what it holds into the one that takes its place (region_keep), and a limited device is
 * full as long as there is none.
 *
 * All functions are safe in any thread and need account_start first. `device` is a device's number
 * in this process (account_device). Bytes are bytes of device memory (or managed memory, or device
 * memory that is backed by the host). */
#ifndef VGPU_ACCOUNT_ACCOUNT_H
#define VGPU_ACCOUNT_ACCOUNT_H

#include "region/region.h"

#include <stdbool.h>
#include <stdint.h>

enum account_kind {
    ACCOUNT_CONTEXT,
    ACCOUNT_MODULE,
    ACCOUNT_BUFFER,
    ACCOUNT_MANAGED,
    ACCOUNT_UNEXPLAINED,
    ACCOUNT_MOVABLE, /* a buffer that could be backed by the host as well: kept to the share */
    ACCOUNT_SPILLED, /* backed by the host: kept to the budget of host memory */
    ACCOUNT_KINDS,
};

/* What account_view tells. */
struct account_view {
    uint64_t limit_bytes; /* 0: none */
    uint64_t used_bytes;  /* by all live processes of the container */
    bool oversubscribed;  /* the limit may exceed the card's memory */
    bool closed; /* a limit was asked for that is not understood or kept: the device is full */
};

/* Binds the account to an attached region (NULL: none, every charge then answers `without`:
 * 0 or -ENOMEM). Forgets all earlier charges: for the start of a process or of a forked child. */
void account_start(struct region *region, int without);

/* Binds an account that was started without a region, and so refused or counted nothing. Any thread
 * may be charging meanwhile. */
void account_start_late(struct region *region);

/* The number of the device `uuid`, entered in the region where it is new (region_device), or
 * -errno. */
int account_device(const char *uuid, int index) __attribute__((warn_unused_result));

/* Whether more than twice `bytes` were free when this process last looked. A hint, for one load. */
bool account_seems_free(unsigned device, uint64_t bytes);

/* Whether `bytes` more can fit; touches nothing. May retire dead peers. Returns 0 or -ENOMEM.
 * About 0.5 us, plus 0.3 to 0.5 us a peer before a refusal. */
int account_check(unsigned device, uint64_t bytes) __attribute__((warn_unused_result));

/* Adds `bytes` and keeps them where the container's limit allows; they count as pending until
 * account_commit. Waits up to 100 ms for other processes' pending bytes where those alone are in
 * the way of the limit or of the budget of host memory. Returns 0, -ENOMEM or -EDQUOT (see below).
 */
int account_reserve(unsigned device, uint64_t bytes, enum account_kind kind)
    __attribute__((warn_unused_result));

/* ---- more memory than the card has ---- */

#define ACCOUNT_RATIO_ONE (1u << 20)

/* From now on the device's limit may exceed its physical memory: the container's share of that is
 * the limit / ratio, where ratio is in 2^-20; ACCOUNT_RATIO_ONE: as much as the card gives; 0: it
 * may not. account_reserve of ACCOUNT_MOVABLE then answers -EDQUOT, without a word in the log,
 * where the container's memory on the card (all of it, movable or not) would pass the share. */
void account_set_ratio(unsigned device, uint64_t ratio);

uint64_t account_ratio(unsigned device);

/* Whether it may, and the device has a limit. */
bool account_is_oversubscribed(unsigned device);

/* The share itself, in bytes; UINT64_MAX where there is none. */
uint64_t account_share(unsigned device);

/* From now on the container may have `bytes` more of the card than its share, or less (below 0):
 * what tenants lend each other. account_borrowed: what was last said, by any of its processes;
 * account_allowed: the share with that, UINT64_MAX where there is no share. */
void account_set_borrowed(unsigned device, int64_t bytes);
int64_t account_borrowed(unsigned device);
uint64_t account_allowed(unsigned device);

/* What the container's live processes have on the card. */
struct account_places {
    uint64_t resident_bytes;
    uint64_t movable_bytes; /* of these: what could be moved to host memory */
    uint64_t spilled_bytes; /* what was */
};

/* False, and untouched, where there is no region. */
bool account_places(unsigned device, struct account_places *ret_places);

/* This process works, or a call of it waits to (vgpu_usage.worked_ns); and when the last of the
 * container's live processes did. */
void account_note_worked(unsigned device, uint64_t now_ns);
uint64_t account_worked_ns(unsigned device);

/* What of the share, or of what is left or added of it by lending, is left; UINT64_MAX where there
 * is no share. Where less than `wanted` is left, dead processes' memory is given back first. */
uint64_t account_resident_room(unsigned device, uint64_t wanted);

/* How much host memory may back the container's device memory, on all devices together, or be kept
 * ready for that; account_reserve of ACCOUNT_SPILLED then answers -EDQUOT. UINT64_MAX: no bound. */
void account_set_host_budget(uint64_t bytes);
uint64_t account_host_budget(void);

/* What backs it now, of all live processes. */
uint64_t account_spilled_bytes(void);

/* What this process holds as `from` counts as `to` from now on: memory that moves between the card
 * (ACCOUNT_MOVABLE) and the host (ACCOUNT_SPILLED). The sum is the same at every moment. Returns 0,
 * or -EDQUOT where the share or the host's budget has no room for it. */
int account_move(unsigned device, uint64_t bytes, enum account_kind from, enum account_kind to)
    __attribute__((warn_unused_result));

/* Of memory on the card (ACCOUNT_MOVABLE) that moves into host memory which this process had ready:
 * the bytes count as ACCOUNT_SPILLED, and as ready no longer. What the budget bounds is the same.
 */
void account_move_ready(unsigned device, uint64_t bytes);

/* The same as account_move without a question: memory that stays where it was. */
void account_move_back(
    unsigned device, uint64_t bytes, enum account_kind from, enum account_kind to);

/* ---- host memory that is kept ready for the next move ---- */

#define ACCOUNT_READY_ASK_NS 1000000000ull

/* This process is to have so much more ready. Returns 0, or -EDQUOT, with nothing changed, where
 * the host's budget has no room for it, where somebody asked for it less than ACCOUNT_READY_ASK_NS
 * ago, or where no other process could see it. */
int account_add_ready(uint64_t bytes) __attribute__((warn_unused_result));
void account_remove_ready(uint64_t bytes);

/* What the host's budget bounds, of all live processes; without a region, of this one. */
struct account_host {
    uint64_t budget_bytes; /* UINT64_MAX: no bound */
    uint64_t spilled_bytes;
    uint64_t ready_bytes; /* this process's included */
};

struct account_host account_host(void);

/* Asks all processes to give back what they have ready, and to keep nothing for
 * ACCOUNT_READY_ASK_NS, unless somebody has asked for that already. Returns when that was:
 * CLOCK_MONOTONIC; 0 without a region. Wakes the threads that answer, and waits for none. */
uint64_t account_ask_ready(void);

/* Whether somebody asked less than ACCOUNT_READY_ASK_NS ago. */
bool account_ready_is_asked(void);

/* Tools see what became of an order to release memory (vgpu_slot.release, released, lacking). */
void account_show_release(
    uint32_t order, enum vgpu_release_state state, uint64_t released_bytes, uint64_t lacking_bytes);

/* Whether another process has put VGPU_RELEASE_CHECKPOINTED in the place of what was shown last;
 * without a region, whether it had when that was seen last. */
bool account_is_checkpointed(void);

/* Shows VGPU_RELEASE_MOVING in the place of VGPU_RELEASE_PARKED. False, and nothing is changed,
 * where another process was faster with VGPU_RELEASE_CHECKPOINTED. */
bool account_end_parked(void) __attribute__((warn_unused_result));

/* The driver has answered: `bytes` of the reservation are no longer pending. */
void account_commit(unsigned device, uint64_t bytes);

/* Adds what exists already, whatever the limit says. */
void account_add(unsigned device, uint64_t bytes, enum account_kind kind);

/* Takes `bytes` back; a refused or failed reservation is committed before or after. */
void account_release(unsigned device, uint64_t bytes, enum account_kind kind);

/* Memory exported to others and freed here: counts while peers hold imports (see
 * account_set_imported). */
void account_add_lingering(unsigned device, uint64_t bytes);

/* The part of this process's bytes that others may have handles on: what lingers if it dies. */
void account_add_exported(unsigned device, int64_t bytes);

/* How much memory of other processes this one holds handles on. */
void account_set_imported(unsigned device, uint64_t bytes);

/* What this process holds; ACCOUNT_KINDS: in all. */
uint64_t account_own_bytes(unsigned device, enum account_kind kind);

/* The sum for the container, dead processes retired first. */
void account_view(unsigned device, struct account_view *ret_view);

#define ACCOUNT_PROCESSES_MAX VGPU_REGION_SLOTS

struct account_process {
    int pid;                    /* as the process itself knows it */
    uint32_t foreign_namespace; /* inode (the kernel's have 32 bits) of `pid`'s, where that is not
                                   the caller's own; 0: it is */
    uint64_t device_bytes;      /* on the card: without managed and spilled memory */
};

/* The container's live processes that hold memory of the device; returns how many were filled. */
unsigned account_processes(
    unsigned device, struct account_process ret_processes[ACCOUNT_PROCESSES_MAX]);

/* What is in force for the container now. */
struct account_control {
    unsigned char percent[VGPU_REGION_DEVICES]; /* compute limits by device number; 0: none */
    unsigned char soft[VGPU_REGION_DEVICES];    /* soft limits above them, up to 100; 0: none */
    unsigned char set[VGPU_REGION_DEVICES];     /* compute limits, in force or not */
    bool lifted;                                /* HAMi's monitor has them out of force */
    bool paused;                                /* by `vgpu pause` */
    uint32_t release;                           /* vgpu_region.release */
    bool held;                                  /* by HAMi's monitor: recent_kernel below 0 */
    unsigned priority;                          /* 0 high */
    bool has_priority;                          /* somebody gave it one */
    uint64_t coupled_ns; /* when account_note_gang was last called; 0 never */
    bool has_limits;     /* some limit was set, of memory or compute, in force or not */
    uint32_t epoch;      /* of what was read: for account_control_wait */
    uint64_t number;     /* of this reading: a later one of the process has a higher one */
};

/* Reads it; true where there is a compute limit, a pause or a hold. GPU_CORE_UTILIZATION_POLICY and
 * the monitor's utilization_switch are heeded. Looks after the file as a charge does; where there
 * is none, what it last said holds. */
bool account_control(struct account_control *ret_control);

/* Sleeps until the epoch of the control words is no longer `seen`, or the process has attached to
 * another file, or the time is over (UINT64_MAX: none). May return early for no reason, and does
 * after 1 s, so that a file that others replaced is noticed by account_control. Holds no lock
 * meanwhile; keeps errno. */
void account_control_wait(uint32_t seen, uint64_t timeout_ns);

/* The epoch itself, to sleep on (shared, not private) beside other words; NULL where there is no
 * file, or it was shortened. Not to be read. */
uint32_t *account_control_word(void);

/* Whether the epoch is still the one that account_control told: a system call, and no lock. False
 * where that is not known. */
bool account_control_stands(uint32_t seen);

/* Raises the epoch of the control words and wakes all that sleep on it, in all processes of the
 * container. */
void account_control_wake(void);

/* HAMi's monitor is to see that the container's programs work: recent_kernel turns positive, but
 * never from below 0, and last_kernel_time is now, where it is RECORD_KERNEL_INTERVAL old. What
 * dead peers left there goes. For every second or so in which something was launched. */
void account_note_activity(void);

/* Brings the share of GPU time that HAMi's monitor sees of this process up to date. Returns in how
 * long it is to be called again, a second at most; 0: not before there is work again, because the
 * share is 0. One load then. */
uint64_t account_show_work(uint64_t now_ns);

/* For handlers at exit, before they ask the account anything: false where the thread may be in a
 * signal's handler that came in the midst of an answer, and would wait for itself. Takes 10 ms at
 * most. */
bool account_answers_at_end(void) __attribute__((warn_unused_result));

/* The time in which the container's governors keep its GPU closed; CLOCK_MONOTONIC. */
struct account_window {
    uint64_t closed_ns;
    uint64_t until_ns; /* 0: open */
};

#define ACCOUNT_WINDOW_MAX_NS 1000000000ull

/* What the region says; a window that is over, or would last longer than
 * ACCOUNT_WINDOW_MAX_NS from now (it is from before the machine's last start, or made up), is open:
 * all zero. */
struct account_window account_window(uint64_t now_ns);

/* Closes the container's window until then (at most ACCOUNT_WINDOW_MAX_NS from now), raises the
 * epoch and wakes. True where this call closed it: false where it is closed already, where somebody
 * else closes it at the same moment, or where there is no region. */
bool account_window_close(uint64_t now_ns, uint64_t until_ns);

/* Opens it, raises the epoch and wakes, where it is closed. */
void account_window_open(void);

/* Calls `visit` on the words in which the container's GPU time on the device is counted, and on
 * this process's own use (NULL where it has no slot). `visit` is to be short: no driver call, no
 * lock. False, and not called, where there is no region. */
bool account_visit_compute(unsigned device,
    void (*visit)(struct vgpu_compute *words, struct vgpu_usage *own, void *argument),
    void *argument);

/* A launch waited for the limit on the device between the two. */
void account_note_hold(unsigned device, uint64_t from_ns, uint64_t to_ns);

/* Of the launches that waited on the container's other devices while it was `since_ns`, when the
 * last one was admitted that was admitted before `until_ns`; 0: none was. */
uint64_t account_admitted_ns(unsigned device, uint64_t since_ns, uint64_t until_ns);

/* Kernels of the container's devices wait for each other (account_control); all its processes are
 * woken to hear it. */
void account_note_gang(uint64_t now_ns);

/* How many processes of the container asked for GPU time on the device since then
 * (vgpu_usage.asked_ns). */
unsigned account_asking(unsigned device, uint64_t since_ns);

/* Whether the process is one of the container. Also true where that cannot be told: without a
 * region, or where some process of the container is in another PID namespace. */
bool account_may_have_process(int pid);

/* The container's id on the device's registry (vgpu_device.tenant), made where it has none; 0 where
 * there is no region. */
uint64_t account_tenant(unsigned device);

#define ACCOUNT_UUID_BYTES 48

/* The device's UUID, terminated; false where it is not known. */
bool account_uuid(unsigned device, char ret_uuid[ACCOUNT_UUID_BYTES]);

/* How long the container has kept the device busy, as far as was measured; 0 without a region. */
uint64_t account_busy_ns(unsigned device);

/* Names the ledger in use, for tools: 1 resource manager, 2 API. */
void account_set_ledger(unsigned ledger);

#endif
