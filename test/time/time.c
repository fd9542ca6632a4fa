/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time (page.h), seen from the tests that run on it. */
#include "check.h"

#include "page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define LONG (20 * SECOND)
/* By which a sleeper wakes late, and what the looks at the clock beside it cost. */
#define LATE_NS (200000ull)
#define SYS_WAITV 449

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t real_ns(void)
{
    struct timespec now;
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_clock_gettime), "D"(CLOCK_MONOTONIC), "S"(&now)
                     : "rcx", "r11", "memory");
#else
    now = (struct timespec){0};
#endif
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void sleep_for(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / SECOND), (long)(ns % SECOND)};
    nanosleep(&time, NULL);
}

static void check_took(uint64_t since_ns, uint64_t wanted_ns, uint64_t late_ns)
{
    uint64_t took = now_ns() - since_ns;
    if (!CHECK(took >= wanted_ns && took <= wanted_ns + late_ns))
        dprintf(STDOUT_FILENO, "# %llu us, not %llu us\n", (unsigned long long)(took / 1000),
            (unsigned long long)(wanted_ns / 1000));
}

static struct shared {
    uint32_t word, other, order[8], count;
    uint64_t at_ns;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    sem_t semaphore;
    int pipe[2];
} * shared;

/* Between processes. */
static void begin(void)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED && pipe(shared->pipe) == 0);
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->mutex, &mutex);
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
    pthread_cond_init(&shared->cond, &cond);
    sem_init(&shared->semaphore, 1, 0);
}

static pid_t in_child(void (*body)(void))
{
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    return pid;
}

static void end_well(pid_t pid)
{
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

TEST("20 s of sleep take next to no time, and all clocks agree on it")
{
    uint64_t real = real_ns(), since = now_ns(), wall = clock_ns(CLOCK_REALTIME);
    sleep(20);
    check_took(since, LONG, LATE_NS);
    CHECK(clock_ns(CLOCK_REALTIME) - wall - LONG <= LATE_NS);
    CHECK_EQ(time(NULL), clock_ns(CLOCK_REALTIME) / SECOND);
    CHECK(real_ns() - real < 50 * SECOND);
}

TEST("each way to sleep sleeps its time")
{
    uint64_t since = now_ns();
    usleep(1000);
    check_took(since, 1 * MS, LATE_NS);
    since = now_ns();
    struct timespec until = {
        (time_t)((since + 5 * MS) / SECOND), (long)((since + 5 * MS) % SECOND)};
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), 0);
    check_took(since, 5 * MS, LATE_NS);
    since = now_ns();
    const struct timespec time = {0, 7 * MS};
    CHECK_EQ(syscall(SYS_nanosleep, &time, NULL), 0);
    check_took(since, 7 * MS, LATE_NS);
    since = now_ns();
    CHECK_EQ(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL), 0);
    check_took(since, 7 * MS, LATE_NS);
}

static void sleep_by_number(void)
{
    uint32_t own = __atomic_fetch_add(&shared->count, 1, __ATOMIC_SEQ_CST);
    sleep_for((uint64_t)(8 - own) * MS);
    shared->order[__atomic_fetch_add(&shared->word, 1, __ATOMIC_SEQ_CST)] = own;
}

TEST("sleepers of several processes wake in the order of their deadlines")
{
    pid_t pids[8];
    begin();
    for (int i = 0; i < 8; i++)
        pids[i] = in_child(sleep_by_number);
    for (int i = 0; i < 8; i++)
        end_well(pids[i]);
    for (uint32_t i = 0; i < 8; i++)
        CHECK_EQ(shared->order[i], 7 - i);
}

static long wait_word(uint32_t *word, uint32_t value, uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / SECOND), (long)(ns % SECOND)};
    return syscall(SYS_futex, word, FUTEX_WAIT, value, &time, NULL, 0) ? errno : 0;
}

