/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that lead odd lives while they hold memory: each goes on, is taken for alive by its
 * peers while it lives, and holds nothing once it is dead. */
#include "allocate.h"
#include "bed.h"
#include "users.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define LIMIT "3GiB"
#define LIMIT_BYTES (3 * GIB)
#define SIZE (3 * GIB / 2) /* beside two contexts, two of them do not fit */
#define PATIENCE_MS 20000

static int to_subject[2], to_observer[2];
static CUdeviceptr held;

static void say(const int ends[2])
{
    REQUIRE(write(ends[1], "", 1) == 1);
}

static void hear(const int ends[2])
{
    char byte;
    struct pollfd ready = {.fd = ends[0], .events = POLLIN};
    REQUIRE(poll(&ready, 1, PATIENCE_MS) == 1);
    REQUIRE(read(ends[0], &byte, 1) == 1);
}

/* The subject tells that it stands, and goes on when it is told to. */
static void stand(void)
{
    say(to_observer);
    hear(to_subject);
}

static void take(void)
{
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(&held, SIZE) == CUDA_SUCCESS);
}

/* A process goes on as if nothing had happened: what fits is had, what does not is refused. */
static void check_goes_on(void)
{
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
    CHECK(allocation_charged() >= SIZE + 64 * MIB);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

static pid_t begin(void (*life)(void *))
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    REQUIRE(pipe(to_subject) == 0 && pipe(to_observer) == 0);
    return bed_fork(life, NULL);
}

/* Whether another SIZE can be had; asking retires the dead. */
static bool is_free(void)
{
    CUdeviceptr pointer;
    CUresult result = CU(cuMemAlloc_v2)(&pointer, SIZE);
    CHECK(bed_card_bytes(0) <= LIMIT_BYTES);
    if (result == CUDA_SUCCESS)
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    else
        CHECK_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    return result == CUDA_SUCCESS;
}

/* The subject stands: it counts; once more where it has gone on; and no more when it is killed. */
static void observe(pid_t pid, unsigned stands)
{
    for (unsigned i = 0; i < stands; i++) {
        hear(to_observer);
        if (i == 0)
            bed_context(0);
        CHECK(!is_free());
        CHECK_EQ(bed_region_bytes(0) >= SIZE + allocation_charged(), true);
        if (i + 1 < stands)
            say(to_subject);
    }
    kill(pid, SIGKILL);
    while (wait(NULL) > 0) /* also what it leaves behind */
        ;
    CHECK(is_free());
    CHECK_EQ(bed_region_bytes(0), allocation_charged());
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(bed_card_bytes(0), allocation_charged());
}

static int region_descriptor(void)
{
    struct stat region, status;
    REQUIRE(stat(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), &region) == 0);
    for (int fd = 3; fd < 1024; fd++) {
        if (fstat(fd, &status) == 0 && status.st_ino == region.st_ino &&
            status.st_dev == region.st_dev)
            return fd;
    }
    REQUIRE(!"no descriptor of the region");
    return -1;
}

static void close_ours(void *argument)
{
    (void)argument;
    take();
    close(region_descriptor());
    stand();
    check_goes_on();
    stand();
}

BED_TEST("a process that closes the region's descriptor lives on among its peers", .limit = LIMIT)
{
    observe(begin(close_ours), 2);
}

static void put_file_in_place(void *argument)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
    char path[300], text[16] = "";
    (void)argument;
    take();
    int ours = region_descriptor();
    close(ours);
    snprintf(path, sizeof(path), "%s/own", bed_directory());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && write(fd, "mine", 4) == 4 && dup2(fd, ours) == ours);
    close(fd);
    REQUIRE(fcntl(ours, F_OFD_SETLK, &lock) == 0);
    stand();
    check_goes_on();
    stand();
    CHECK_EQ(lseek(ours, 0, SEEK_CUR), 4);
    CHECK(pread(ours, text, sizeof(text), 0) == 4 && !memcmp(text, "mine", 4));
    int other = open(path, O_RDWR | O_CLOEXEC);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    REQUIRE(fcntl(other, F_OFD_GETLK, &lock) == 0);
    CHECK(lock.l_type == F_WRLCK && lock.l_start == 7 && lock.l_len == 1);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 8};
    REQUIRE(fcntl(other, F_OFD_GETLK, &lock) == 0);
    CHECK_EQ(lock.l_type, F_UNLCK);
    stand();
}

BED_TEST("a program's file under our descriptor's old number is neither written nor locked",
    .limit = LIMIT)
{
    observe(begin(put_file_in_place), 3);
}

