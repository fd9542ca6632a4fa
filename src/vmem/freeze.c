/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that moves. It sleeps on the epoch of the region's control words: an order raises it,
 * and so does a thread of the program that wants memory back. */
#include "vmem/freeze.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/word.h"
#include "config/config_oversubscription.h"
#include "container/container.h"
#include "driver/own_thread.h"
#include "memory/memory.h"
#include "pace/halt.h"
#include "pace/pace.h"
#include "account/account.h"
#include "vmem/host_pool.h"
#include "vmem/host_pool_fill.h"
#include "vmem/park.h"
#include "vmem/range_move.h"
#include "vmem/vmem_parts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Nanoseconds that an order waits for the process's work to end, and that memory which is to come
 * back does: what runs then can only be what passed the gate just before. */
#define DRAIN_NS 5000000000ull
/* The same without an order (VGPU_IDLE_RELEASE): the process is idle, or it is not. */
#define IDLE_DRAIN_NS 100000000ull
/* Nanoseconds that a halt waits for calls that are on their way: allocations, say. */
#define HALT_NS 5000000000ull
/* Nanoseconds between two tries to stop a world in which a stream captures. */
#define CAPTURE_NS 20000000ull
/* Nanoseconds between two looks at the control words, and of a sleep in between. */
#define LOOK_NS 1000000000ull
#define WAIT_NS 20000000ull
#define MIB_OF(bytes) ((unsigned long long)((bytes) >> 20))

enum frozen {
    THAWED,
    BY_PAUSE,  /* work waits for the end of the order, unless the pause holds it back by itself */
    BY_DEMAND, /* the next work has it end */
};

enum thread_state { ABSENT, RUNS };

bool freeze_is_watched;

static struct {
    int32_t pid; /* whose end is watched; 0: no process's yet */
    uint32_t thread;
    uint32_t frozen; /* enum frozen; slept on */
    bool wanted;     /* some thread waits for the memory */
    uint32_t order;  /* that was carried out last */
    enum vgpu_release_state state;
    uint64_t released_bytes;     /* as shown last */
    uint64_t entries, worked_ns; /* of world_entries, and when they last changed */
    uint64_t retry_ns;           /* when what did not come back is tried again; 0: never */
    uint32_t parked;             /* the world is stopped, and a halt lasts; slept on */
    bool ends;                   /* the process: it is to be parked no longer */
} freeze;

void freeze_reset(void)
{
    memset(&freeze, 0, sizeof(freeze));
    freeze_is_watched = false;
}

bool freeze_holds(void)
{
    return load_acquire(&freeze.frozen) != THAWED;
}

static enum vgpu_release kind_of(uint32_t order)
{
    return (enum vgpu_release)(order & 3);
}

/* Work waits for the end of such an order. */
static bool holds_work(enum vgpu_release kind)
{
    return kind == VGPU_RELEASE_PAUSE || kind == VGPU_RELEASE_CHECKPOINT;
}

/* Over all ranges. */
static uint64_t sum_of(uint64_t (*bytes_of)(const struct range *range))
{
    CUdeviceptr cursor = 0;
    uint64_t bytes = 0;
    struct range *range;
    while ((range = vmem_use_next(&cursor))) {
        bytes += bytes_of(range);
        (void)vmem_leave(range);
    }
    return bytes;
}

static void show(enum vgpu_release_state state, uint64_t lacking_bytes)
{
    freeze.state = state;
    freeze.released_bytes = sum_of(range_moved_bytes);
    account_show_release(freeze.order, state, freeze.released_bytes, lacking_bytes);
}

/* Memory that was moved away may have been freed since. */
static void show_what_is_left(void)
{
    if (freeze.released_bytes && sum_of(range_moved_bytes) != freeze.released_bytes)
        show(freeze.state, 0);
}

/* What the driver has to find room for when it restores the process. */
static uint64_t on_card_bytes(void)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        bytes += account_own_bytes(i, ACCOUNT_KINDS) - account_own_bytes(i, ACCOUNT_SPILLED);
    return bytes;
}

/* ---- threads that want to work ---- */

static uint32_t order_now(struct account_control *control)
{
    (void)account_control(control);
    return control->release;
}

/* False where the pause holds launches back itself: what passes it (a copy) may go on, as its
 * memory is on the host, and as right as ever. */
