/* SPDX-License-Identifier: Apache-2.0 */
/* /proc readers that need no allocation. */
#include "base/process.h"

#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define OVERFLOW_UID 65534 /* the kernel's default */

static int read_file(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, buffer, size - 1);
    int error = got < 0 ? -errno : 0;
    close(fd);
    if (!error)
        buffer[got] = '\0';
    return error;
}

/* /proc may be missing or show another namespace: then only kill() tells whether a pid exists. */
static int stat_missing(int pid)
{
    if (pid && kill(pid, 0) != 0 && errno == ESRCH)
        return -ESRCH;
    return -ENOTSUP;
}

/* From the third field on: the text behind the command's last ')'. */
static const char *field_at(const char *fields, int field)
{
    for (int at = 3; at < field && fields; at++) {
        fields = strchr(fields, ' ');
        fields = fields ? fields + 1 : NULL;
    }
    return fields;
}

static int read_status(int pid, struct process_status *ret_status)
{
    char path[64], text[1024];
    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    else
        snprintf(path, sizeof(path), "/proc/self/stat");
    if (read_file(path, text, sizeof(text)) != 0)
        return stat_missing(pid);
    /* The command may hold blanks and parentheses. */
    const char *fields = strrchr(text, ')');
    if (!fields || fields[1] != ' ')
        return -ENOTSUP;
    fields += 2;
    const char *threads = field_at(fields, 20), *start = field_at(fields, 22),
               *stack = field_at(fields, 28);
    if (!threads || !start || !stack)
        return -ENOTSUP;
    /* The state is the first thread's. Descriptors stay open until the last thread has ended. */
    bool is_last = parse_digits(threads) <= 1;
    *ret_status = (struct process_status){.start_time = parse_digits(start),
        .stack_start = parse_digits(stack),
        .ended = is_last && (*fields == 'Z' || *fields == 'X' || *fields == 'x')};
    return 0;
}

int process_status(int pid, struct process_status *ret_status)
{
    int errno_kept = errno;
    int error = read_status(pid, ret_status);
    errno = errno_kept;
    return error;
}

static uint64_t namespace_at(const char *path)
{
    char link[64];
    ssize_t length = readlink(path, link, sizeof(link) - 1);
    if (length <= 0)
        return 0;
    link[length] = '\0';
    const char *number = strchr(link, '[');
    return number ? parse_digits(number + 1) : 0;
}

uint64_t process_pid_namespace(void)
{
    int errno_kept = errno;
    uint64_t inode = namespace_at("/proc/self/ns/pid");
    errno = errno_kept;
    return inode;
}

/* The last of the numbers of "NSpid:", one for each namespace from the outermost that /proc shows;
 * 0: not told. */
static int innermost_pid(int pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    const char *line = read_file(path, text, sizeof(text)) ? NULL : strstr(text, "\nNSpid:");
    if (!line)
        return 0;
    const char *last = line + strcspn(line + 1, "\n") + 1;
    while (isdigit((unsigned char)last[-1]))
        last--;
    return (int)parse_digits(last);
}

int process_own_number(int pid, int *ret_pid, uint64_t *ret_namespace)
{
    char path[64];
    int errno_kept = errno;
    int number = innermost_pid(pid);
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    uint64_t inode = number ? namespace_at(path) : 0;
    errno = errno_kept;
    if (!inode)
        return -ENOTSUP;
    *ret_pid = number;
    *ret_namespace = inode;
    return 0;
}

static bool shares_namespace(int pid, const char *kind)
{
    char path[64], theirs[64], ours[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, kind);
    ssize_t length = readlink(path, theirs, sizeof(theirs));
    snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    ssize_t own_length = readlink(path, ours, sizeof(ours));
    return length > 0 && length == own_length && !memcmp(theirs, ours, (size_t)length);
}

/* Its own IDs, not the owner of its files in /proc, which is root where it may not be dumped. */
static bool is_trusted_user(int pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    const char *line = read_file(path, text, sizeof(text)) ? NULL : strstr(text, "\nUid:");
    const char *at = line ? line + strlen("\nUid:") : "";
    int trusted = 0;
    for (int i = 0; i < 4 && *(at += strspn(at, "\t")); i++, at += strcspn(at, "\t\n")) {
        uint64_t uid = parse_digits(at);
        trusted += isdigit((unsigned char)*at) && (uid == 0 || uid == geteuid());
    }
    return trusted == 4;
}

bool process_is_of_our_container(int pid)
{
    return shares_namespace(pid, "pid") && shares_namespace(pid, "mnt") && is_trusted_user(pid);
}

/* All but the last number, which stands for none. */
static bool all_users_are_known(void)
{
    char text[4096];
    uint64_t known = 0;
    if (read_file("/proc/self/uid_map", text, sizeof(text)) != 0)
        return false;
    /* Lines of three numbers: the first inside, the first outside, and how many. */
    unsigned field = 0;
    for (const char *at = text; *(at += strspn(at, " \n")); at += strspn(at, "0123456789")) {
        if (!isdigit((unsigned char)*at))
            return false;
        if (++field % 3 == 0)
            known += parse_digits(at);
    }
    return known >= UINT32_MAX;
}

bool process_hides_owner(unsigned uid)
{
    char text[16];
    int errno_kept = errno;
    bool read = read_file("/proc/sys/fs/overflowuid", text, sizeof(text)) == 0;
    uint64_t stand_in = read ? parse_digits(text) : OVERFLOW_UID;
    bool hides = uid == stand_in && !all_users_are_known();
    errno = errno_kept;
    return hides;
}

/* The kernel numbers the first PID namespace so, since Linux 3.8; the first mount namespace has the
 * first number that is given out, or a fixed one in newer kernels. */
bool process_is_on_the_host(void)
{
    int errno_kept = errno;
    uint64_t pid = namespace_at("/proc/self/ns/pid"), mount = namespace_at("/proc/self/ns/mnt");
    errno = errno_kept;
    return pid == 0xEFFFFFFC && (mount == 0xEFFFFFF8 || mount == 0xF0000000 || mount == 0xF0000001);
}

void process_command(char *buffer, size_t size)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    name[sizeof(name) - 1] = '\0';
    snprintf(buffer, size, "%s", name);
}
