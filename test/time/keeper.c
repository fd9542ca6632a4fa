/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command on virtual time: on-virtual-time COMMAND [ARGUMENT ...]
 *
 * The command and all that it starts have this build's test-time library preloaded and share a page
 * (page.h). This process keeps the clock: when no thread of theirs runs, it sets the clock to the
 * earliest deadline and wakes that sleeper.
 *
 * None runs if two looks in a row at each find it asleep, with the same count of the times that it
 * was given a processor: then it did not run between the looks, and at a moment between the two
 * rounds of looks all slept. Sleepers that only this process wakes need no look. */
#include "page.h"
#include "tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Between looks while threads run that tell nothing when they block. */
#define PAUSE_FIRST_NS 20000
#define PAUSE_LAST_NS 500000
/* While all sleep and none of them with a deadline, something outside of the test is waited for. */
#define IDLE_NS 2000000
/* Processor time that a thread gets between two sleeps while the clock stands. Once all that run
 * have had it, the clock goes on by their processor time. */
#define BURST_NS 20000000u
#define SPIN_FACTOR 10u

enum found { BUSY, AGAIN, QUIET };

static struct vtime_page *page;
static char path[PATH_MAX];

static uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- one round of looks ---- */

static struct task *slot_tasks[VTIME_SLOTS]; /* as an index hint: verified by number */

static struct task *task_of_slot(uint32_t index)
{
    pid_t tid = page->slots[index].tid;
    struct task *task = slot_tasks[index];
    if (!task || task < tasks || task >= tasks + tasks_count || task->inner_tid != tid)
        task = slot_tasks[index] = task_of(tid);
    return task;
}

/* Also of a thread that was made since all slept last, which may be long ago where one spins. */
static struct task *find_task_of_slot(uint32_t index)
{
    if (!task_of_slot(index))
        tasks_find_new();
    return task_of_slot(index);
}

static void free_slots_of(pid_t tid)
{
    for (uint32_t i = 0; i < load(&page->slots_end); i++) {
        struct vtime_slot *slot = &page->slots[i];
        if (load(&slot->state) != VTIME_FREE && slot->tid == tid)
            __atomic_store_n(&slot->state, VTIME_FREE, __ATOMIC_SEQ_CST);
    }
}

/* Counts as they were when all slept last. */
static struct {
    uint32_t signals, wakes_shared, wakes[VTIME_GROUPS];
} seen;

/* Whether the slot's thread may have been woken by a word or a signal since. */
static bool may_run(const struct vtime_slot *slot, uint32_t state)
{
    uint32_t group = (uint32_t)slot->pid % VTIME_GROUPS;
    if (load(&page->signals) != seen.signals)
        return true;
    return state == VTIME_WAITS && (load(&page->wakes_shared) != seen.wakes_shared ||
                                       load(&page->wakes[group]) != seen.wakes[group]);
}

/* Whether the thread of a slot that was woken has still to run. One that was killed never does, one
 * that is stopped not yet. */
static bool has_to_run(uint32_t index)
{
    struct task *task = find_task_of_slot(index);
    if (task && task_look(task))
        return task->state != 'T' && task->state != 't';
    free_slots_of(page->slots[index].tid);
    if (task)
        task_drop(task);
    return false;
}

/* Marks the tasks that need no look. False where one was woken that has not run yet. */
static bool mark_sleepers(void)
{
    for (unsigned i = 0; i < tasks_count; i++)
        tasks[i].is_listed = false;
    for (uint32_t i = 0; i < load(&page->slots_end); i++) {
        if (load(&page->slots[i].state) == VTIME_WOKEN && has_to_run(i))
            return false;
    }
    for (uint32_t i = 0; i < load(&page->slots_end); i++) {
        uint32_t state = load(&page->slots[i].state);
        bool waits = state == VTIME_SLEEPS || state == VTIME_WAITS;
        struct task *task = waits && !may_run(&page->slots[i], state) ? task_of_slot(i) : NULL;
        if (task)
            task->is_listed = true;
    }
    return true;
}

struct round {
    bool is_busy, is_changed;
    bool only_burns; /* all that run are on a processor */
    uint64_t burned_ns;
};

/* The processor time that the task has had since it last slept, beyond the burst. */
static uint64_t burned(struct task *task)
{
    if (!task->counted_ns)
        task->counted_ns = task->cpu_ns + BURST_NS;
    return task->cpu_ns > task->counted_ns ? task->cpu_ns - task->counted_ns : 0;
}

