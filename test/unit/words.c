/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps on several words at once: which of them ends the sleep, and where there is none. */

#include "base/atomic.h"
#include "base/clock.h"
#include "base/word.h"
#include "check.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
#define LONG_NS (20000 * MS) /* whatever ends a sleep ends it within that on any computer */

static uint32_t own;
static uint32_t *shared;

static struct word_awaited both[2];

static void begin(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    both[0] = (struct word_awaited){shared, 0, .shared = true};
    both[1] = (struct word_awaited){&own, 0, .shared = false};
    if (!word_wait_any(both, 2, 1))
        SKIP("the kernel waits for one word at a time");
}

TEST("a word that is another already ends the sleep at once, whichever it is")
{
    begin();
    uint64_t start = clock_now_ns();
    for (int i = 0; i < 2; i++) {
        both[i].value = 1;
        CHECK(word_wait_any(both, 2, LONG_NS));
        both[i].value = 0;
    }
    CHECK(clock_now_ns() - start < LONG_NS);
}

TEST("a sleep lasts as long as it was told to, and errno stays")
{
    begin();
    uint64_t start = clock_now_ns();
    errno = ENOTTY;
    while (clock_now_ns() - start < 50 * MS)
        CHECK(word_wait_any(both, 2, 50 * MS));
    CHECK_EQ(errno, ENOTTY);
    CHECK(clock_now_ns() - start < 50 * MS + LONG_NS);
}

static void *wake_own(void *unused)
{
    usleep(20000);
    store_seq_cst(&own, 1u);
    word_wake(&own);
    return unused;
}

TEST("a thread of the process ends it by the private word")
{
    pthread_t thread;
    begin();
    uint64_t start = clock_now_ns();
    REQUIRE(pthread_create(&thread, NULL, wake_own, NULL) == 0);
    while (!load_acquire(&own))
        CHECK(word_wait_any(both, 2, LONG_NS));
    CHECK(clock_now_ns() - start < LONG_NS);
    pthread_join(thread, NULL);
}

TEST("another process ends it by the shared word")
{
    begin();
    uint64_t start = clock_now_ns();
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        usleep(20000);
        store_seq_cst(shared, 1u);
        syscall(SYS_futex, shared, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        _exit(0);
    }
    while (!load_acquire(shared))
        CHECK(word_wait_any(both, 2, LONG_NS));
    CHECK(clock_now_ns() - start < LONG_NS);
    waitpid(child, NULL, 0);
}

TEST("for no word, too many, and one in a file that was shortened there is no sleep")
{
    char path[] = "/tmp/vgpu-words-XXXXXX";
    struct word_awaited many[WORD_AWAITED_MAX + 1];
    begin();
    for (unsigned i = 0; i <= WORD_AWAITED_MAX; i++)
        many[i] = both[1];
    CHECK(!word_wait_any(many, 0, LONG_NS));
    CHECK(!word_wait_any(many, WORD_AWAITED_MAX + 1, LONG_NS));
    CHECK(word_wait_any(many, WORD_AWAITED_MAX, MS));
    int fd = mkstemp(path);
    REQUIRE(fd >= 0 && unlink(path) == 0 && ftruncate(fd, 4096) == 0);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(map != MAP_FAILED && ftruncate(fd, 0) == 0);
    both[0].word = map;
    CHECK(!word_wait_any(both, 2, LONG_NS));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
