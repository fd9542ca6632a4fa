/* SPDX-License-Identifier: Apache-2.0 */
/* SIGBUS, borrowed for as long as a mapped file is touched. */
#include "base/guard.h"

#include "base/atomic.h"
#include "base/lock.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNAL_SET_BYTES 8 /* the kernel's, for 64 signals */
#define MASK_LOOKS                                                                                 \
    64 /* windows of a thread for one look at its signal mask, which rarely changes */

/* The kernel's structure. By system call, because programs that interpose sigaction (a JVM's
 * libjsig, sanitizers) must not see this one. */
struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

struct range {
    char *start; /* NULL: not in use; written last */
    size_t bytes;
    bool *lost;
};

static struct lock guard_lock;
static struct {
    unsigned users; /* windows that are open */
    /* The handler in use, which changes when the program has met it and set its own in its place:
     * so what it puts back later tells when it found it, and what it had then. */
    unsigned turn;
    struct kernel_action found[2]; /* the program's, where this handler was set */
    struct range ranges[GUARD_RANGES_MAX];
} guard GUARDED_BY(guard_lock);

static _Thread_local struct {
    unsigned depth;   /* windows within each other */
    unsigned windows; /* so far */
    bool was_blocked; /* the thread had SIGBUS blocked: then a fault would kill it unasked */
} thread __attribute__((tls_model("initial-exec")));

#ifdef __x86_64__
/* Return from a signal; debuggers and unwinders know it by these very bytes. */
void guard_restorer(void) __attribute__((visibility("hidden")));
__asm__(".pushsection .text\n"
        ".hidden guard_restorer\n"
        ".globl guard_restorer\n"
        ".type guard_restorer, @function\n"
        "guard_restorer:\n"
        "movq $15, %rax\n" /* rt_sigreturn */
        "syscall\n"
        ".size guard_restorer, . - guard_restorer\n"
        ".popsection\n");
#define RESTORER guard_restorer
#define RESTORER_FLAG 0x04000000ul
#else
#define RESTORER NULL /* the kernel's own */
#define RESTORER_FLAG 0ul
#endif

static void set_action(const struct kernel_action *action, struct kernel_action *ret_former)
{
    (void)syscall(SYS_rt_sigaction, SIGBUS, action, ret_former, SIGNAL_SET_BYTES);
}

static struct range *range_of(const char *address)
{
    for (int i = 0; i < GUARD_RANGES_MAX; i++) {
        struct range *range = &guard.ranges[i];
        char *start = load_acquire(&range->start);
        if (start && address >= start && address < start + range->bytes)
            return range;
    }
    return NULL;
}

static bool replace(struct range *range)
{
    void *memory = mmap(range->start, range->bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    store_release(range->lost, true);
    return true;
}

/* What is not ours happens again, at the same instruction or as the same signal, under the
 * program's own disposition. */
static void on_bus_error(unsigned turn, int number, siginfo_t *info)
{
    int errno_kept = errno;
    /* By kill or the like, or about memory that may yet be touched: by no access. */
    bool raised = info->si_code <= 0 || info->si_code == BUS_MCEERR_AO;
    struct range *range = raised ? NULL : range_of(info->si_addr);
    if (!range || !replace(range)) {
        set_action(&guard.found[turn], NULL);
        if (raised)
            (void)syscall(SYS_rt_tgsigqueueinfo, getpid(), (int)syscall(SYS_gettid), number, info);
    }
    errno = errno_kept;
}

static void on_bus_error_even(int number, siginfo_t *info, void *context)
{
    (void)context;
    on_bus_error(0, number, info);
}

static void on_bus_error_odd(int number, siginfo_t *info, void *context)
{
    (void)context;
    on_bus_error(1, number, info);
}

#define FLAGS (SA_SIGINFO | SA_ONSTACK | RESTORER_FLAG)

static const struct kernel_action ours[2] = {
    {.handler = on_bus_error_even, .flags = FLAGS, .restorer = RESTORER},
    {.handler = on_bus_error_odd, .flags = FLAGS, .restorer = RESTORER},
};

/* What the program had where it met this handler of ours; NULL: it is none of ours. */
static const struct kernel_action *found_by(const struct kernel_action *action)
{
    for (int turn = 0; turn < 2; turn++) {
        if (action->handler == ours[turn].handler)
            return &guard.found[turn];
    }
    return NULL;
}

int guard_add(void *start, size_t bytes, bool *lost)
{
    int error = -ENOSPC;
    LOCKED_TO_END(guard_lock);
    for (int i = 0; i < GUARD_RANGES_MAX && error; i++) {
        struct range *range = &guard.ranges[i];
        if (range->start)
            continue;
        range->bytes = bytes;
        range->lost = lost;
        store_release(&range->start, start);
        error = 0;
    }
    return error;
}

void guard_remove(void *start)
{
    LOCKED_TO_END(guard_lock);
    for (int i = 0; i < GUARD_RANGES_MAX; i++) {
        if (guard.ranges[i].start == start)
            store_release(&guard.ranges[i].start, NULL);
    }
}

void guard_unmap(void *start, size_t bytes, bool is_mapped)
{
    if (!start)
        return;
    guard_remove(start);
    if (is_mapped)
        munmap(start, bytes);
}

/* Where the program has set another meanwhile, that one stays. What it read within a window and
 * later restores is ours: it means what it had then. */
static void give_back(void) REQUIRES(guard_lock)
{
    struct kernel_action current = {0};
    const struct kernel_action *mine = &guard.found[guard.turn];
    set_action(mine, &current);
    const struct kernel_action *found = found_by(&current);
    if (found == mine)
        return;
    guard.turn = !guard.turn;
    set_action(found ? found : &current, NULL);
}

/* Where a system-call filter refuses this the program's disposition stays in force. */
static void take_over(void) REQUIRES(guard_lock)
{
    struct kernel_action former = {0};
    set_action(&ours[guard.turn], &former);
    const struct kernel_action *found = found_by(&former);
    guard.found[guard.turn] = found ? *found : former;
}

static uint64_t change_mask(int how)
{
    uint64_t bus = 1ull << (SIGBUS - 1), former = 0;
    (void)syscall(SYS_rt_sigprocmask, how, &bus, &former, SIGNAL_SET_BYTES);
    return former & bus;
}

static void open_window(void) RELEASE(guard_lock)
{
    if (guard.users++ == 0)
        take_over();
    lock_release(&guard_lock);
    if (thread.was_blocked || thread.windows++ % MASK_LOOKS == 0)
        thread.was_blocked = change_mask(SIG_UNBLOCK) != 0;
}

void guard_enter(void)
{
    if (thread.depth++)
        return;
    lock_take(&guard_lock);
    open_window();
}

bool guard_try_enter(void)
{
    if (thread.depth) {
        thread.depth++;
        return true;
    }
    if (!lock_try(&guard_lock))
        return false;
    thread.depth++;
    open_window();
    return true;
}

void guard_leave(void)
{
    if (--thread.depth)
        return;
    if (thread.was_blocked)
        (void)change_mask(SIG_BLOCK);
    LOCKED_TO_END(guard_lock);
    if (--guard.users == 0)
        give_back();
}

void guard_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&guard_lock);
    if (thread.depth && thread.was_blocked)
        (void)change_mask(SIG_BLOCK);
    thread.depth = 0;
    struct kernel_action current = {0};
    set_action(NULL, &current);
    if (found_by(&current))
        give_back();
    guard.users = 0;
}
