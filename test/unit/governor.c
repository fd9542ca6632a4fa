/* SPDX-License-Identifier: Apache-2.0 */
/* The governor's thread: when there is one, what it does while there is nothing to see, and that it
 * is of no consequence to signals. */
#include "pace/governor.h"

#include "base/atomic.h"
#include "base/sleep.h"
#include "base/word.h"
#include "check.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define WAIT_SECONDS 20
#define CLONE3 435 /* older headers do not have it */

static uint64_t looks, answer = GOVERNOR_NOTHING;

static uint64_t look(void)
{
    (void)add_seq_cst(&looks, 1);
    return load_relaxed(&answer);
}

static void rest(uint64_t ns, uint32_t *word, uint32_t value)
{
    if (word)
        word_wait_for(word, value, ns);
    else
        sleep_ns(ns);
}

/* The number of threads that have the governor's name, and one of them; 0 for none. A sanitizer may
 * make threads of its own. */
static unsigned count_threads(int *ret_governor)
{
    unsigned count = 0;
    DIR *directory = opendir("/proc/self/task");
    REQUIRE(directory != NULL);
    *ret_governor = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char path[300], name[32] = "";
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof(name), file) && !strcmp(name, "vgpu-governor\n")) {
            *ret_governor = atoi(entry->d_name);
            count++;
        }
        if (file)
            fclose(file);
    }
    closedir(directory);
    return count;
}

static int governor_thread(void)
{
    int thread;
    (void)count_threads(&thread);
    return thread;
}

/* A line of the thread's status that begins so; "" where it is gone. */
static void read_status(int thread, const char *field, char ret_line[128])
{
    char path[64], line[128];
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
    ret_line[0] = '\0';
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    while (fgets(line, sizeof(line), file)) {
        if (!strncmp(line, field, strlen(field)))
            strcpy(ret_line, line);
    }
    fclose(file);
}

static unsigned long switches_of(int thread)
{
    char line[128];
    read_status(thread, "voluntary_ctxt_switches:", line);
    return line[0] ? strtoul(line + 24, NULL, 10) : 0;
}

