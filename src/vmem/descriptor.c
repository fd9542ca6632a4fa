/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/descriptor.h"

#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct lock kept_lock; /* a leaf */
static struct {
    int descriptors[DESCRIPTORS_MAX];
    unsigned count;
} kept GUARDED_BY(kept_lock);

void descriptor_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    int errno_kept = errno;
    lock_reset(&kept_lock);
    for (unsigned i = 0; i < kept.count; i++)
        (void)close(kept.descriptors[i]);
    kept.count = 0;
    errno = errno_kept;
}

void descriptor_make_room(struct descriptor_room *room)
{
    *room = (struct descriptor_room){.raised = false};
    if (getrlimit(RLIMIT_NOFILE, &room->former) != 0)
        return;
    struct rlimit most = {.rlim_cur = room->former.rlim_max, .rlim_max = room->former.rlim_max};
    room->raised = most.rlim_cur > room->former.rlim_cur && setrlimit(RLIMIT_NOFILE, &most) == 0;
}

/* What the program has set meanwhile stays. */
void descriptor_end_room(const struct descriptor_room *room)
{
    struct rlimit now;
    if (room->raised && getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == now.rlim_max &&
        now.rlim_max == room->former.rlim_max)
        (void)setrlimit(RLIMIT_NOFILE, &room->former);
}

int descriptor_keep(int fd, const struct descriptor_room *room)
{
    LOCKED_TO_END(kept_lock);
    int high = -1;
    if (kept.count < DESCRIPTORS_MAX) {
        rlim_t least = room->raised ? room->former.rlim_cur : room->former.rlim_cur / 2;
        high = fcntl(fd, F_DUPFD_CLOEXEC, (int)least);
    }
    (void)close(fd);
    if (high < 0)
        return 0;
    kept.descriptors[kept.count++] = high;
    return high;
}

void descriptor_close(int fd)
{
    LOCKED_TO_END(kept_lock);
    for (unsigned i = 0; i < kept.count; i++) {
        if (kept.descriptors[i] != fd)
            continue;
        kept.descriptors[i] = kept.descriptors[--kept.count];
        (void)close(fd);
        return;
    }
}