static bool wait_for_order(void)
{
    struct account_control control;
    enum vgpu_release kind = kind_of(order_now(&control));
    if (kind == VGPU_RELEASE_PAUSE && control.paused)
        return false;
    if (holds_work(kind))
        account_control_wait(control.epoch, WAIT_NS);
    else
        word_wait_for(&freeze.frozen, BY_PAUSE, WAIT_NS);
    return true;
}

static void want_back(void)
{
    if (!exchange_acq_rel(&freeze.wanted, true))
        account_control_wake();
    if (load_acquire(&freeze.frozen) == BY_DEMAND)
        word_wait_for(&freeze.frozen, BY_DEMAND, WAIT_NS);
}

/* world_ask_before. A capture is to come to its end: nothing is moved meanwhile. */
static void before_work(void)
{
    int errno_kept = errno;
    world_note_wait();
    uint32_t frozen;
    while ((frozen = load_acquire(&freeze.frozen)) != THAWED && !world_is_finished() &&
           !world_captures()) {
        if (frozen == BY_DEMAND)
            want_back();
        else if (!wait_for_order())
            break;
    }
    errno = errno_kept;
}

static void set_frozen(enum frozen frozen)
{
    store_release(&freeze.frozen, (uint32_t)frozen);
    world_ask_before(WORLD_FREEZE, frozen == THAWED ? NULL : before_work);
    word_wake(&freeze.frozen);
}

/* ---- out and in ---- */

/* Of all ranges; *ret_bytes: what was moved. */
static CUresult move_all(bool out, uint64_t *ret_bytes)
{
    CUdeviceptr cursor = 0;
    CUresult result = CUDA_SUCCESS;
    struct range *range;
    *ret_bytes = 0;
    while (!world_is_finished() && (range = vmem_use_next(&cursor))) {
        uint64_t moved;
        CUresult here = out ? range_move_away(range, &moved) : range_move_back(range, &moved);
        *ret_bytes += moved;
        result = result == CUDA_SUCCESS ? here : result;
        (void)vmem_leave(range);
    }
    return result;
}

/* What lacks of host memory for the bytes; 0: nothing. What is ready beyond them goes back first:
 * others that are released at the same time may need it, and until the end of its own release this
 * thread answers nobody. */
static uint64_t lacking_bytes(uint64_t bytes)
{
    host_pool_shrink(bytes);
    uint64_t left = host_pool_room_for(bytes);
    return bytes > left ? bytes - left : 0;
}

/* What a stream captures is put off, as long as there is time. */
static int stop_world(uint64_t timeout_ns)
{
    uint64_t until = clock_now_ns() + timeout_ns;
    int error;
    while ((error = world_stop(timeout_ns)) == -EBUSY && clock_now_ns() < until)
        word_wait_for(&freeze.frozen, load_relaxed(&freeze.frozen), CAPTURE_NS);
    return error;
}

static enum vgpu_release_state refused(int error)
{
    log_message(error == -EBUSY
                    ? "its memory stays on the card: a stream captures work into a graph"
                    : "its memory stays on the card: its work on the GPU does not end");
    return error == -EBUSY ? VGPU_RELEASE_CAPTURES : VGPU_RELEASE_NOT_DRAINED;
}

/* ---- parked ---- */

/* Back at its addresses, with the world stopped still. False: it is tried again. */
static bool unpark(void)
{
    if (!park_in()) {
        log_error("the driver does not map all of its host memory again: its calls wait");
        freeze.retry_ns = clock_now_ns() + LOOK_NS;
        return false;
    }
    freeze.retry_ns = 0;
    halt_end();
    return true;
}

/* The program's calls may use memory again. */
static void end_park(void)
{
    store_release(&freeze.parked, 0u);
    word_wake(&freeze.parked);
}

/* Where it cannot be, the process is released and no more. */
static bool park(void)
{
    /* Said first: a process that ends either sees it and waits, or is seen to end. */
    store_seq_cst(&freeze.parked, 1u);
    if (load_seq_cst(&freeze.ends) || !halt_begin(HALT_NS)) {
        end_park();
        return false;
    }
    if (park_out())
        return true;
    if (!park_holds() && unpark())
        end_park();
    return false;
}

/* ---- orders ---- */

