/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's file: finding, making and mapping it, and its lock. */
#include "sim/machine/machine.h"

#include "sim/machine/machine_layout.h"
#include "sim/machine/rm_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_LOOK_NS 20000000

struct sim_machine *sim_machine;

static struct sim_description description;
static pthread_once_t description_once = PTHREAD_ONCE_INIT;
static int description_error;

static pthread_mutex_t attach_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool attached; /* set after sim_machine */
static int attach_error;      /* remembered failure */
static char machine_path[PATH_MAX];
static uint64_t machine_salt; /* of its devices' UUIDs */
static dev_t machine_device;
static ino_t machine_inode;

/* One line, one write: the program's own output is not torn, and what is quoted cannot end the line
 * or steer a terminal. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[1400];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    if ((size_t)length > sizeof line - 2)
        length = sizeof line - 2;
    for (int i = 0; i < length; i++) {
        if (line[i] < ' ' || line[i] > '~')
            line[i] = '?';
    }
    line[length] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)length + 1);
    (void)written;
}

static void parse_description(void)
{
    char error[1200];
    description_error =
        sim_description_parse(getenv("VGPU_SIM"), &description, error, sizeof error);
    if (description_error != 0) {
        say("%s; the simulated machine is not started", error);
        int fallback = sim_description_parse("", &description, error, sizeof error);
        (void)fallback;
    }
}

const struct sim_description *sim_description(void)
{
    pthread_once(&description_once, parse_description);
    return &description;
}

static uint64_t hash(const void *bytes, size_t count, uint64_t from)
{
    for (const unsigned char *at = bytes; count != 0; at++, count--)
        from = (from ^ *at) * 0x100000001b3ull;
    return from;
}
#define HASH_BEGIN 0xcbf29ce484222325ull

static void read_boot_id(char boot_id[static 40])
{
    memset(boot_id, 0, 40);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t length = read(fd, boot_id, 36);
    (void)length;
    close(fd);
}

static void machine_init(struct sim_machine *machine)
{
    machine->layout_version = SIM_LAYOUT_VERSION;
    machine->file_bytes = sizeof *machine;
    machine->cuda_version = description.cuda_version;
    memcpy(machine->driver_version, description.driver_version, sizeof machine->driver_version);
    read_boot_id(machine->boot_id);
    sim_devices_init(machine, &description, machine_salt);
    sim_objects_init(machine);

    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&machine->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    atomic_store_explicit(&machine->magic, SIM_MAGIC, memory_order_release);
}

/* Of what is the machine's and not the process's alone. */
static uint64_t shape(const struct sim_description *of)
{
    uint64_t value = hash(of->devices, of->device_count * sizeof of->devices[0], HASH_BEGIN);
    value = hash(of->driver_version, strlen(of->driver_version), value);
    return hash(&of->cuda_version, sizeof of->cuda_version, value);
}

/* In a directory there may be one machine of each shape. No two of them have a device in common;
 * those of the usual one are as everywhere. */
