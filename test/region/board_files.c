/* SPDX-License-Identifier: Apache-2.0 */
/* A board's file: planted, taken away, cut off, in directories of all kinds. */
#include "boards.h"

#include "users.h"

#include "base/atomic.h"
#include "base/guard.h"
#include "base/sleep.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static struct registry ours, theirs;

/* In the C library's place for registry/registry_file.c: set, files without a name cannot be
 * linked. */
static bool refuse_linkat;

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    if (refuse_linkat) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_linkat, from, old, to, new, flags);
}

static void plant(const char *content, size_t bytes)
{
    int fd = open(boards_path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    REQUIRE(fd >= 0 && write(fd, content, bytes) == (ssize_t)bytes);
    close(fd);
}

static unsigned files_in_directory(void)
{
    unsigned count = 0;
    DIR *directory = opendir(peers_directory);
    REQUIRE(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(directory);
    return count;
}

static off_t size_of_board(void)
{
    struct stat status;
    REQUIRE(stat(boards_path, &status) == 0);
    return status.st_size;
}

/* How many lines the library says meanwhile; the log level is the process's. */
static int said_by_attaching(int error, int times)
{
    char text[4096];
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO), lines = 0;
    REQUIRE(file && kept >= 0);
    dup2(fileno(file), STDERR_FILENO);
    CHECK_EQ(boards_try(&ours, 1), error);
    for (int i = 1; i < times; i++)
        boards_keep(&ours);
    dup2(kept, STDERR_FILENO);
    rewind(file);
    while (fgets(text, sizeof(text), file))
        lines++;
    return lines;
}

TEST("a directory that does not exist is not made, and nothing is said")
{
    boards_begin();
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    REQUIRE(rmdir(peers_directory) == 0);
    CHECK_EQ(said_by_attaching(-ENOENT, 3), 0);
    CHECK_EQ(access(peers_directory, F_OK), -1);
    CHECK_EQ(registry_attach(&ours, "", BOARDS_UUID, 1, NULL), -ENOENT);
    CHECK_EQ(registry_attach(&ours, peers_directory, "../x", 1, NULL), -EINVAL);
    CHECK_EQ(registry_attach(&ours, peers_directory, "", 1, NULL), -EINVAL);
    boards_keep(&ours);
    REQUIRE(mkdir(peers_directory, 0777) == 0);
    CHECK_EQ(boards_try(&ours, 1), 0);
}

TEST("a directory that comes later is used then")
{
    boards_begin();
    REQUIRE(rmdir(peers_directory) == 0);
    CHECK_EQ(boards_try(&ours, 1), -ENOENT);
    REQUIRE(mkdir(peers_directory, 0777) == 0);
    boards_keep(&ours);
    CHECK(registry_is_attached(&ours));
    boards_attach(&theirs, 2);
    CHECK(boards_meet(&ours, &theirs));
}

TEST("what is no board is left as it is, and said once")
{
    char content[20000], after[20000];
    boards_begin();
    setenv("LIBCUDA_LOG_LEVEL", "1", 1);
    memset(content, 0, sizeof(content));
    memcpy(content + 17000, "behind", 6);
    plant(content, sizeof(content));
    CHECK_EQ(said_by_attaching(-EPROTO, 5), 1);
    int fd = open(boards_path, O_RDONLY | O_CLOEXEC);
    CHECK_EQ(read(fd, after, sizeof(after)), (ssize_t)sizeof(after));
    CHECK(memcmp(content, after, sizeof(after)) == 0);
    REQUIRE(unlink(boards_path) == 0);
    plant("hello\n", 6);
    CHECK_EQ(boards_try(&ours, 1), -EPROTO);
    CHECK_EQ(size_of_board(), 6);
    REQUIRE(truncate(boards_path, 0) == 0 && truncate(boards_path, 20000) == 0);
    CHECK_EQ(boards_try(&ours, 1), -EPROTO);
}

TEST("a board of another version is left as it is")
{
    struct vgpu_board other = {.magic = VGPU_BOARD_MAGIC,
        .version = VGPU_BOARD_VERSION + 1,
        .byte_order = VGPU_BOARD_BYTE_ORDER,
        .size = sizeof(struct vgpu_board)};
    boards_begin();
    plant((char *)&other, sizeof(other));
    CHECK_EQ(boards_try(&ours, 1), -EPROTO);
    REQUIRE(unlink(boards_path) == 0);
    other.version = VGPU_BOARD_VERSION;
    other.byte_order = 0x04030201;
    plant((char *)&other, 100);
    CHECK_EQ(boards_try(&ours, 1), -EPROTO);
    CHECK_EQ(size_of_board(), 100);
}

TEST("a file that holds nothing becomes a board")
{
    static const char zeros[sizeof(struct vgpu_board)];
    static const size_t sizes[] = {0, 1, 4096, sizeof(zeros)};
    boards_begin();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        plant(zeros, sizes[i]);
        boards_attach(&ours, 1);
        boards_attach(&theirs, 2);
        CHECK(boards_meet(&ours, &theirs));
        CHECK_EQ(size_of_board(), 16384);
        registry_detach(&ours);
        registry_detach(&theirs);
        REQUIRE(unlink(boards_path) == 0);
    }
}