static enum vgpu_release_state move_out(enum frozen frozen, bool parks)
{
    uint64_t bytes = 0, began_ns = clock_now_ns(), ready = host_pool_bytes();
    CUresult result = move_all(true, &bytes);
    ready -= host_pool_bytes() < ready ? host_pool_bytes() : ready;
    set_frozen(frozen);
    log_info("%llu MiB of device memory went to host memory in %llu ms; %llu MiB of that was ready",
        MIB_OF(bytes), (unsigned long long)((clock_now_ns() - began_ns) / 1000000), MIB_OF(ready));
    if (parks && result == CUDA_SUCCESS && park())
        return VGPU_RELEASE_PARKED;
    if (!load_relaxed(&freeze.parked))
        world_start();
    return result == CUDA_SUCCESS ? VGPU_RELEASE_DONE : VGPU_RELEASE_PARTLY;
}

/* A drain and copies go through the driver: closed channels are opened for them. */
static void release_memory(enum frozen frozen, uint64_t drain_ns, bool parks)
{
    enum vgpu_release_state state = VGPU_RELEASE_MOVING;
    uint64_t lacking = lacking_bytes(sum_of(range_movable_bytes));
    show(state, 0);
    if (frozen == BY_PAUSE)
        set_frozen(frozen); /* the launch gate: until the pause is in force */
    if (lacking) {
        state = VGPU_RELEASE_NO_ROOM;
    } else {
        pace_context_ends();
        int error = stop_world(drain_ns);
        state = error ? refused(error) : move_out(frozen, parks);
        pace_context_ended();
    }
    if (state >= VGPU_RELEASE_NOT_DRAINED && state != VGPU_RELEASE_PARKED)
        set_frozen(THAWED);
    show(state, state == VGPU_RELEASE_PARKED ? on_card_bytes() : lacking);
}

/* `stopped`: the world is, because the process was parked. */
static void give_back(bool stopped)
{
    uint64_t bytes = 0, began_ns = clock_now_ns();
    store_release(&freeze.wanted, false);
    freeze.retry_ns = 0;
    show(VGPU_RELEASE_MOVING, 0);
    pace_context_ends();
    int error = stopped ? 0 : freeze.released_bytes ? stop_world(DRAIN_NS) : -ENODATA;
    if (!error)
        (void)move_all(false, &bytes);
    else if (error != -ENODATA)
        freeze.retry_ns = clock_now_ns() + LOOK_NS;
    set_frozen(THAWED);
    if (!error)
        world_start();
    pace_context_ended();
    if (!error)
        log_info("%llu MiB of device memory came back in %llu ms", MIB_OF(bytes),
            (unsigned long long)((clock_now_ns() - began_ns) / 1000000));
    show(sum_of(range_moved_bytes) ? VGPU_RELEASE_PARTLY : VGPU_RELEASE_IDLE, 0);
}

/* ---- the thread ---- */

/* True where the order is to be heeded as any other. While the driver has it checkpointed none is.
 */
static bool heed_parked(uint32_t order)
{
    bool stays = kind_of(order) == VGPU_RELEASE_CHECKPOINT && !load_acquire(&freeze.ends) &&
                 freeze.state == VGPU_RELEASE_PARKED;
    if (account_is_checkpointed() || clock_now_ns() < freeze.retry_ns ||
        (stays && order == freeze.order))
        return false;
    /* From here on nobody has the driver checkpoint it. */
    if (freeze.state == VGPU_RELEASE_PARKED && !account_end_parked())
        return false;
    if (stays) {
        freeze.order = order;
        show(VGPU_RELEASE_PARKED, on_card_bytes());
        return false;
    }
    freeze.state = VGPU_RELEASE_MOVING;
    if (!unpark())
        return false;
    bool is_over = kind_of(order) == VGPU_RELEASE_NONE;
    if (is_over) {
        freeze.order = order;
        give_back(true);
    } else {
        world_start();
    }
    end_park();
    return !is_over && !load_acquire(&freeze.ends);
}

static void heed(uint32_t order)
{
    if (load_relaxed(&freeze.parked) && !heed_parked(order))
        return;
    enum vgpu_release kind = kind_of(order);
    bool is_new = order != freeze.order;
    freeze.order = order;
    if (is_new && holds_work(kind))
        release_memory(BY_PAUSE, DRAIN_NS, kind == VGPU_RELEASE_CHECKPOINT);
    else if (is_new && kind == VGPU_RELEASE_ON_DEMAND)
        release_memory(BY_DEMAND, DRAIN_NS, false);
    else if (is_new)
        give_back(false);
    if (load_acquire(&freeze.wanted) && load_acquire(&freeze.frozen) == BY_DEMAND)
        give_back(false);
}