static void wake_later(void)
{
    sleep_for(20 * MS);
    __atomic_store_n(&shared->word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

TEST("a futex's wait ends at its deadline, or as the word is woken by another process")
{
    begin();
    uint64_t since = now_ns();
    CHECK_EQ(wait_word(&shared->word, 0, 30 * MS), ETIMEDOUT);
    check_took(since, 30 * MS, LATE_NS);
    CHECK_EQ(wait_word(&shared->word, 5, LONG), EAGAIN);
    since = now_ns();
    pid_t pid = in_child(wake_later);
    long error = wait_word(&shared->word, 0, LONG);
    CHECK(error == 0 || error == EAGAIN); /* it was woken, or about to wait */
    check_took(since, 20 * MS, LATE_NS);
    end_well(pid);
}

TEST("so does a wait for several words")
{
    begin();
    uint64_t since = now_ns(), until_ns = since + 30 * MS;
    struct timespec until = {(time_t)(until_ns / SECOND), (long)(until_ns % SECOND)};
    struct {
        uint64_t value, address;
        uint32_t flags, reserved;
    } words[2] = {{0, (uintptr_t)&shared->other, 2, 0}, {0, (uintptr_t)&shared->word, 2, 0}};
    long result = syscall(SYS_WAITV, words, 2, 0, &until, CLOCK_MONOTONIC);
    if (result < 0 && errno == ENOSYS)
        SKIP("the kernel waits for one word at a time");
    CHECK(result < 0 && errno == ETIMEDOUT);
    check_took(since, 30 * MS, LATE_NS);
    since = now_ns();
    pid_t pid = in_child(wake_later);
    until.tv_sec += 3600;
    result = syscall(SYS_WAITV, words, 2, 0, &until, CLOCK_MONOTONIC);
    CHECK(result == 1 || (result < 0 && errno == EAGAIN)); /* as above */
    check_took(since, 20 * MS, LATE_NS);
    end_well(pid);
}

static void signal_later(void)
{
    sleep_for(20 * MS);
    pthread_mutex_lock(&shared->mutex);
    shared->word = 1;
    pthread_cond_signal(&shared->cond);
    pthread_mutex_unlock(&shared->mutex);
}

TEST("a condition variable's wait ends at its deadline, or by a signal of another process")
{
    begin();
    uint64_t since = now_ns(), until_ns = since + 30 * MS;
    struct timespec until = {(time_t)(until_ns / SECOND), (long)(until_ns % SECOND)};
    pthread_mutex_lock(&shared->mutex);
    CHECK_EQ(pthread_cond_timedwait(&shared->cond, &shared->mutex, &until), ETIMEDOUT);
    check_took(since, 30 * MS, LATE_NS);
    since = now_ns();
    until.tv_sec += 3600;
    pid_t pid = in_child(signal_later);
    while (!shared->word)
        CHECK_EQ(pthread_cond_timedwait(&shared->cond, &shared->mutex, &until), 0);
    check_took(since, 20 * MS, LATE_NS);
    pthread_mutex_unlock(&shared->mutex);
    end_well(pid);
    pid = in_child(signal_later);
    pthread_mutex_lock(&shared->mutex);
    shared->word = 0;
    while (!shared->word)
        CHECK_EQ(pthread_cond_wait(&shared->cond, &shared->mutex), 0);
    pthread_mutex_unlock(&shared->mutex);
    end_well(pid);
}

static void hold_mutex(void)
{
    pthread_mutex_lock(&shared->mutex);
    (void)!write(shared->pipe[1], "x", 1);
    sleep_for(50 * MS);
    pthread_mutex_unlock(&shared->mutex);
    sem_post(&shared->semaphore);
}

TEST("so do those of mutexes and semaphores, which are late by 2 ms at most")
{
    char byte;
    begin();
    pid_t pid = in_child(hold_mutex);
    CHECK_EQ(read(shared->pipe[0], &byte, 1), 1);
    uint64_t since = now_ns(), wall = clock_ns(CLOCK_REALTIME) + 30 * MS;
    struct timespec until = {(time_t)(wall / SECOND), (long)(wall % SECOND)};
    CHECK_EQ(pthread_mutex_timedlock(&shared->mutex, &until), ETIMEDOUT);
    check_took(since, 30 * MS, LATE_NS);
    until.tv_sec += 3600;
    CHECK_EQ(pthread_mutex_timedlock(&shared->mutex, &until), 0);
    check_took(since, 50 * MS - LATE_NS, 3 * MS);
    CHECK_EQ(sem_timedwait(&shared->semaphore, &until), 0);
    end_well(pid);
    since = now_ns();
    wall = clock_ns(CLOCK_REALTIME) + 30 * MS;
    until = (struct timespec){(time_t)(wall / SECOND), (long)(wall % SECOND)};
    CHECK(sem_timedwait(&shared->semaphore, &until) != 0 && errno == ETIMEDOUT);
    check_took(since, 30 * MS, LATE_NS);
}

static void write_later(void)
{
    sleep_for(100 * MS);
    (void)!write(shared->pipe[1], "x", 1);
}

TEST(
    "poll, select and epoll_wait end at their deadlines, and 2 ms after there is something to read")
{
    begin();
    struct pollfd fd = {.fd = shared->pipe[0], .events = POLLIN};
    struct timeval time = {0, 30000};
    struct epoll_event event = {.events = EPOLLIN};
    fd_set reads;
    char byte;
    int epoll = epoll_create1(0);
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, shared->pipe[0], &event), 0);
    uint64_t since = now_ns();
    CHECK_EQ(poll(&fd, 1, 30), 0);
    check_took(since, 30 * MS, LATE_NS);
    since = now_ns();
    FD_ZERO(&reads);
    FD_SET(shared->pipe[0], &reads);
    CHECK_EQ(select(shared->pipe[0] + 1, &reads, NULL, NULL, &time), 0);
    CHECK(!FD_ISSET(shared->pipe[0], &reads));
    check_took(since, 30 * MS, LATE_NS);
    since = now_ns();
    CHECK_EQ(epoll_wait(epoll, &event, 1, 30), 0);
    check_took(since, 30 * MS, LATE_NS);
    for (int way = 0; way < 3; way++) {
        since = now_ns();
        time = (struct timeval){3600, 0};
        FD_SET(shared->pipe[0], &reads);
        pid_t pid = in_child(write_later);
        int ready = way == 0   ? poll(&fd, 1, 3600000)
                    : way == 1 ? select(shared->pipe[0] + 1, &reads, NULL, NULL, &time)
                               : epoll_wait(epoll, &event, 1, 3600000);
        CHECK_EQ(ready, 1);
        check_took(since, 100 * MS, 3 * MS);
        end_well(pid);
        CHECK_EQ(read(shared->pipe[0], &byte, 1), 1);
    }
}