static int choose_in_directory(const char *directory, char path[static PATH_MAX])
{
    static struct sim_description usual;
    char error[1200];
    if (sim_description_parse("", &usual, error, sizeof error) != 0)
        return -EINVAL;
    if (mkdir(directory, 0711) != 0 && errno != EEXIST)
        return -errno;
    machine_salt = shape(&description) - shape(&usual);
    int length =
        snprintf(path, PATH_MAX, "%s%016llx", directory, (unsigned long long)shape(&description));
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int make_absolute(const char *named, char path[static PATH_MAX])
{
    char directory[PATH_MAX] = "";
    if (named[0] != '/' && getcwd(directory, sizeof directory) == NULL)
        return -errno;
    int length =
        snprintf(path, PATH_MAX, "%s%s%s", directory, directory[0] != '\0' ? "/" : "", named);
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int choose_path(char path[static PATH_MAX])
{
    char named[PATH_MAX];
    const char *wanted =
        description.machine_path[0] != '\0' ? description.machine_path : getenv("VGPU_SIM_MACHINE");
    if (wanted == NULL || wanted[0] == '\0') {
        const char *directory = getenv("TMPDIR");
        snprintf(path, PATH_MAX, "%s/vgpu-sim-%u-%d",
            directory != NULL && directory[0] == '/' ? directory : "/tmp", (unsigned)getuid(),
            (int)getsid(0));
        return 0;
    }
    int error = make_absolute(wanted, named);
    if (error != 0) {
        snprintf(path, PATH_MAX, "%s", wanted); /* for what is said */
        return error;
    }
    if (named[strlen(named) - 1] == '/')
        return choose_in_directory(named, path);
    memcpy(path, named, sizeof named);
    return 0;
}

enum file_state { FILE_NEW, FILE_READY, FILE_STALE, FILE_FOREIGN };

/* Under the file's flock. A file that is no machine is never written to. */
static enum file_state judge_file(int fd, const struct stat *status)
{
    if (status->st_size == 0)
        return FILE_NEW;
    struct {
        uint64_t magic;
        uint32_t layout_version;
        uint32_t cuda_version;
        uint64_t file_bytes;
        char boot_id[40];
    } head;
    _Static_assert(offsetof(struct sim_machine, boot_id) == 24, "head");
    char boot_id[40];
    if (!S_ISREG(status->st_mode) || pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
        return FILE_FOREIGN;
    if (head.magic == 0) /* its maker was killed */
        return status->st_size == (off_t)sizeof(struct sim_machine) ? FILE_NEW : FILE_FOREIGN;
    if (head.magic != SIM_MAGIC)
        return FILE_FOREIGN;
    read_boot_id(boot_id);
    bool same = head.layout_version == SIM_LAYOUT_VERSION &&
                head.file_bytes == sizeof(struct sim_machine) &&
                status->st_size == (off_t)sizeof(struct sim_machine) &&
                memcmp(head.boot_id, boot_id, 40) == 0;
    return same ? FILE_READY : FILE_STALE;
}

/* Opens the file under its flock; a stale one (older layout, before a reboot) is replaced by a new
 * file. */
static int open_machine(const char *path, struct stat *ret_status, enum file_state *ret_state)
{
    for (int tries = 0; tries < 100; tries++) {
        struct stat status, named;
        /* In a sticky directory the kernel may refuse O_CREAT on another user's file. */
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return -errno;
        if (flock(fd, LOCK_EX) != 0 || fstat(fd, &status) != 0) {
            int error = -errno;
            close(fd);
            return error;
        }
        bool current = stat(path, &named) == 0 && named.st_ino == status.st_ino &&
                       named.st_dev == status.st_dev;
        enum file_state state = current ? judge_file(fd, &status) : FILE_STALE;
        if (current && state == FILE_STALE)
            unlink(path);
        if (state == FILE_STALE) {
            close(fd);
            continue;
        }
        *ret_status = status;
        *ret_state = state;
        return fd;
    }
    return -EAGAIN;
}

static bool shape_agrees(const struct sim_machine *machine)
{
    if (!description.shape_given)
        return true;
    if (machine->card_count != description.device_count ||
        machine->device_count != description.device_count + description.instance_count ||
        machine->cuda_version != description.cuda_version ||
        strcmp(machine->driver_version, description.driver_version) != 0)
        return false;
    for (uint32_t i = 0; i < machine->device_count; i++) {
        if (memcmp(&machine->devices[i].model, &description.devices[i],
                sizeof description.devices[i]) != 0)
            return false;
    }
    return true;
}

static int map_machine(int fd, enum file_state state, struct sim_machine **ret_machine)
{
    if (state == FILE_FOREIGN)
        return -EEXIST;
    if (state == FILE_NEW &&
        (ftruncate(fd, 0) != 0 || ftruncate(fd, sizeof(struct sim_machine)) != 0))
        return -errno;
    struct sim_machine *machine =
        mmap(NULL, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (machine == MAP_FAILED)
        return -errno;
    if (state == FILE_NEW)
        machine_init(machine);
    if (!shape_agrees(machine)) {
        munmap(machine, sizeof *machine);
        return -EINVAL;
    }
    *ret_machine = machine;
    return 0;
}

static int attach_once(void)
{
    sim_description();
    if (description_error != 0)
        return description_error;
    struct stat status = {0};
    enum file_state state = FILE_FOREIGN;
    int error = choose_path(machine_path);
    if (error != 0) {
        say("VGPU_SIM: cannot use %.256s: %s", machine_path, strerror(-error));
        return error;
    }
    int fd = open_machine(machine_path, &status, &state);
    if (fd >= 0) {
        error = map_machine(fd, state, &sim_machine);
        flock(fd, LOCK_UN); /* close alone would not: the mapping keeps the description */
        close(fd);
    } else {
        error = fd;
    }
    if (error == -EEXIST)
        say("VGPU_SIM: %.256s is not a simulated machine; it is left as it is and the machine is "
            "not "
            "started",
            machine_path);
    else if (error == -EINVAL)
        say("VGPU_SIM: the machine at %.256s has other devices or versions than the description "
            "asks "
            "for; "
            "remove the file or name another by machine=FILE",
            machine_path);
    else if (error != 0)
        say("VGPU_SIM: cannot use %.256s: %s", machine_path, strerror(-error));
    machine_device = status.st_dev;
    machine_inode = status.st_ino;
    return error;
}

int sim_attach(void)
{
    if (atomic_load_explicit(&attached, memory_order_acquire))
        return 0;
    pthread_mutex_lock(&attach_mutex);
    if (attach_error == 0 && !atomic_load_explicit(&attached, memory_order_relaxed)) {
        attach_error = attach_once();
        if (attach_error == 0)
            atomic_store_explicit(&attached, true, memory_order_release);
    }
    int error = attach_error;
    pthread_mutex_unlock(&attach_mutex);
    return error;
}

int sim_file_open(void)
{
    int fd = open(machine_path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (!sim_file_is(fd)) { /* removed or replaced since */
        close(fd);
        return -ESTALE;
    }
    return fd;
}

bool sim_file_is(int fd)
{
    int saved = errno;
    struct stat status;
    bool is = fstat(fd, &status) == 0 && status.st_ino == machine_inode &&
              status.st_dev == machine_device;
    errno = saved;
    return is;
}

/*
 * A wake-up may be lost: a process is killed after it has let go and before it has woken the next,
 * and another takes the lock meanwhile, which is not told of any waiter. So waiters look again.
 */
static int lock_looking_again(void)
{
    struct timespec until;
    int error = pthread_mutex_trylock(&sim_machine->lock);
    while (error == EBUSY || error == ETIMEDOUT) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOCK_LOOK_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        error = pthread_mutex_timedlock(&sim_machine->lock, &until);
    }
    return error;
}

void sim_lock(void)
{
    if (lock_looking_again() == EOWNERDEAD) {
        sim_objects_recover_locked();
        pthread_mutex_consistent(&sim_machine->lock);
    }
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&sim_machine->lock);
}