/* True where the process has had no GPU work for as long as it was told to wait. */
static bool is_idle(uint64_t now_ns, uint64_t idle_ns)
{
    uint64_t entries = world_entries();
    if (entries != freeze.entries || !freeze.worked_ns) {
        freeze.entries = entries;
        freeze.worked_ns = now_ns;
    }
    return now_ns - freeze.worked_ns >= idle_ns;
}

/* Where work goes on all the same (a kernel runs for long), it is asked again after as long. */
static void look_for_idleness(uint64_t now_ns, uint64_t idle_ns)
{
    if (!idle_ns || load_relaxed(&freeze.frozen) != THAWED || !is_idle(now_ns, idle_ns) ||
        !sum_of(range_movable_bytes))
        return;
    freeze.worked_ns = now_ns;
    release_memory(BY_DEMAND, IDLE_DRAIN_NS, false);
}

/* The process has nothing left to move: true where the thread may end. */
static bool may_end(void)
{
    if (load_relaxed(&vmem_range_count) || load_relaxed(&freeze.frozen) != THAWED)
        return false;
    store_seq_cst(&freeze_is_watched, false);
    store_seq_cst(&freeze.thread, (uint32_t)ABSENT);
    /* Memory that came meanwhile may have found it watched. */
    return !load_seq_cst(&vmem_range_count) ||
           !swap_seq_cst(&freeze.thread, (uint32_t)ABSENT, (uint32_t)RUNS);
}

static void *run(void *argument)
{
    (void)argument;
    uint64_t idle_ns = config_idle_release_s(container_config()) * LOOK_NS;
    struct account_control control;
    bool filled = false;
    (void)prctl(PR_SET_NAME, "vgpu-mover");
    while (!world_is_finished()) {
        heed(order_now(&control));
        if (load_relaxed(&freeze.parked)) {
            account_control_wait(control.epoch, LOOK_NS);
            continue;
        }
        uint64_t now = clock_now_ns();
        look_for_idleness(now, idle_ns);
        show_what_is_left();
        if (freeze.retry_ns && now >= freeze.retry_ns && load_relaxed(&freeze.frozen) == THAWED)
            give_back(false);
        host_pool_trim(now);
        if (may_end()) {
            (void)host_pool_empty();
            break;
        }
        if (host_pool_fill()) {
            filled = true;
            continue;
        }
        if (filled)
            log_info("%llu MiB of host memory are ready", MIB_OF(host_pool_bytes()));
        filled = false;
        account_control_wait(
            control.epoch, idle_ns && idle_ns < 4 * LOOK_NS ? idle_ns / 4 : LOOK_NS);
    }
    return NULL;
}

/* The driver's handlers at the end need it as it was: a process that is parked first comes back,
 * and one that is checkpointed ends when it is restored. */
static void wait_for_park_to_end(void)
{
    store_seq_cst(&freeze.ends, true);
    if (!load_seq_cst(&freeze.parked))
        return;
    lock_release_all(); /* a signal's handler that calls exit may have interrupted what holds one */
    while (load_seq_cst(&freeze.parked))
        word_wait_for(&freeze.parked, 1, WAIT_NS);
}

/* Before the driver's own handler, which was registered when it was initialised. */
static void process_ends(void)
{
    if (load_relaxed(&freeze.pid) != (int32_t)getpid())
        return;
    wait_for_park_to_end();
    halt_finish();
    world_finish();
}

/* An order on demand that was given before is none of this process's. */
void freeze_watch_slow(void)
{
    struct account_control control;
    if (exchange_acq_rel(&freeze_is_watched, true))
        return;
    if (!load_relaxed(&freeze.pid) && swap_seq_cst(&freeze.pid, (int32_t)0, (int32_t)getpid()))
        (void)!atexit(process_ends);
    if (!swap_seq_cst(&freeze.thread, (uint32_t)ABSENT, (uint32_t)RUNS))
        return;
    uint32_t order = order_now(&control);
    if (!holds_work(kind_of(order)))
        freeze.order = order;
    if (!own_thread_start(run))
        log_warning("no thread can be made that moves memory: it stays where it is");
}
