/* SPDX-License-Identifier: Apache-2.0 */
/* What a charge costs in system calls, counted from outside. */
#include "peers.h"

#include "base/clock.h"
#include "base/guard.h"
#include "check.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>

#define ROUNDS 50
#define NUMBERS 512

/* The calls of the traced child, by number, between two of its questions for its parent. */
static int calls[NUMBERS];
static bool counting;

static int others(void)
{
    static const int known[] = {SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_fstat, SYS_newfstatat};
    int sum = 0;
    for (int i = 0; i < NUMBERS; i++)
        sum += calls[i];
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        sum -= calls[known[i]];
    return sum;
}

/* False where the kernel does not tell. */
static bool note_call(pid_t pid)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
        return false;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY || info.entry.nr >= NUMBERS)
        return true;
    if (info.entry.nr == SYS_getppid)
        counting = !counting;
    else
        calls[info.entry.nr] += counting;
    return true;
}

/* Counts what `body` does between two calls of getppid. */
static void count_calls(void (*body)(void))
{
    int status;
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(CHECK_EXIT_SKIPPED);
        raise(SIGSTOP);
        body();
        _exit(0);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_EXIT_SKIPPED)
        SKIP("tracing is not allowed here");
    (void)ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    while (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid &&
           WIFSTOPPED(status)) {
        if (WSTOPSIG(status) == (SIGTRAP | 0x80) && !note_call(pid)) {
            peers_kill(pid);
            SKIP("the kernel does not tell a traced process's calls");
        }
    }
    CHECK_EQ(status, 0);
    CHECK(!counting);
}

static void charge_and_release(unsigned device)
{
    (void)!account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER);
    account_commit(device, PEERS_MIB);
    account_release(device, PEERS_MIB, ACCOUNT_BUFFER);
}

static void rounds_apart(void)
{
    unsigned device = peers_join("1g");
    charge_and_release(device);
    (void)getppid();
    for (int i = 0; i < ROUNDS; i++)
        charge_and_release(device);
    (void)getppid();
}

TEST("a charge, its commitment and its release each cost one window, and one look at the file")
{
    peers_begin();
    count_calls(rounds_apart);
    CHECK_EQ(calls[SYS_rt_sigaction], ROUNDS * 3 * 2);
    CHECK(calls[SYS_fstat] <= ROUNDS);
    CHECK(calls[SYS_rt_sigprocmask] <= ROUNDS * 3 / 64 + 1);
    CHECK_EQ(others(), 0);
}

static void rounds_together(void)
{
    unsigned device = peers_join("1g");
    charge_and_release(device);
    (void)getppid();
    for (int i = 0; i < ROUNDS; i++) {
        guard_enter();
        charge_and_release(device);
        guard_leave();
    }
    (void)getppid();
}

TEST("within one window they cost that window alone")
{
    peers_begin();
    count_calls(rounds_together);
    CHECK_EQ(calls[SYS_rt_sigaction], ROUNDS * 2);
    CHECK_EQ(others(), 0);
}

static void refusals(void)
{
    unsigned device = peers_join("1g");
    (void)!account_check(device, 2048 * PEERS_MIB);
    (void)getppid();
    for (int i = 0; i < ROUNDS; i++)
        CHECK_EQ(account_check(device, 2048 * PEERS_MIB), -ENOMEM);
    (void)getppid();
}

TEST("a refusal by what the process itself holds costs one window and nothing else")
{
    peers_begin();
    count_calls(refusals);
    CHECK_EQ(calls[SYS_rt_sigaction], ROUNDS * 2);
    CHECK_EQ(calls[SYS_fstat] + calls[SYS_newfstatat], 0);
    CHECK_EQ(others(), 0);
}

static void looks_within_one(void)
{
    unsigned device = peers_join("1g");
    charge_and_release(device);
    (void)getppid();
    /* As if the last look had been a moment ago, however long a traced round takes. */
    for (int i = 0; i < ROUNDS; i++) {
        peers_region.whole_seen_ns = clock_now_ns();
        charge_and_release(device);
    }
    (void)getppid();
}

TEST("charges soon after each other look at the file once")
{
    peers_begin();
    count_calls(looks_within_one);
    CHECK(calls[SYS_fstat] < ROUNDS);
}

static void refused_by_peers(void)
{
    unsigned device = peers_join("1g");
    charge_and_release(device);
    (void)getppid();
    for (int i = 0; i < ROUNDS; i++) {
        peers_region.whole_seen_ns = clock_now_ns();
        CHECK_EQ(account_reserve(device, 2048 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    }
    (void)getppid();
}

TEST("nothing is refused before the file was looked for")
{
    peers_begin();
    count_calls(refused_by_peers);
    CHECK_EQ(calls[SYS_fstat], ROUNDS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