static void look_at(struct task *task, struct round *round)
{
    char former = task->state;
    uint64_t runs = task->runs;
    pid_t tid = task->inner_tid;
    if (!task_look(task)) {
        free_slots_of(tid);
        task_drop(task);
        seen.signals--; /* its parent gets one */
        round->is_changed = true;
        return;
    }
    /* One that is dead, X, has still to wake whoever waits for its process's end. */
    bool runs_now = task->state == 'R' || task->state == 'D' || task->state == 'X';
    round->is_changed |= task->state != former || task->runs != runs;
    round->is_busy |= runs_now;
    round->only_burns &= task->state == 'R' || !runs_now;
    if (!runs_now)
        task->counted_ns = 0;
    uint64_t more_ns = task->state == 'R' ? burned(task) : round->burned_ns;
    round->burned_ns = more_ns < round->burned_ns ? more_ns : round->burned_ns;
}

static enum found look(struct round *round)
{
    const uint32_t signals = load(&page->signals), wakes_shared = load(&page->wakes_shared);
    uint32_t wakes[VTIME_GROUPS];
    memcpy(wakes, page->wakes, sizeof(wakes));
    *round = (struct round){.only_burns = true, .burned_ns = UINT64_MAX};
    if (!mark_sleepers()) {
        round->only_burns = false;
        return BUSY;
    }
    for (unsigned i = tasks_count; i-- > 0;) {
        if (!tasks[i].is_listed)
            look_at(&tasks[i], round);
    }
    if (round->is_busy)
        return BUSY;
    if (round->is_changed)
        return AGAIN;
    /* One that was not known may have run, and woken others, before it was found or ended. */
    if (tasks_changed()) {
        tasks_find_new();
        return AGAIN;
    }
    seen.signals = signals;
    seen.wakes_shared = wakes_shared;
    memcpy(seen.wakes, wakes, sizeof(wakes));
    return QUIET;
}

/* ---- the clock ---- */

/* The deadline behind it is *ret_next_ns. */
static struct vtime_slot *earliest(uint64_t *ret_next_ns)
{
    struct vtime_slot *first = NULL;
    *ret_next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < load(&page->slots_end); i++) {
        struct vtime_slot *slot = &page->slots[i];
        uint32_t state = load(&slot->state);
        bool waits = state == VTIME_SLEEPS || state == VTIME_WAITS || state == VTIME_ALARM;
        if (!waits || slot->until_ns == UINT64_MAX)
            continue;
        bool is_first = !first || slot->until_ns < first->until_ns ||
                        (slot->until_ns == first->until_ns && slot->order < first->order);
        uint64_t other_ns = is_first ? first ? first->until_ns : UINT64_MAX : slot->until_ns;
        *ret_next_ns = other_ns < *ret_next_ns ? other_ns : *ret_next_ns;
        first = is_first ? slot : first;
    }
    return first;
}

static void set_clock(uint64_t ns)
{
    if (ns > page->now_ns)
        __atomic_store_n(&page->now_ns, ns, __ATOMIC_SEQ_CST);
}