TEST("a link at the name is not followed, and neither a pipe nor a directory is opened")
{
    char target[300];
    struct stat status;
    boards_begin();
    snprintf(target, sizeof(target), "%s/target", peers_directory);
    REQUIRE(symlink(target, boards_path) == 0);
    CHECK_EQ(boards_try(&ours, 1), -ELOOP);
    CHECK_EQ(access(target, F_OK), -1);
    close(open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    CHECK_EQ(boards_try(&ours, 1), -ELOOP);
    REQUIRE(stat(target, &status) == 0);
    CHECK_EQ(status.st_size, 0);
    REQUIRE(unlink(boards_path) == 0 && mkfifo(boards_path, 0666) == 0);
    CHECK_EQ(boards_try(&ours, 1), -EPROTO);
    REQUIRE(unlink(boards_path) == 0 && mkdir(boards_path, 0777) == 0);
    CHECK_EQ(boards_try(&ours, 1), -EPROTO);
    rmdir(boards_path);
}

TEST("the file is for all users, whatever the umask")
{
    struct stat status;
    boards_begin();
    umask(077);
    for (int i = 0; i < 2; i++) {
        refuse_linkat = i;
        boards_attach(&ours, 1);
        REQUIRE(stat(boards_path, &status) == 0);
        CHECK_EQ(status.st_mode & 07777, 0666);
        CHECK_EQ(status.st_nlink, 1);
        CHECK_EQ(files_in_directory(), 1);
        registry_detach(&ours);
        REQUIRE(unlink(boards_path) == 0);
    }
}

/* As one of two users of different containers. */
static void become(unsigned uid)
{
    REQUIRE(
        setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0);
}

static void attach_as_first_user(void)
{
    become(12345);
    boards_attach(&theirs, 2);
    boards_say(&theirs, true, clock_now_ns());
    peers_step(1);
    peers_wait(2);
    boards_say(&theirs, true, clock_now_ns());
    CHECK_EQ(boards_look(&theirs, clock_now_ns()).active, 1);
}

TEST("users of different containers share a board in a sticky directory")
{
    if (!users_may_change())
        SKIP(USERS_NEEDED);
    boards_begin();
    REQUIRE(chmod(peers_directory, 01777) == 0);
    pid_t pid = peers_fork(attach_as_first_user);
    peers_wait(1);
    become(23456);
    boards_attach(&ours, 1);
    boards_say(&ours, true, clock_now_ns());
    CHECK_EQ(boards_held(&ours), 2);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
}

TEST("in a directory that may not be written there is a board only if there is one already")
{
    boards_begin();
    boards_attach(&theirs, 2);
    REQUIRE(chmod(peers_directory, 0755) == 0);
    if (geteuid() == 0 && !users_may_change())
        SKIP(USERS_NEEDED);
    if (geteuid() == 0)
        become(23456);
    else
        REQUIRE(chmod(peers_directory, 0555) == 0);
    boards_attach(&ours, 1);
    CHECK(boards_meet(&ours, &theirs));
    CHECK_EQ(registry_attach(&ours, peers_directory, "GPU-another", 1, NULL), -EACCES);
    (void)!chmod(peers_directory, 0755);
}

TEST("a file that may not be written is not used")
{
    boards_begin();
    boards_attach(&theirs, 2);
    REQUIRE(chmod(boards_path, 0444) == 0);
    if (geteuid() == 0 && !users_may_change())
        SKIP(USERS_NEEDED);
    if (geteuid() == 0)
        become(23456);
    CHECK_EQ(boards_try(&ours, 1), -EACCES);
}

TEST("a process that may write no such file makes none, and is not ended for it")
{
    const struct rlimit none = {.rlim_cur = 1000, .rlim_max = RLIM_INFINITY};
    boards_begin();
    REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
    CHECK_EQ(boards_try(&ours, 1), -EFBIG);
    CHECK_EQ(files_in_directory(), 0);
    plant("", 0);
    CHECK_EQ(boards_try(&ours, 1), -EFBIG);
}

TEST("a board that was deleted, renamed away or replaced is left for the one that others find")
{
    char elsewhere[300];
    boards_begin();
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", peers_directory);
    boards_attach(&ours, 1);
    for (int i = 0; i < 2; i++) {
        REQUIRE((i ? rename(boards_path, elsewhere) : unlink(boards_path)) == 0);
        boards_attach(&theirs, 2);
        CHECK(!boards_meet(&ours, &theirs));
        boards_keep(&ours);
        CHECK(boards_meet(&ours, &theirs));
        CHECK_EQ(boards_held(&theirs), 2);
        registry_detach(&theirs);
    }
    REQUIRE(unlink(boards_path) == 0);
    boards_keep(&ours);
    CHECK_EQ(size_of_board(), 16384);
}

TEST("one looks after the file every 100 ms at most")
{
    boards_begin();
    boards_attach(&ours, 1);
    boards_attach(&theirs, 2);
    uint64_t looked = ours.looked_ns;
    REQUIRE(unlink(boards_path) == 0);
    registry_keep(&ours, looked + 99999999);
    CHECK_EQ(access(boards_path, F_OK), -1);
    registry_keep(&ours, looked + 100000000);
    CHECK_EQ(access(boards_path, F_OK), 0);
}

TEST("where something else takes the board's place, those who have it go on with it")
{
    boards_begin();
    boards_attach(&ours, 1);
    boards_attach(&theirs, 2);
    REQUIRE(unlink(boards_path) == 0);
    plant("hello\n", 6);
    boards_keep(&ours);
    boards_keep(&theirs);
    CHECK(boards_meet(&ours, &theirs));
    CHECK_EQ(size_of_board(), 6);
}

TEST("a board that is cut off under those who use it harms nobody, and is made whole")
{
    static const off_t sizes[] = {0, 1, 4096, 10000};
    boards_begin();
    boards_attach(&ours, 1);
    REQUIRE(truncate(boards_path, 16000) == 0); /* where no access shows it */
    boards_keep(&ours);
    CHECK_EQ(size_of_board(), 16384);
    boards_attach(&theirs, 2);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        REQUIRE(truncate(boards_path, sizes[i]) == 0);
        boards_say(&ours, true, clock_now_ns());
        (void)boards_look(&ours, clock_now_ns());
        (void)boards_held(&ours);
        registry_idle(&ours);
        registry_wake(&ours);
        registry_wait(&theirs, 0, 1000000);
        boards_keep(&ours);
        CHECK_EQ(size_of_board(), 16384);
        boards_keep(&theirs);
        CHECK(boards_meet(&ours, &theirs));
    }
}

