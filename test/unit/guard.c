/* SPDX-License-Identifier: Apache-2.0 */
/* SIGBUS, borrowed while a mapped file is touched. */
#include "base/guard.h"

#include "base/atomic.h"
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/syscall.h>

#define BYTES 16384

static int file;
static bool lost;

static char *map_guarded(void)
{
    file = (int)memfd_create("guarded", MFD_CLOEXEC);
    REQUIRE(file >= 0 && ftruncate(file, BYTES) == 0);
    char *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(map != MAP_FAILED);
    memset(map, 'x', BYTES);
    lost = false;
    REQUIRE(guard_add(map, BYTES, &lost) == 0);
    return map;
}

static void (*disposition(void))(int)
{
    struct sigaction action;
    REQUIRE(sigaction(SIGBUS, NULL, &action) == 0);
    return action.sa_handler;
}

TEST("a page that goes away within a window reads as zeros, and so do all of the range")
{
    char *map = map_guarded();
    guard_enter();
    CHECK_EQ(map[9000], 'x');
    REQUIRE(ftruncate(file, 4096) == 0);
    CHECK_EQ(map[9000], 0);
    CHECK_EQ(map[0], 0);
    map[9000] = 'y';
    CHECK_EQ(map[9000], 'y');
    guard_leave();
    CHECK(lost);
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)SIG_DFL);
}

static volatile sig_atomic_t programs_own;

static void count(int number)
{
    (void)number;
    programs_own++;
}

TEST("the program's own handler is back after the window, and meets its own signals within it")
{
    map_guarded();
    signal(SIGBUS, count);
    guard_enter();
    CHECK((uintptr_t)disposition() != (uintptr_t)count);
    raise(SIGBUS);
    CHECK_EQ(programs_own, 1);
    guard_leave();
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)count);
    raise(SIGBUS);
    CHECK_EQ(programs_own, 2);
    CHECK(!lost);
}

TEST("a window within a window ends with the outer one")
{
    map_guarded();
    guard_enter();
    guard_enter();
    guard_leave();
    CHECK((uintptr_t)disposition() != (uintptr_t)SIG_DFL);
    guard_leave();
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)SIG_DFL);
}

TEST("a handler that the program sets within a window stays")
{
    map_guarded();
    guard_enter();
    signal(SIGBUS, count);
    guard_leave();
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)count);
}

TEST("what the program found within a window and puts back within a later one means what it had")
{
    struct sigaction found;
#ifdef __SANITIZE_THREAD__
    SKIP("the sanitizer wraps what is put back in a handler of its own");
#endif
    map_guarded();
    signal(SIGBUS, count);
    guard_enter();
    REQUIRE(sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_IGN}, &found) == 0);
    guard_leave();
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)SIG_IGN);
    guard_enter();
    REQUIRE(sigaction(SIGBUS, &found, NULL) == 0);
    raise(SIGBUS);
    CHECK_EQ(programs_own, 1);
    guard_leave();
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)count);
    guard_enter();
    guard_leave();
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)count);
}

TEST("news of broken memory that nobody has touched reach the program within a window")
{
    char *map = map_guarded();
    siginfo_t news = {.si_signo = SIGBUS, .si_code = BUS_MCEERR_AO};
    signal(SIGBUS, count);
    for (int ours = 0; ours < 2; ours++) {
        news.si_addr = ours ? map : (void *)&news;
        guard_enter();
        REQUIRE(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGBUS, &news) == 0);
        CHECK_EQ(programs_own, 1 + ours);
        guard_leave();
    }
    CHECK(!lost);
}

static void die_by_fault_of_its_own(void)
{
    map_guarded();
    int other = (int)memfd_create("other", MFD_CLOEXEC);
    REQUIRE(ftruncate(other, 4096) == 0);
    char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, other, 0);
    REQUIRE(map != MAP_FAILED && ftruncate(other, 0) == 0);
    guard_enter();
    (void)*(volatile char *)map;
    guard_leave();
}

static void restore_what_was_found(void)
{
    struct sigaction found;
    map_guarded();
    guard_enter();
    REQUIRE(sigaction(SIGBUS, &(struct sigaction){.sa_handler = count}, &found) == 0);
    guard_leave();
    REQUIRE(sigaction(SIGBUS, &found, NULL) == 0);
}

TEST("a program that restores what it found within a window still ends by a SIGBUS")
{
    for (int again = 0; again < 2; again++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            restore_what_was_found();
            for (int i = 0; i < again; i++) {
                guard_enter();
                guard_leave();
            }
            raise(SIGBUS);
            _exit(0);
        }
        REQUIRE(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
}

TEST("a fault of the program's own ends it as it would without us")
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        die_by_fault_of_its_own();
        _exit(0);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

TEST("a thread that has SIGBUS blocked survives too, and has it blocked afterwards")
{
    sigset_t set, now;
    char *map = map_guarded();
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    REQUIRE(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    guard_enter();
    REQUIRE(ftruncate(file, 0) == 0);
    CHECK_EQ(map[1], 0);
    guard_leave();
    CHECK(lost);
    REQUIRE(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    CHECK_EQ(sigismember(&now, SIGBUS), 1);
}

static int threads_stop;

static void *touch_again_and_again(void *map)
{
    while (!load_acquire(&threads_stop)) {
        guard_enter();
        (void)load_relaxed((char *)map + 5000);
        guard_leave();
    }
    return NULL;
}

TEST("windows of several threads overlap")
{
    pthread_t threads[4];
    char *map = map_guarded();
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, touch_again_and_again, map) == 0);
    for (int i = 0; i < 200; i++) {
        REQUIRE(ftruncate(file, 0) == 0 && ftruncate(file, BYTES) == 0);
        usleep(100);
    }
    REQUIRE(ftruncate(file, 0) == 0);
    usleep(1000);
    store_release(&threads_stop, 1);
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)SIG_DFL);
}

static unsigned opened, refused; /* windows of the handler's */

static void open_window_in_handler(int number)
{
    (void)number;
    if (!guard_try_enter()) {
        refused++;
        return;
    }
    opened++;
    guard_leave();
}

TEST("a signal's handler that tries to open one waits for nobody, wherever it came in")
{
    const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    char *map = map_guarded();
    signal(SIGALRM, open_window_in_handler);
    REQUIRE(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 10000000 && (opened < 500 || refused < 20); i++) {
        guard_enter();
        CHECK(load_relaxed(map) == 'x');
        guard_leave();
    }
    REQUIRE(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(opened > 0);
    CHECK(refused > 0);
    CHECK_EQ((uintptr_t)disposition(), (uintptr_t)SIG_DFL);
}

TEST("a child that is forked while a thread has a window open gets the program's disposition back")
{
    int status;
    map_guarded();
    guard_enter();
    pid_t pid = fork();
    if (pid == 0) {
        guard_reset();
        _exit((uintptr_t)disposition() == (uintptr_t)SIG_DFL ? 0 : 1);
    }
    guard_leave();
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

TEST("as many ranges as there is room for, and room again for each that goes")
{
    static char pages[GUARD_RANGES_MAX + 1][4096] __attribute__((aligned(4096)));
    for (int i = 0; i < GUARD_RANGES_MAX; i++)
        CHECK_EQ(guard_add(pages[i], 4096, &lost), 0);
    CHECK_EQ(guard_add(pages[GUARD_RANGES_MAX], 4096, &lost), -ENOSPC);
    guard_remove(pages[3]);
    CHECK_EQ(guard_add(pages[GUARD_RANGES_MAX], 4096, &lost), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
