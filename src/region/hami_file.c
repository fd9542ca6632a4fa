/* SPDX-License-Identifier: Apache-2.0 */
/* HAMi-core's structures by their sizes, and whether their processes live. */
#include "region/hami_file.h"

#include "base/file.h"
#include "base/file_lock.h"
#include "base/parse.h"
#include "base/process.h"
#include "vgpu/hami.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define INITIALISING 1 /* in the magic number's place, by one that fills the structure in */
#define LOCK_WAIT_NS 100000000ull
#define LOCK_BYTE 0
#define TAIL_BYTES 16 /* behind the slots: proc_num and three words more */
#define LINE_BYTES (PATH_MAX + 128)
#define PIECE_BYTES 1024
#define TICK_SLACK_NS                                                                              \
    50000000 /* start times are in ticks of 10 ms, the kernel's coarse clock lags */

/* In the order in which they came. */
static const struct layout {
    off_t bytes, slots, slot_bytes;
    bool has_time; /* of the last launch or start, behind the tail */
} layouts[] = {
    {804680, 1848, 784, false},   /* before there were versions */
    {1197896, 1848, 1168, false}, /* with each process's use of the device */
    {sizeof(struct vgpu_hami), offsetof(struct vgpu_hami, slots), sizeof(struct vgpu_hami_slot),
        true},                   /* 1.0 to 1.2 */
    {2008984, 1888, 1960, true}, /* with both semaphores in the head, 1.1 */
};

#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static const struct layout *layout_of(off_t size)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (size == layouts[i].bytes || size == layouts[i].bytes + 1)
            return &layouts[i];
    }
    return NULL;
}

bool hami_file_is(int fd, off_t size)
{
    int32_t magic;
    if (pread(fd, &magic, sizeof(magic), 0) != (ssize_t)sizeof(magic))
        return false;
    return magic == VGPU_HAMI_MAGIC || ((magic == 0 || magic == INITIALISING) && layout_of(size));
}

static int32_t read_word(int fd, off_t offset)
{
    int32_t word = 0;
    return pread(fd, &word, sizeof(word), offset) == (ssize_t)sizeof(word) ? word : 0;
}

/* ---- whether a process maps the file ---- */

/* A line of /proc/PID/maps names the file by device and inode, or on a file system that lies over
 * another, where these are that one's, by its path. */
struct mapped {
    char identity[64], path[PATH_MAX];
};

static void identify(int fd, struct mapped *ret_mapped)
{
    char self[64];
    struct stat status;
    *ret_mapped = (struct mapped){.identity = "?"};
    if (file_status(fd, &status) == 0)
        snprintf(ret_mapped->identity, sizeof(ret_mapped->identity), " %02x:%02x %llu ",
            major(status.st_dev), minor(status.st_dev), (unsigned long long)status.st_ino);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(self, ret_mapped->path, sizeof(ret_mapped->path) - 1);
    ret_mapped->path[length > 0 ? length : 0] = '\0';
}

static bool is_of_file(const char *line, const struct mapped *mapped)
{
    const char *path = strchr(line, '/');
    return path && (strstr(line, mapped->identity) || !strcmp(path, mapped->path));
}

/* Each line of the open list; the end of one that does not fit is left out. */
static bool any_line_is(int list, const struct mapped *mapped)
{
    char line[LINE_BYTES], piece[PIECE_BYTES];
    size_t used = 0;
    for (ssize_t got; (got = read(list, piece, sizeof(piece))) > 0;) {
        for (ssize_t i = 0; i < got; i++) {
            if (piece[i] != '\n') {
                line[used] = piece[i];
                used += used < sizeof(line) - 1;
                continue;
            }
            line[used] = '\0';
            used = 0;
            if (is_of_file(line, mapped))
                return true;
        }
    }
    return false;
}

/* 1 or 0, or -errno where it may not be told. */
static int maps_file(int pid, const struct mapped *mapped)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    int list = open(path, O_RDONLY | O_CLOEXEC);
    if (list < 0)
        return -errno;
    bool found = any_line_is(list, mapped);
    close(list);
    return found;
}

/* ---- whether one lives ---- */

/* When a process started, in seconds since the epoch; its own start time counts from the boot. */
static int64_t start_s(const struct process_status *status)
{
    struct timespec boot, now;
    long ticks = sysconf(_SC_CLK_TCK);
    if (ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0 ||
        clock_gettime(CLOCK_REALTIME, &now) != 0)
        return INT64_MAX;
    int64_t since_ns = (int64_t)(status->start_time * (1000000000u / (uint64_t)ticks));
    int64_t boot_ns = (int64_t)boot.tv_sec * 1000000000 + boot.tv_nsec;
    int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    return (now_ns - boot_ns + since_ns - TICK_SLACK_NS) / 1000000000;
}

/* `last_s`: when HAMi-core's library wrote the time last, as each does that starts; 0 unknown. */
static bool uses_file(int pid, const struct mapped *mapped, int64_t last_s)
{
    struct process_status status;
    if (pid <= 0 || process_status(pid, &status) != 0 || status.ended)
        return false;
    int maps = maps_file(pid, mapped);
    return maps < 0 ? start_s(&status) <= last_s : maps;
}

static int64_t last_time(int fd, const struct layout *layout, off_t tail)
{
    int64_t last = 0;
    if (!layout->has_time || pread(fd, &last, sizeof(last), tail + TAIL_BYTES) != sizeof(last))
        return 0;
    return last;
}

/* Than the versions whose layouts are known. A region of ours, whole or cut, is none of these. */
static bool is_newer(int fd)
{
    uint32_t major = (uint32_t)read_word(fd, offsetof(struct vgpu_hami, major));
    uint32_t minor = (uint32_t)read_word(fd, offsetof(struct vgpu_hami, minor));
    return major > VGPU_HAMI_MAJOR || (major == VGPU_HAMI_MAJOR && minor > VGPU_HAMI_MINOR);
}

/* Any process that is seen to map the file. */
static int any_mapper(const struct mapped *mapped)
{
    int found = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && !found && (entry = readdir(processes));) {
        int pid = (int)parse_digits(entry->d_name);
        if (pid > 0 && pid != getpid() && maps_file(pid, mapped) > 0)
            found = pid;
    }
    if (processes)
        closedir(processes);
    return found;
}

int hami_file_user(int fd, off_t size)
{
    const struct layout *layout = layout_of(size);
    struct mapped mapped;
    if (!layout && !is_newer(fd))
        return 0;
    identify(fd, &mapped);
    if (!layout)
        return any_mapper(&mapped);
    off_t tail = layout->slots + (off_t)VGPU_HAMI_SLOTS * layout->slot_bytes;
    int64_t last_s = last_time(fd, layout, tail);
    uint32_t count = (uint32_t)read_word(fd, tail);
    /* One more: a process is counted after it has written its number. */
    for (uint32_t i = 0; i < VGPU_HAMI_SLOTS && i <= count; i++) {
        int pid = read_word(fd, layout->slots + (off_t)i * layout->slot_bytes);
        if (uses_file(pid, &mapped, last_s))
            return pid;
    }
    return 0;
}

int hami_file_lock(int fd)
{
    return file_lock_wait(fd, LOCK_BYTE, LOCK_WAIT_NS);
}

void hami_file_unlock(int fd)
{
    file_lock_drop(fd, LOCK_BYTE);
}