static void pause_ms(long milliseconds)
{
    const struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static bool wait_for_looks(uint64_t wanted)
{
    for (int i = 0; i < WAIT_SECONDS * 200 && load_relaxed(&looks) < wanted; i++)
        pause_ms(5);
    return load_relaxed(&looks) >= wanted;
}

/* Asleep for good: a quarter of a second, which is longer than its linger, without waking. */
static bool wait_for_sleep(void)
{
    int thread = governor_thread();
    for (int i = 0; i < WAIT_SECONDS * 4; i++) {
        unsigned long before = switches_of(thread);
        uint64_t looked = load_relaxed(&looks);
        pause_ms(250);
        if (switches_of(thread) == before && load_relaxed(&looks) == looked)
            return true;
    }
    return false;
}

TEST("there is no thread before work is on its way, one then, however often it is told")
{
    int thread;
    unsigned before = count_threads(&thread);
    CHECK_EQ(thread, 0);
    for (int i = 0; i < 1000; i++)
        governor_wake(look, rest);
    REQUIRE(wait_for_looks(1));
    CHECK_EQ(count_threads(&thread), before + 1);
    CHECK(thread != 0);
}

TEST("it works from the first work to the end of the process")
{
    CHECK(!governor_works());
    governor_wake(look, rest);
    CHECK(governor_works());
    REQUIRE(wait_for_sleep());
    CHECK(governor_works());
    governor_stop();
    CHECK(!governor_works());
}

static bool burning = true;

static void *burn(void *unused)
{
    while (load_relaxed(&burning))
        ;
    return unused;
}

static void wake_in_child(void)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (!child) {
        governor_wake(look, rest);
        uint64_t looked = load_relaxed(&looks);
        if (looked >= 20) /* its first ones, and as many as the maker's absence has 20 ms */
            dprintf(STDOUT_FILENO, "# %llu looks\n", (unsigned long long)looked);
        _exit(looked >= 20);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

TEST("it does not wait for who made it, where they share one core with others")
{
    cpu_set_t core;
    pthread_t burners[3];
    CPU_ZERO(&core);
    CPU_SET(sched_getcpu(), &core);
    REQUIRE(sched_setaffinity(0, sizeof(core), &core) == 0);
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(&burners[i], NULL, burn, NULL) == 0);
    for (int round = 0; round < 30; round++)
        wake_in_child();
    store_relaxed(&burning, false);
    for (int i = 0; i < 3; i++)
        pthread_join(burners[i], NULL);
}

static bool refuse_threads(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLONE3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST("where no thread can be made it does not, and is not tried again")
{
    int thread;
    if (!refuse_threads())
        SKIP("no system call can be refused");
    for (int i = 0; i < 3; i++) {
        governor_wake(look, rest);
        CHECK(!governor_works());
    }
    CHECK_EQ(load_relaxed(&looks), 0);
    CHECK_EQ((count_threads(&thread), thread), 0);
}

static void *wake_often(void *unused)
{
    for (int i = 0; i < 2000; i++)
        governor_wake(look, rest);
    return unused;
}

TEST("threads that find work at once make one thread")
{
    pthread_t threads[8];
    int thread;
    unsigned before = count_threads(&thread);
    for (int i = 0; i < 8; i++)
        REQUIRE(pthread_create(&threads[i], NULL, wake_often, NULL) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    REQUIRE(wait_for_looks(1));
    /* Who was joined may still be listed for a moment. */
    for (int i = 0; i < 2000 && count_threads(&thread) != before + 1; i++)
        pause_ms(5);
    CHECK_EQ(count_threads(&thread), before + 1);
}

TEST("it looks again after the time that the look asked for, as long as there is work")
{
    store_relaxed(&answer, (uint64_t)2000000);
    governor_wake(look, rest);
    CHECK(wait_for_looks(100));
    int thread = governor_thread();
    CHECK(switches_of(thread) >= 90);
}

TEST("with nothing to see it sleeps for good, and wakes for new work, again and again")
{
    governor_wake(look, rest);
    for (int round = 0; round < 3; round++) {
        REQUIRE(wait_for_looks(1));
        REQUIRE(wait_for_sleep());
        store_relaxed(&looks, (uint64_t)0);
        governor_wake(look, rest);
    }
    CHECK(wait_for_looks(1));
}

TEST("before it sleeps it lingers: it still looks a tenth of a second after the last work")
{
    governor_wake(look, rest);
    CHECK(wait_for_looks(4)); /* nothing to see from the first look on */
}

TEST("work that comes while it falls asleep is not missed")
{
    for (int round = 0; round < 15; round++) {
        governor_wake(look, rest);
        pause_ms(95 + round); /* about when it does */
        uint64_t before = load_relaxed(&looks);
        governor_wake(look, rest);
        CHECK(wait_for_looks(before + 1));
    }
}

static bool wait_for_rest(void)
{
    for (int i = 0; i < WAIT_SECONDS * 200 && !governor_sleeps(); i++)
        pause_ms(5);
    return governor_sleeps();
}

TEST("work ends a rest in which nothing worked, and nothing else does")
{
    store_relaxed(&answer, GOVERNOR_IDLE | 1000000000000u);
    governor_wake(look, rest);
    REQUIRE(wait_for_rest());
    for (int round = 0; round < 20; round++) {
        uint64_t before = load_relaxed(&looks);
        governor_rouse();
        CHECK(wait_for_looks(before + 1));
        REQUIRE(wait_for_rest());
    }
    REQUIRE(wait_for_sleep()); /* till the time is over, which it is not in this test */
    uint64_t before = load_relaxed(&looks);
    governor_wake(look, rest);
    pause_ms(100);
    CHECK_EQ(load_relaxed(&looks), before);
}

TEST("work that is noted while it lies down to rest is seen")
{
    store_relaxed(&answer, GOVERNOR_IDLE | 1000000000000u);
    governor_wake(look, rest);
    for (int round = 0; round < 1000; round++) {
        /* As a launch does: what is noted, and the rest that is ended if there is one. */
        store_relaxed(&answer, (uint64_t)1);
        governor_rouse();
        uint64_t before = load_relaxed(&looks);
        if (!CHECK(wait_for_looks(before + 1)))
            break;
        store_relaxed(&answer, GOVERNOR_IDLE | 1000000000000u);
    }
}

static bool sleeps_for_good(void)
{
    return governor_sleeps() && !governor_looks_within(UINT64_MAX);
}

TEST("who stirs it leaves a rest alone, and ends a sleep for good")
{
    store_relaxed(&answer, GOVERNOR_IDLE | 1000000000000u);
    governor_wake(look, rest);
    REQUIRE(wait_for_rest());
    REQUIRE(wait_for_sleep());
    uint64_t before = load_relaxed(&looks);
    CHECK(!sleeps_for_good());
    governor_stir();
    pause_ms(50);
    CHECK_EQ(load_relaxed(&looks), before);
    store_relaxed(&answer, GOVERNOR_NOTHING);
    governor_rouse();
    for (int i = 0; i < WAIT_SECONDS * 200 && !sleeps_for_good(); i++)
        pause_ms(5);
    REQUIRE(wait_for_sleep());
    before = load_relaxed(&looks);
    governor_stir();
    CHECK(wait_for_looks(before + 1));
}

TEST("it is awake while it looks again and again, and neither in a rest nor asleep")
{
    CHECK(!governor_is_awake());
    store_relaxed(&answer, (uint64_t)1000000);
    governor_wake(look, rest);
    CHECK(governor_is_awake());
    REQUIRE(wait_for_looks(3));
    CHECK(governor_is_awake());
    store_relaxed(&answer, GOVERNOR_IDLE | 1000000000000u);
    REQUIRE(wait_for_rest());
    CHECK(!governor_is_awake());
    store_relaxed(&answer, GOVERNOR_NOTHING);
    governor_rouse();
    for (int i = 0; i < WAIT_SECONDS * 200 && !sleeps_for_good(); i++)
        pause_ms(5);
    CHECK(sleeps_for_good() && !governor_is_awake());
}

TEST("what is noted while it falls asleep for good is seen, though nobody rouses it from a rest")
{
    for (int round = 0; round < 25; round++) {
        governor_wake(look, rest);
        governor_rouse();
        pause_ms(95 + round); /* about when it does */
        store_relaxed(&answer, (uint64_t)1000000);
        governor_stir();
        uint64_t before = load_relaxed(&looks);
        CHECK(wait_for_looks(before + 3));
        store_relaxed(&answer, GOVERNOR_NOTHING);
    }
}

static uint64_t look_late(void)
{
    (void)look();
    return sleeps_for_good() ? GOVERNOR_IDLE | 1000000000000u : GOVERNOR_NOTHING;
}

TEST("where the look before it sleeps for good sees something it rests, and looks no more often")
{
    governor_wake(look_late, rest);
    REQUIRE(wait_for_looks(3));
    for (int i = 0; i < 5 || (i < WAIT_SECONDS * 20 && sleeps_for_good()); i++)
        pause_ms(50);
    uint64_t before = load_relaxed(&looks);
    if (!CHECK(before < 100))
        dprintf(STDOUT_FILENO, "# %llu looks\n", (unsigned long long)before);
    CHECK(!sleeps_for_good());
    governor_rouse();
    CHECK(wait_for_looks(before + 1));
}

TEST("a rest of its time is one look after the other, without work")
{
    store_relaxed(&answer, GOVERNOR_IDLE | 2000000u);
    governor_wake(look, rest);
    CHECK(wait_for_looks(50));
    CHECK(governor_works());
}

TEST("all signals are blocked in it, and in the thread that made it none more than before")
{
    sigset_t before, after;
    char line[128];
    sigprocmask(SIG_SETMASK, NULL, &before);
    governor_wake(look, rest);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number <= 64; number++)
        CHECK_EQ(sigismember(&after, number), sigismember(&before, number));
    REQUIRE(wait_for_looks(1));
    read_status(governor_thread(), "SigBlk:", line);
    uint64_t blocked = strtoull(line + 7, NULL, 16);
    for (int number = 1; number <= 64; number++) {
        bool free = number == SIGKILL || number == SIGSTOP || number == 32 || number == 33;
        if (!free && !CHECK(blocked >> (number - 1) & 1))
            dprintf(STDOUT_FILENO, "# signal %d\n", number);
    }
}

TEST("it ends when the process does, awake or asleep, and is not made again")
{
    for (int asleep = 0; asleep < 2; asleep++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            store_relaxed(&answer, asleep ? GOVERNOR_NOTHING : (uint64_t)1000000);
            governor_wake(look, rest);
            REQUIRE(wait_for_looks(1));
            if (asleep)
                REQUIRE(wait_for_sleep());
            governor_stop();
            for (int i = 0; i < WAIT_SECONDS * 200 && governor_thread(); i++)
                pause_ms(5);
            CHECK_EQ(governor_thread(), 0);
            governor_wake(look, rest);
            CHECK_EQ(governor_thread(), 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

TEST("a forked child has no thread, and gets one of its own when it has work")
{
    governor_wake(look, rest);
    REQUIRE(wait_for_looks(1));
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        governor_reset();
        CHECK_EQ(governor_thread(), 0);
        store_relaxed(&looks, (uint64_t)0);
        governor_wake(look, rest);
        CHECK(wait_for_looks(1));
        CHECK(governor_thread() != 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