static void sleep_long(void)
{
    (void)!write(shared->pipe[1], "x", 1);
    sleep_for(10 * MS);
    (void)!write(shared->pipe[1], "x", 1);
    sleep_for(LONG);
}

TEST("a sleeper that is killed, or stopped, keeps the clock from nothing")
{
    char byte;
    begin();
    for (int number = SIGSTOP; number; number = number == SIGSTOP ? SIGKILL : 0) {
        pid_t pid = in_child(sleep_long);
        CHECK_EQ(read(shared->pipe[0], &byte, 1), 1);
        CHECK_EQ(kill(pid, number), 0);
        uint64_t since = now_ns();
        sleep_for(2 * LONG);
        check_took(since, 2 * LONG, LATE_NS);
        (void)kill(pid, SIGCONT);
        (void)kill(pid, SIGKILL);
        CHECK_EQ(waitpid(pid, NULL, 0), pid);
    }
}

static void *end_at_once(void *unused)
{
    return unused;
}

/* Opens, reads, faults and blocks a little, with a thread: none of it is a look at the clock. */
static void live(void)
{
    pthread_t thread;
    char *memory = mmap(NULL, 64 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 64; i++)
        memory[i << 12] = 1;
    REQUIRE(pthread_create(&thread, NULL, end_at_once, NULL) == 0);
    pthread_join(thread, NULL);
}

TEST("while a process begins, runs and ends, the clock stands, whoever sleeps beside it")
{
    begin();
    pid_t sleeper = in_child(sleep_long);
    uint64_t since = now_ns();
    for (int i = 0; i < 300; i++)
        end_well(in_child(live));
    check_took(since, 0, LATE_NS);
    kill(sleeper, SIGKILL);
}

