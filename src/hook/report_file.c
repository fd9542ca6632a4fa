/* SPDX-License-Identifier: Apache-2.0 */
/* The report's file: opened for each writing, since a program may close what it did not open. */
#include "hook/report_file.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/process.h"
#include "base/report_place.h"
#include "container/container.h"
#include "memory/memory.h"
#include "rm/rm_memory.h"
#include "account/account.h"
#include "vgpu/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Between two writes of the file: 0.1 s, so that calls that come often do not wait for it. */
#define INTERVAL_NS 100000000ull

unsigned report_doors_used, report_calls_made;
bool report_is_wanted;

static struct {
    struct lock lock; /* of all below; held over no driver call */
    bool at_exit;     /* it is written when the process ends; a forked child ends so, too */
    int pid;          /* of the process that writes it; 0: none yet */
    uint64_t start_time;
    uint64_t written_ns;
    unsigned written, state; /* how often; and of what */
    char text[REPORT_PLACE_BYTES];
} file;

void report_reset(void)
{
    lock_reset(&file.lock);
    file.pid = 0;
    file.written = file.state = 0;
    file.written_ns = 0;
    store_relaxed(&report_calls_made, 0u);
    store_relaxed(&report_is_wanted, container_config()->report_directory[0] != 0);
}

/* What is worth telling at once. */
static unsigned state_now(void)
{
    return load_relaxed(&report_doors_used) | load_relaxed(&report_calls_made) << 6 |
           (unsigned)memory_ledger() << 8 | (unsigned)rm_memory_may_see() << 12;
}

static int open_file(void)
{
    char path[REPORT_DIRECTORY_BYTES + 64];
    if (!file_may_reach((off_t)2 * REPORT_PLACE_BYTES)) {
        errno = EFBIG;
        return -1;
    }
    snprintf(path, sizeof(path), REPORT_NAME_FORMAT, container_config()->report_directory, file.pid,
        (unsigned long long)file.start_time);
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd;
}

static void write_locked(void) REQUIRES(file.lock)
{
    struct process_status status = {0};
    if (!file.pid) {
        file.pid = (int)getpid();
        file.start_time = process_status(0, &status) == 0 ? status.start_time : 0;
    }
    int room = (int)sizeof(file.text) - 64, length = vgpu_report(file.text, (size_t)room, 0);
    if (length >= room)
        length = (int)strlen(file.text);
    length += snprintf(file.text + length, 64, REPORT_LAST_LINE "%u\n", ++file.written);
    int fd = open_file();
    /* The directory goes with the doctor. */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        store_relaxed(&report_is_wanted, false);
    if (fd < 0)
        return;
    (void)!file_write_at(
        fd, file.text, (size_t)length, (off_t)(file.written % 2) * REPORT_PLACE_BYTES);
    close(fd);
}

/* The last report stays when the process ends. */
static void write_at_exit(void)
{
    int errno_kept = errno;
    if (!load_relaxed(&report_is_wanted) || !lock_try(&file.lock))
        return;
    if (file.pid == (int)getpid() && account_answers_at_end())
        write_locked();
    lock_release(&file.lock);
    errno = errno_kept;
}

void report_write_due(enum report_call call)
{
    int errno_kept = errno;
    if (!(load_relaxed(&report_calls_made) & call))
        (void)or_relaxed(&report_calls_made, (unsigned)call);
    if (!lock_try(&file.lock))
        return;
    uint64_t now = clock_now_ns();
    unsigned state = state_now();
    if (!file.written || state != file.state || now - file.written_ns >= INTERVAL_NS) {
        file.state = state;
        write_locked();
        file.written_ns = now;
    }
    if (!file.at_exit)
        file.at_exit = atexit(write_at_exit) == 0;
    lock_release(&file.lock);
    errno = errno_kept;
}