static void fail_to_exec(void *argument)
{
    (void)argument;
    take();
    CHECK_EQ(execl("/nowhere/at/all", "all", NULL), -1);
    CHECK_EQ(execl("/etc/passwd", "passwd", NULL), -1);
    stand();
    check_goes_on();
    stand();
}

BED_TEST("a process whose exec fails keeps what it holds", .limit = LIMIT)
{
    observe(begin(fail_to_exec), 2);
}

static void hide_from_ptrace(void *argument)
{
    (void)argument;
    take();
    REQUIRE(prctl(PR_SET_DUMPABLE, 0) == 0);
    close(region_descriptor()); /* peers judge by /proc alone */
    stand();
    check_goes_on();
    stand();
}

BED_TEST("a process that is not dumpable is seen to live", .limit = LIMIT)
{
    observe(begin(hide_from_ptrace), 2);
}

#define ODD_NAME "a) R 1 (b) Z 2"

static void take_odd_name(void *argument)
{
    (void)argument;
    REQUIRE(prctl(PR_SET_NAME, ODD_NAME) == 0);
    take();
    CHECK(!strncmp(bed_region_slot(getpid())->command, ODD_NAME, sizeof(ODD_NAME)));
    close(region_descriptor());
    stand();
    check_goes_on();
    stand();
}

BED_TEST("a process whose name looks like the rest of its status is seen to live", .limit = LIMIT)
{
    observe(begin(take_odd_name), 2);
}

static void become_nobody(void *argument)
{
    char path[300];
    (void)argument;
    take();
    snprintf(path, sizeof(path), "%s/machine", bed_directory());
    REQUIRE(chmod(bed_directory(), 0755) == 0 && chmod(path, 0666) == 0);
    REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
    stand();
    check_goes_on();
    close(region_descriptor());
    check_goes_on();
    stand();
}

BED_TEST("a process that gives up its rights goes on", .limit = LIMIT)
{
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    observe(begin(become_nobody), 2);
}

static void change_root(void *argument)
{
    char path[300];
    (void)argument;
    take();
    check_goes_on(); /* what is looked up at first use is looked up before */
    bed_region();
    snprintf(path, sizeof(path), "%s/jail", bed_directory());
    REQUIRE(mkdir(path, 0755) == 0 && chroot(path) == 0 && chdir("/") == 0);
    stand();
    __typeof__(cuMemAlloc_v2) *alloc = CU(cuMemAlloc_v2);
    CUdeviceptr pointer;
    CHECK_EQ(alloc(&pointer, LIMIT_BYTES), CUDA_ERROR_OUT_OF_MEMORY);
    check_goes_on();
    stand();
}

BED_TEST("a process that changes its root goes on", .limit = LIMIT)
{
    if (geteuid() != 0)
        SKIP("needs root");
    observe(begin(change_root), 2);
}

/* In the subject's place: one pid stands for both. */
static void wait_for_child(pid_t child)
{
    if (child)
        _exit(bed_ended_well(child) ? 0 : 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static bool may(int flags)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(flags) == 0 ? 0 : 1);
    return bed_ended_well(pid);
}

static void live_in_another_pid_namespace(void *argument)
{
    (void)argument;
    REQUIRE(unshare(CLONE_NEWPID) == 0);
    pid_t child = fork();
    wait_for_child(child);
    CHECK_EQ(getpid(), 1);
    take();
    stand();
    check_goes_on();
    stand();
}

BED_TEST("a process of another PID namespace counts while it lives", .limit = LIMIT)
{
    if (!may(CLONE_NEWPID))
        SKIP("no new PID namespace is permitted");
    observe(begin(live_in_another_pid_namespace), 2);
}

static bool hide_proc(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/proc", "tmpfs", 0, NULL) == 0;
}

static void live_without_proc(void *argument)
{
    (void)argument;
    REQUIRE(hide_proc());
    take();
    stand();
    check_goes_on();
    stand();
}

BED_TEST(
    "processes that see no /proc are counted and are missed when they are dead", .limit = LIMIT)
{
    if (!may(CLONE_NEWNS))
        SKIP("no new mount namespace is permitted");
    int status;
    pid_t probe = fork();
    if (probe == 0)
        _exit(hide_proc() ? 0 : 1);
    REQUIRE(waitpid(probe, &status, 0) == probe);
    if (status)
        SKIP("/proc cannot be hidden here");
    pid_t pid = begin(live_without_proc);
    REQUIRE(hide_proc());
    observe(pid, 2);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
