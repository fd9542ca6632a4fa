/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's slot in the page, and its sleep. All of it may run in a signal's handler. */
#include "thread.h"
#include "sleeps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS_WAITV 449
#define WORD_IS_32_BIT 2u
#define STEP_FIRST_NS 20000u
#define STEP_LAST_NS 2000000u
#define STEP_PART 16u
/* In which the real wait under a virtual one is renewed. With a bound, the kernel ends it with
 * EINTR after a handler that has SA_RESTART too, as it does sleeps. */
#define RENEW_S 3600

static struct vtime_page *page;
static _Thread_local struct vtime_slot *own __attribute__((tls_model("initial-exec")));
static _Thread_local uint32_t reads __attribute__((tls_model("initial-exec")));

long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
#ifdef __x86_64__
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b,
                     x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e,
                     x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
#endif
}

long call_result(long result)
{
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

static long call4(long number, long a, long b, long c, long d)
{
    return raw_call(number, a, b, c, d, 0, 0);
}

__attribute__((noreturn)) static void give_up(const char *text)
{
    (void)call4(SYS_write, 2, (long)text, (long)strlen(text), 0);
    for (;;)
        (void)call4(SYS_exit_group, 70, 0, 0, 0);
}

struct vtime_page *vtime_page(void)
{
    struct vtime_page *mapped = __atomic_load_n(&page, __ATOMIC_ACQUIRE);
    if (mapped)
        return mapped;
    const char *path = getenv(VTIME_VARIABLE);
    if (!path)
        give_up("virtual time: the page is not named\n");
    long fd = call4(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        give_up("virtual time: the page cannot be opened\n");
    long at = raw_call(SYS_mmap, 0, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)call4(SYS_close, fd, 0, 0, 0);
    mapped = (struct vtime_page *)at;
    if (at < 0 && at > -4096)
        give_up("virtual time: the page cannot be mapped\n");
    if (mapped->magic != VTIME_MAGIC)
        give_up("virtual time: the page is of another build\n");
    __atomic_store_n(&page, mapped, __ATOMIC_RELEASE);
    return mapped;
}

__attribute__((constructor)) static void begin(void)
{
    (void)vtime_page();
}

/* ---- slots ---- */

static struct vtime_slot *claim(int32_t tid)
{
    for (uint32_t i = 0; i < VTIME_SLOTS; i++) {
        struct vtime_slot *slot = &page->slots[i];
        uint32_t state = VTIME_FREE, end = __atomic_load_n(&page->slots_end, __ATOMIC_RELAXED);
        if (__atomic_load_n(&slot->state, __ATOMIC_RELAXED) != VTIME_FREE)
            continue;
        if (!__atomic_compare_exchange_n(
                &slot->state, &state, VTIME_RUNS, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            continue;
        slot->tid = tid;
        slot->pid = (int32_t)call4(SYS_getpid, 0, 0, 0, 0);
        slot->sleeps = 0;
        while (end <= i && !__atomic_compare_exchange_n(&page->slots_end, &end, i + 1, false,
                               __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            continue;
        return slot;
    }
    give_up("virtual time: too many threads\n");
}

/* The child of a fork, of a vfork or of a bare clone has its parent's. */
static struct vtime_slot *own_slot(void)
{
    int32_t tid = (int32_t)call4(SYS_gettid, 0, 0, 0, 0);
    (void)vtime_page();
    if (!own || own->tid != tid)
        own = claim(tid);
    return own;
}

/* Not the child's of a fork, and lost where the process executes another program. */
static struct vtime_slot *alarm_slot;

static void note_event(void)
{
    __atomic_add_fetch(&page->events, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&page->keeper_waits, __ATOMIC_SEQ_CST))
        (void)call4(SYS_futex, (long)&page->events, FUTEX_WAKE, 1, 0);
}

void vtime_note_signal(void)
{
    __atomic_add_fetch(&vtime_page()->signals, 1, __ATOMIC_SEQ_CST);
}

uint64_t vtime_set_alarm(uint64_t at_ns)
{
    int32_t pid = (int32_t)call4(SYS_getpid, 0, 0, 0, 0);
    uint64_t former = NEVER;
    (void)vtime_page();
    if (alarm_slot && alarm_slot->tid == pid) {
        former = alarm_slot->until_ns;
        uint32_t state = VTIME_ALARM;
        if (!__atomic_compare_exchange_n(
                &alarm_slot->state, &state, VTIME_RUNS, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            former = NEVER;
    } else {
        alarm_slot = claim(pid);
    }
    alarm_slot->until_ns = at_ns;
    alarm_slot->order = __atomic_add_fetch(&page->order, 1, __ATOMIC_SEQ_CST);
    if (at_ns != NEVER)
        __atomic_store_n(&alarm_slot->state, VTIME_ALARM, __ATOMIC_SEQ_CST);
    note_event();
    return former;
}

/* What is kept is of a sleep that a signal's handler, in which this is, interrupted. */
static struct vtime_slot lie_down(struct vtime_slot *slot, uint32_t state, uint64_t until_ns)
{
    uint64_t next = __atomic_load_n(&page->next_ns, __ATOMIC_SEQ_CST);
    struct vtime_slot kept = *slot;
    kept.state = __atomic_exchange_n(&slot->state, VTIME_RUNS, __ATOMIC_SEQ_CST);
    slot->until_ns = until_ns;
    while (until_ns < next && !__atomic_compare_exchange_n(&page->next_ns, &next, until_ns, false,
                                  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
    slot->order = __atomic_add_fetch(&page->order, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&slot->state, state, __ATOMIC_SEQ_CST);
    note_event();
    return kept;
}

/* True where the keeper had woken it: the deadline has passed. */
static bool get_up(struct vtime_slot *slot, const struct vtime_slot *kept)
{
    bool is_due = __atomic_exchange_n(&slot->state, VTIME_RUNS, __ATOMIC_SEQ_CST) == VTIME_WOKEN;
    if (kept->state != VTIME_RUNS) {
        slot->until_ns = kept->until_ns;
        slot->order = kept->order;
        __atomic_store_n(&slot->state, kept->state, __ATOMIC_SEQ_CST);
    }
    if (!is_due || kept->state != VTIME_RUNS)
        note_event();
    reads = 0;
    return is_due;
}

static uint64_t late(uint64_t until_ns)
{
    return until_ns > NEVER - VTIME_LATE_NS ? NEVER : until_ns + VTIME_LATE_NS;
}

static int sleep_until(uint64_t until_ns)
{
    const struct timespec renew = {.tv_sec = RENEW_S};
    struct vtime_slot *slot = own_slot();
    struct vtime_slot kept = lie_down(slot, VTIME_SLEEPS, until_ns);
    long result = 0;
    while (result != -EINTR && __atomic_load_n(&slot->state, __ATOMIC_SEQ_CST) == VTIME_SLEEPS)
        result = call4(SYS_futex, (long)&slot->state, FUTEX_WAIT, VTIME_SLEEPS, (long)&renew);
    return get_up(slot, &kept) ? 0 : -EINTR;
}

int vtime_sleep(uint64_t until_ns)
{
    own_slot()->sleeps++;
    return sleep_until(late(until_ns));
}

unsigned vtime_sleeps_of(pid_t tid)
{
    for (uint32_t i = 0; i < __atomic_load_n(&vtime_page()->slots_end, __ATOMIC_SEQ_CST); i++)
        if (page->slots[i].tid == tid && __atomic_load_n(&page->slots[i].state, __ATOMIC_SEQ_CST))
            return __atomic_load_n(&page->slots[i].sleeps, __ATOMIC_RELAXED);
    return 0;
}

void vtime_yield(void)
{
    (void)sleep_until(vtime_after(VTIME_YIELD_NS));
}

/* ---- words ---- */

long vtime_wait_words(const struct futex_waitv_word *words, unsigned count, uint64_t until_ns)
{
    struct futex_waitv_word all[VTIME_WORDS_MAX + 1];
    struct timespec renew;
    if (count > VTIME_WORDS_MAX)
        return -EINVAL;
    (void)call4(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&renew, 0, 0);
    renew.tv_sec += RENEW_S;
    struct vtime_slot *slot = own_slot();
    memcpy(all, words, count * sizeof(*words));
    all[count] = (struct futex_waitv_word){.value = VTIME_WAITS,
        .address = (uint64_t)(uintptr_t)&slot->state,
        .flags = WORD_IS_32_BIT};
    slot->sleeps += until_ns != NEVER;
    struct vtime_slot kept = lie_down(slot, VTIME_WAITS, late(until_ns));
    long result = raw_call(SYS_WAITV, (long)all, count + 1, 0, (long)&renew, CLOCK_MONOTONIC, 0);
    bool is_due = get_up(slot, &kept);
    if (result == (long)count || (is_due && result == -EAGAIN))
        result = -ETIMEDOUT;
    return result;
}

/* By steps where the kernel waits for one word at a time. */
static long wait_by_steps(const uint32_t *word, uint32_t value, uint64_t until_ns)
{
    const struct vtime_steps steps = vtime_steps_begin(until_ns);
    int error = -EAGAIN;
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value && vtime_step(&steps, &error))
        error = -EAGAIN;
    return error;
}

void vtime_note_wake(bool shared)
{
    uint32_t group = (uint32_t)call4(SYS_getpid, 0, 0, 0, 0) % VTIME_GROUPS;
    uint32_t *count = shared ? &vtime_page()->wakes_shared : &vtime_page()->wakes[group];
    __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
}

long vtime_wake_word(uint32_t *word, long waiters, bool shared)
{
    vtime_note_wake(shared);
    return call4(SYS_futex, (long)word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), waiters, 0);
}

/* Without a deadline one word is waited for by FUTEX_WAIT, which older kernels have too. */
static long wait_for_ever(uint32_t *word, uint32_t value, bool shared)
{
    struct vtime_slot *slot = own_slot();
    struct vtime_slot kept = lie_down(slot, VTIME_WAITS, NEVER);
    long result =
        call4(SYS_futex, (long)word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG), value, 0);
    (void)get_up(slot, &kept);
    return result;
}

long vtime_wait_word(uint32_t *word, uint32_t value, bool shared, uint64_t until_ns)
{
    if (until_ns == NEVER)
        return wait_for_ever(word, value, shared);
    const struct futex_waitv_word one = {.value = value,
        .address = (uint64_t)(uintptr_t)word,
        .flags = WORD_IS_32_BIT | (shared ? 0u : (uint32_t)FUTEX_PRIVATE_FLAG)};
    long result = vtime_wait_words(&one, 1, until_ns);
    return result == -ENOSYS || result == -EPERM ? wait_by_steps(word, value, until_ns) : result;
}

/* ---- steps ---- */

struct vtime_steps vtime_steps_begin(uint64_t until_ns)
{
    return (struct vtime_steps){.began_ns = vtime_page()->now_ns, .until_ns = until_ns};
}

bool vtime_step(const struct vtime_steps *steps, int *ret_error)
{
    uint64_t now = __atomic_load_n(&page->now_ns, __ATOMIC_SEQ_CST);
    uint64_t step = (now - steps->began_ns) / STEP_PART;
    step = step < STEP_FIRST_NS ? STEP_FIRST_NS : step > STEP_LAST_NS ? STEP_LAST_NS : step;
    *ret_error = -ETIMEDOUT;
    if (now >= steps->until_ns)
        return false;
    uint64_t until = steps->until_ns - now < step ? steps->until_ns : now + step;
    *ret_error = vtime_sleep(until);
    return *ret_error == 0;
}

/* ---- the clock ---- */

uint64_t vtime_now_ns(void)
{
    uint64_t now = __atomic_add_fetch(&vtime_page()->now_ns, VTIME_READ_NS, __ATOMIC_SEQ_CST);
    if (++reads >= VTIME_READS_MAX || now >= __atomic_load_n(&page->next_ns, __ATOMIC_RELAXED)) {
        (void)sleep_until(now);
        now = __atomic_load_n(&page->now_ns, __ATOMIC_SEQ_CST);
    }
    return now;
}

bool vtime_has_clock(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC ||
           clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE ||
           clock == CLOCK_BOOTTIME;
}

static bool is_realtime(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

uint64_t ns_of(const struct timespec *time)
{
    return (uint64_t)time->tv_sec > NEVER / 2000000000u
               ? NEVER
               : (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){
        .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

uint64_t vtime_deadline(clockid_t clock, const struct timespec *time)
{
    uint64_t ns = ns_of(time);
    if (ns == NEVER || !is_realtime(clock))
        return ns;
    uint64_t offset = (uint64_t)vtime_page()->realtime_ns;
    return ns < offset ? 0 : ns - offset;
}

uint64_t vtime_after(uint64_t ns)
{
    uint64_t now = __atomic_load_n(&vtime_page()->now_ns, __ATOMIC_SEQ_CST);
    return ns > NEVER - now ? NEVER : now + ns;
}