TEST("programs that are executed are on virtual time, whatever their environment")
{
    char *const none[] = {NULL}, *const words[] = {"sleep", "20", NULL};
    begin();
    uint64_t since = now_ns();
    pid_t pid = fork();
    if (pid == 0) {
        (void)execve("/bin/sleep", words, none);
        _exit(127);
    }
    end_well(pid);
    check_took(since, LONG, 5 * MS);
    pid = fork();
    if (pid == 0) {
        unsetenv("LD_PRELOAD");
        unsetenv(VTIME_VARIABLE);
        (void)execlp("sleep", "sleep", "20", (char *)NULL);
        _exit(127);
    }
    end_well(pid);
    CHECK_EQ(system("sleep 20"), 0);
    check_took(since, 3 * LONG, 15 * MS);
}

TEST("a thread that looks at the clock again and again sees time pass, and sleepers wake meanwhile")
{
    begin();
    uint64_t since = now_ns();
    pid_t pid = in_child(wake_later);
    while (!__atomic_load_n(&shared->word, __ATOMIC_SEQ_CST) && now_ns() - since < SECOND)
        continue;
    check_took(since, 20 * MS, LATE_NS);
    while (now_ns() - since < 40 * MS)
        continue;
    check_took(since, 40 * MS, LATE_NS);
    while (now_ns() - since < 60 * MS)
        sched_yield();
    check_took(since, 60 * MS, LATE_NS);
    end_well(pid);
}

static void *spin(void *unused)
{
    while (!__atomic_load_n(&shared->word, __ATOMIC_SEQ_CST))
        continue;
    return unused;
}

TEST("a thread that spins and looks at no clock holds it up for 20 ms of processor time")
{
    pthread_t thread;
    begin();
    REQUIRE(pthread_create(&thread, NULL, spin, NULL) == 0);
    uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    wake_later();
    pthread_join(thread, NULL);
    CHECK(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu >= 20 * MS);
}

static void note(int number)
{
    (void)number;
    shared->at_ns = now_ns();
}

static void interrupt(void)
{
    sleep_for(20 * MS);
    kill(getppid(), SIGUSR1);
}

TEST("a signal's handler ends a sleep, which tells what is left of it")
{
    begin();
    const struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    struct timespec time = {100, 0}, left = {0};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    uint64_t since = now_ns();
    pid_t pid = in_child(interrupt);
    CHECK(nanosleep(&time, &left) == -1 && errno == EINTR);
    check_took(since, 20 * MS, LATE_NS);
    CHECK_EQ(left.tv_sec, 99);
    CHECK(shared->at_ns - since >= 20 * MS);
    end_well(pid);
}

TEST("an alarm comes at its virtual time, once, and not where it was called off")
{
    begin();
    const struct sigaction action = {.sa_handler = note};
    CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
    uint64_t since = now_ns();
    CHECK_EQ(alarm(5), 0);
    CHECK_EQ(alarm(7), 5);
    CHECK(sleep(100) > 0);
    check_took(since, 7 * SECOND, 3 * MS); /* 2.1 ms late once in some hundred runs */
    CHECK_EQ(sleep(20), 0);
    CHECK_EQ(alarm(5), 0);
    CHECK_EQ(alarm(0), 5);
    CHECK_EQ(sleep(20), 0);
}

static void *sleep_often(void *number)
{
    for (uint64_t i = 0; i < 200; i++)
        sleep_for((i * 7919 % 101 + (uint64_t)(uintptr_t)number) * 10000);
    return NULL;
}

/* The process that waits for this test looks at the clock every 2 ms (400 ns), which may delay a
 * sleep that ends just then. */
TEST("the same sleeps of several threads take the same time each time, within 2 us")
{
    uint64_t took[5];
    for (int round = 0; round < 5; round++) {
        pthread_t threads[4];
        uint64_t since = now_ns();
        for (uintptr_t i = 0; i < 4; i++)
            REQUIRE(pthread_create(&threads[i], NULL, sleep_often, (void *)i) == 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        took[round] = now_ns() - since;
        if (round > 1) /* the first one has threads' stacks to make */
            CHECK(took[round] <= took[1] + 2000 && took[1] <= took[round] + 2000);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