TEST("who waits on a board that was cut off sleeps for the whole time")
{
    boards_begin();
    boards_attach(&ours, 1);
    REQUIRE(truncate(boards_path, 0) == 0);
    uint64_t start = clock_now_ns();
    registry_wait(&ours, 0, 30000000);
    CHECK(clock_now_ns() - start >= 30000000);
}

TEST("a program that closes all descriptors gets its board back, at a high number")
{
    boards_begin();
    boards_attach(&ours, 1);
    boards_attach(&theirs, 2);
    CHECK(ours.fd >= 300);
    for (int fd = 3; fd < 400; fd++)
        close(fd);
    boards_keep(&ours);
    boards_keep(&theirs);
    CHECK(boards_meet(&ours, &theirs));
    CHECK_EQ(boards_held(&ours), 2);
}

#define CREATORS 8
#define ROUNDS 25

static void create_all_at_once(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        peers_wait(2 * round + 1);
        refuse_linkat = (getpid() + round) % 2;
        CHECK_EQ(boards_try(&ours, (uint64_t)getpid()), 0);
        add_seq_cst(&peers->number[0], 1);
        peers_wait(2 * round + 2);
        CHECK_EQ(boards_held(&ours), CREATORS);
        add_seq_cst(&peers->number[0], 1);
        peers_wait(2 * round + 3);
        registry_detach(&ours);
    }
}

static void wait_for_all(int64_t number)
{
    while (load_acquire(&peers->number[0]) < number && !check_shared->failures)
        sleep_ns(100000);
}

TEST("containers that make the board at the same moment make one, and leave nothing else")
{
    pid_t pids[CREATORS];
    boards_begin();
    for (int i = 0; i < CREATORS; i++)
        pids[i] = peers_fork(create_all_at_once);
    for (int round = 0; round < ROUNDS; round++) {
        (void)unlink(boards_path);
        peers_step(2 * round + 1);
        wait_for_all((2 * round + 1) * CREATORS);
        peers_step(2 * round + 2);
        wait_for_all((2 * round + 2) * CREATORS);
        CHECK_EQ(files_in_directory(), 1);
    }
    peers_step(2 * ROUNDS + 1);
    for (int i = 0; i < CREATORS; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
}

static bool ended;

static void *use_the_board(void *board)
{
    while (!load_acquire(&ended)) {
        boards_say(board, true, clock_now_ns());
        (void)boards_look(board, clock_now_ns());
        boards_keep(board);
        registry_idle(board);
    }
    return NULL;
}

TEST("threads go on while others cut, delete and replace the board")
{
    pthread_t threads[3];
    boards_begin();
    boards_attach(&ours, 1);
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(&threads[i], NULL, use_the_board, &ours) == 0);
    uint64_t start = clock_now_ns();
    for (unsigned i = 0; clock_now_ns() - start < 700000000; i++) {
        if (i % 3 == 0)
            (void)!truncate(boards_path, i % 2 ? 0 : 5000);
        else if (i % 3 == 1)
            (void)!unlink(boards_path);
        else
            sleep_ns(200000);
    }
    store_release(&ended, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    boards_keep(&ours);
    boards_attach(&theirs, 2);
    CHECK(boards_meet(&ours, &theirs));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
