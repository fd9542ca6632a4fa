/* SPDX-License-Identifier: Apache-2.0 */
/* The ioctl door: every call that is not the resource manager's goes through unchanged. */
#include "abi/rm.h"
#include "bed.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int null_device(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    return fd;
}

BED_TEST("a terminal's size is set and read")
{
    struct winsize wanted = {.ws_row = 11, .ws_col = 22, .ws_xpixel = 33, .ws_ypixel = 44}, got;
    int fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (fd < 0)
        SKIP("no pseudo terminals here");
    CHECK_EQ(ioctl(fd, TIOCSWINSZ, &wanted), 0);
    memset(&got, 0, sizeof(got));
    CHECK_EQ(ioctl(fd, TIOCGWINSZ, &got), 0);
    CHECK_EQ(memcmp(&got, &wanted, sizeof(got)), 0);
}

BED_TEST("the bytes in a pipe are told")
{
    int pipes[2], bytes = -1;
    REQUIRE(pipe(pipes) == 0 && write(pipes[1], "12345", 5) == 5);
    CHECK_EQ(ioctl(pipes[0], FIONREAD, &bytes), 0);
    CHECK_EQ(bytes, 5);
}

BED_TEST("a call without an argument and one with an integer work")
{
    int fd = open("/proc/self/exe", O_RDONLY), on = 1;
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    CHECK_EQ(ioctl(fd, FIOCLEX), 0);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(ioctl(fd, FIONCLEX), 0);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    CHECK_EQ(ioctl(pipes[0], FIONBIO, &on), 0);
    CHECK_EQ(fcntl(pipes[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

BED_TEST("errors are the kernel's, and success leaves errno alone")
{
    int bytes;
    errno = 0;
    CHECK_EQ(ioctl(-1, FIONREAD, &bytes), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(ioctl(null_device(), TCGETS, &(char[256]){0}), -1);
    CHECK_EQ(errno, ENOTTY);
    int pipes[2];
    REQUIRE(pipe(pipes) == 0);
    errno = 4711;
    CHECK_EQ(ioctl(pipes[0], FIONREAD, &bytes), 0);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(ioctl(pipes[0], FIONREAD, NULL), -1);
    CHECK_EQ(errno, EFAULT);
}

/* The type is the frame buffer's too. */
BED_TEST("calls of the resource manager's type on other files go through", .limit = "1GiB")
{
    static const unsigned long frame_buffer[] = {0x4600, 0x4601, 0x4602, 0x4604, 0x4611};
    int fd = null_device(), pipes[2];
    REQUIRE(pipe(pipes) == 0);
    char buffer[256] = {0};
    for (size_t i = 0; i < sizeof(frame_buffer) / sizeof(frame_buffer[0]); i++) {
        CHECK_EQ(ioctl(fd, frame_buffer[i], buffer), -1);
        CHECK_EQ(errno, ENOTTY);
        CHECK_EQ(ioctl(pipes[0], frame_buffer[i], NULL), -1);
        CHECK_EQ(errno, ENOTTY);
    }
    CHECK(access(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), F_OK) != 0);
}

BED_TEST("calls that look like the resource manager's on other files fail as ever")
{
    int fd = null_device();
    struct rm_memory_params params = {.size = 1u << 20};
    struct rm_alloc64 root = {.class_id = RM_CLASS_CLIENT};
    struct rm_alloc64 memory = {.client = 7,
        .parent = 8,
        .object = 9,
        .class_id = RM_CLASS_MEMORY_LOCAL,
        .params = (uintptr_t)&params};
    CHECK_EQ(ioctl(fd, RM_IOCTL_ALLOC64, &root), -1);
    CHECK_EQ(errno, ENOTTY);
    CHECK_EQ(ioctl(fd, RM_IOCTL_ALLOC64, &memory), -1);
    CHECK_EQ(errno, ENOTTY);
    CHECK_EQ(ioctl(fd, RM_IOCTL_ALLOC64, NULL), -1);
    CHECK_EQ(errno, ENOTTY);
    CHECK_EQ(ioctl(-1, RM_IOCTL_ALLOC64, &memory), -1);
    CHECK_EQ(errno, EBADF);
    CHECK_EQ(ioctl(fd, RM_IOCTL_FREE, &(struct rm_free){0}), -1);
    CHECK_EQ(errno, ENOTTY);
    CHECK_EQ(ioctl(fd, RM_IOCTL_CONTROL, &(struct rm_control){0}), -1);
    CHECK_EQ(errno, ENOTTY);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