static void wake(struct vtime_slot *slot, struct task *task)
{
    uint32_t state = load(&slot->state);
    if (slot->until_ns > page->now_ns + VTIME_YIELD_NS)
        task->counted_ns = 0; /* it has slept, not only let others go first */
    bool sleeps = state == VTIME_SLEEPS || state == VTIME_WAITS;
    set_clock(slot->until_ns);
    if (sleeps && __atomic_compare_exchange_n(
                      &slot->state, &state, VTIME_WOKEN, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        (void)syscall(SYS_futex, &slot->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void ring(struct vtime_slot *slot, const struct task *task)
{
    uint32_t state = VTIME_ALARM;
    set_clock(slot->until_ns);
    if (!__atomic_compare_exchange_n(
            &slot->state, &state, VTIME_RUNS, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    (void)kill(task->pid, SIGALRM);
    seen.signals--; /* it may interrupt a sleeper */
}

/* False where nobody has a deadline. A sleeper whose thread is gone is dropped. */
static bool advance(void)
{
    uint64_t next_ns;
    struct vtime_slot *slot = earliest(&next_ns);
    __atomic_store_n(&page->next_ns, next_ns, __ATOMIC_SEQ_CST);
    if (!slot)
        return false;
    struct task *task = find_task_of_slot((uint32_t)(slot - page->slots));
    if (task && load(&slot->state) == VTIME_ALARM)
        ring(slot, task);
    else if (task)
        wake(slot, task);
    else
        __atomic_store_n(&slot->state, VTIME_FREE, __ATOMIC_SEQ_CST);
    return true;
}

/* Threads have run for long and without a look at the clock: it goes on by their processor time. */
static void advance_burned(uint64_t ns)
{
    uint64_t next_ns;
    const struct vtime_slot *slot = earliest(&next_ns);
    uint64_t to = page->now_ns + SPIN_FACTOR * ns;
    for (unsigned i = 0; i < tasks_count; i++) {
        if (tasks[i].state == 'R')
            tasks[i].counted_ns += ns;
    }
    if (slot && slot->until_ns <= to)
        (void)advance();
    else
        set_clock(to);
}

/* ---- the command ---- */

static void wait_for_event(uint32_t events, uint64_t ns)
{
    const struct timespec time = {.tv_nsec = (long)ns};
    __atomic_store_n(&page->keeper_waits, 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, &page->events, FUTEX_WAIT, events, &time, NULL, 0);
    __atomic_store_n(&page->keeper_waits, 0, __ATOMIC_SEQ_CST);
}

/* Orphans are reaped as well. */
static bool has_ended(pid_t command, int *ret_status)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == command) {
            *ret_status = status;
            return true;
        }
    }
    return false;
}

static int keep(pid_t command)
{
    uint64_t pause_ns = PAUSE_FIRST_NS;
    int status;
    while (!has_ended(command, &status)) {
        struct round round;
        uint32_t events = load(&page->events);
        enum found found = look(&round);
        if (found == AGAIN || (found == QUIET && load(&page->events) != events))
            continue;
        if (found == QUIET && advance()) {
            pause_ns = PAUSE_FIRST_NS;
            continue;
        }
        if (found == BUSY && round.only_burns && round.burned_ns > 0)
            advance_burned(round.burned_ns);
        wait_for_event(events, found == QUIET ? IDLE_NS : pause_ns);
        pause_ns = 2 * pause_ns < PAUSE_LAST_NS ? 2 * pause_ns : PAUSE_LAST_NS;
    }
    return status;
}

static bool make_page(void)
{
    const char *directory = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/time-XXXXXX", directory ? directory : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, sizeof(*page)) != 0 || fchmod(fd, 0666) != 0)
        return false;
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return false;
    page->now_ns = clock_ns(CLOCK_MONOTONIC);
    page->realtime_ns = (int64_t)(clock_ns(CLOCK_REALTIME) - page->now_ns);
    page->next_ns = UINT64_MAX;
    page->magic = VTIME_MAGIC;
    return true;
}

static void set_environment(void)
{
    char self[PATH_MAX] = "", library[PATH_MAX], preload[2 * PATH_MAX];
    (void)!readlink("/proc/self/exe", self, sizeof(self) - 1);
    snprintf(library, sizeof(library), "%.4000s/libtest-time.so", dirname(self));
    const char *before = getenv("LD_PRELOAD");
    snprintf(preload, sizeof(preload), "%s%s%s", before ? before : "", before ? ":" : "", library);
    setenv("LD_PRELOAD", preload, 1);
    setenv(VTIME_LIBRARY, library, 1);
    setenv(VTIME_VARIABLE, path, 1);
}

int main(int argc, char **argv)
{
    struct rlimit files;
    if (argc < 2 || !tasks_begin() || !make_page()) {
        fprintf(stderr, "usage: on-virtual-time COMMAND [ARGUMENT ...]\n"
                        "needs /proc, with children, schedstat and syscall of tasks\n");
        return 2;
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)prctl(PR_SET_TIMERSLACK, 1);
    pid_t command = fork();
    if (command == 0) {
        (void)prctl(PR_SET_TIMERSLACK, 0);
        set_environment();
        execvp(argv[1], argv + 1);
        fprintf(stderr, "on-virtual-time: %s: %s\n", argv[1], strerror(errno));
        _exit(127);
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)setpriority(PRIO_PROCESS, 0, -10); /* where it may: all others wait for it */
    int status = keep(command);
    (void)unlink(path);
    if (WIFSIGNALED(status))
        (void)raise(WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
