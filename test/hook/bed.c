/* SPDX-License-Identifier: Apache-2.0 */
/* The test bed. */
#include "bed.h"

#include "abi/cuda.h"
#include "scratch.h"
#include "sim/machine/machine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>

#define INSIDE "VGPU_TEST_INSIDE"

/* What must not leak in from whoever runs the tests. */
static const char *const foreign[] = {"LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_MEM_LIMIT", "CUDA_DEVICE_SM_LIMIT", "CUDA_CORE_LIMIT", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICES_UUID", "MANAGER_VISIBLE_DEVICES",
    "LIBCUDA_LOG_LEVEL", "VGPU_SIM", "VGPU_SIM_MACHINE", "VGPU_LEDGER", "MALLOC_PERTURB_",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE"};

char *bed_build_path(const char *path)
{
    char self[PATH_MAX], *result = NULL;
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    for (int up = 0; up < 3 && strrchr(self, '/'); up++)
        *strrchr(self, '/') = '\0'; /* test/hook/<program> */
    return asprintf(&result, "%s/%s", self, path) < 0 ? NULL : result;
}

static void append(char *list, const char *path)
{
    size_t used = strlen(list);
    snprintf(list + used, 4 * PATH_MAX - used, "%s%s", used ? ":" : "", bed_build_path(path));
}

static void set_preloads(const struct bed *bed)
{
    char preload[4 * PATH_MAX] = "", libraries[4 * PATH_MAX] = "";
    if (bed->before)
        append(preload, bed->before);
    if (!bed->native)
        append(preload, "libvgpu.so");
    if (bed->behind)
        append(preload, bed->behind);
    append(preload, "src/sim/libvgpu-sim-rm.so");
    if (bed->driver)
        append(libraries, bed->driver);
    if (!bed->no_driver)
        append(libraries, "src/sim");
    setenv("LD_PRELOAD", preload, 1);
    setenv("LD_LIBRARY_PATH", libraries, 1);
    setenv("VGPU_TEST_WATCH_PRELOAD", bed_build_path("src/sim/libvgpu-sim-rm.so"), 1);
}

static void append_words(char text[1024], const char *words)
{
    size_t used = strlen(text);
    if (words && words[0])
        snprintf(text + used, 1024 - used, "%s%s", used ? "," : "", words);
}

static void set_ledger(const char *sim)
{
    const char *ledger = getenv("VGPU_TEST_LEDGER");
    bool refuses = ledger && !strcmp(ledger, "no-rm");
    char text[1024] = "";
    append_words(text, getenv("VGPU_TEST_DRIVER"));
    append_words(text, sim);
    append_words(text, refuses ? "no-rm" : NULL);
    setenv("VGPU_SIM", text, 1);
    if (ledger && !refuses)
        setenv("VGPU_LEDGER", ledger, 1);
}

static void set_environment(const struct bed *bed, const char *directory)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        unsetenv(foreign[i]);
    snprintf(path, sizeof(path), "%s/region", directory);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    snprintf(path, sizeof(path), "%s/machine", directory);
    setenv("VGPU_SIM_MACHINE", path, 1);
    /* Not made: other tests' programs on devices of the same UUIDs are no tenants of ours. */
    snprintf(path, sizeof(path), "%s/no-boards", directory);
    setenv("VGPU_BOARD_DIR", path, 1);
    setenv(INSIDE, directory, 1);
    if (bed->boards)
        setenv("VGPU_BOARD_DIR", directory, 1);
    if (bed->limit)
        setenv("CUDA_DEVICE_MEMORY_LIMIT", bed->limit, 1);
    set_ledger(bed->sim);
    for (int i = 0; i < BED_ENVIRONMENT_MAX && bed->environment[i]; i++) {
        char *copy = strdup(bed->environment[i]);
        if (strchr(copy, '='))
            putenv(copy);
        else
            unsetenv(copy);
    }
    set_preloads(bed);
}

/* Built for another machine, a program is an argument of that machine's emulator. */
static void execute(char *const argv[])
{
    char *emulated[32] = {getenv("VGPU_TEST_EMULATOR")};
    for (int i = 0; argv[i] && i < 30; i++)
        emulated[i + 1] = argv[i];
    if (emulated[0] && argv[0][0] == '/')
        execvp(emulated[0], emulated);
    else
        execvp(argv[0], argv);
    _exit(127);
}

/* stderr NULL: with stdout. */
static pid_t start(const struct bed *bed, const char *directory, char *const argv[],
    const char *stderr_path, int *ret_output)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        int log = stderr_path ? open(stderr_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600)
                              : pipes[1];
        dup2(log, STDERR_FILENO);
        set_environment(bed, directory);
        execute(argv);
    }
    close(pipes[1]);
    *ret_output = pipes[0];
    return pid;
}

static size_t read_all(int fd, char *text, size_t size)
{
    size_t used = 0;
    ssize_t got;
    char waste[512];
    while ((got = read(fd, used < size - 1 ? text + used : waste,
                used < size - 1 ? size - 1 - used : sizeof(waste))) > 0)
        used += used < size - 1 ? (size_t)got : 0;
    text[used] = '\0';
    close(fd);
    return used;
}

int bed_run(const struct bed *bed, char *const argv[], char *output, size_t output_bytes)
{
    char directory[64];
    int from, status = -1;
    if (!scratch_make(directory))
        return -1;
    pid_t pid = start(bed, directory, argv, NULL, &from);
    read_all(from, output, output_bytes);
    waitpid(pid, &status, 0);
    scratch_remove(directory);
    return status;
}

/* The inner run's remarks go on; its verdict is this test's. False where it has none: the program
 * ended before it ran the test. */
static bool forward(char *output, char ret_reason[200])
{
    bool judged = false;
    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
        char *skip = strstr(line, " # SKIP ");
        judged |= !strncmp(line, "ok ", 3) || !strncmp(line, "not ok ", 7);
        if (line[0] == '#')
            printf("%s\n", line);
        else if (skip && !strncmp(line, "ok ", 3))
            snprintf(ret_reason, 200, "%s", skip + 8);
    }
    fflush(stdout);
    return judged;
}

static void show_log(const char *path)
{
    FILE *log = fopen(path, "r");
    char line[1024];
    for (int i = 0; log && i < 20 && fgets(line, sizeof(line), log); i++)
        printf("# stderr: %s", line);
    if (log)
        fclose(log);
    fflush(stdout);
}

int bed_repeat(const struct bed *bed, const char *sentence, char ret_reason[200])
{
    static char output[1 << 16];
    char directory[64], log[80], *program;
    int from, status = -1;
    if (!scratch_make(directory) || !(program = realpath("/proc/self/exe", NULL)))
        return -1;
    snprintf(log, sizeof(log), "%s/stderr", directory);
    char *argv[] = {program, (char *)sentence, NULL};
    pid_t pid = start(bed, directory, argv, log, &from);
    read_all(from, output, sizeof(output));
    waitpid(pid, &status, 0);
    if (!forward(output, ret_reason) && status == 0)
        status = -1;
    if (status != 0)
        show_log(log);
    scratch_remove(directory);
    free(program);
    return status;
}

const char *bed_directory(void)
{
    return getenv(INSIDE);
}

const char *bed_ledger(void)
{
    const char *ledger = getenv("VGPU_TEST_LEDGER"), *expected = getenv("VGPU_TEST_EXPECT");
    if (expected)
        return expected;
    return !ledger || !strcmp(ledger, "rm") ? "rm" : "api";
}

const char *bed_stderr(void)
{
    static char text[1 << 16];
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/stderr", bed_directory());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    text[0] = '\0';
    if (fd >= 0)
        read_all(fd, text, sizeof(text));
    return text;
}

int bed_stderr_lines(const char *text)
{
    char *copy = strdup(bed_stderr());
    int count = 0;
    for (char *line = strtok(copy, "\n"); line; line = strtok(NULL, "\n"))
        count += strstr(line, text) != NULL;
    free(copy);
    return count;
}

struct vgpu_region *bed_region(void)
{
    static struct vgpu_region *region;
    const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    int fd = region || !path ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        void *map =
            mmap(NULL, sizeof(*region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, VGPU_REGION_OFFSET);
        region = map == MAP_FAILED ? NULL : map;
        close(fd);
    }
    return region;
}

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

uint64_t bed_region_bytes(unsigned device)
{
    struct vgpu_region *region = bed_region();
    uint64_t bytes = 0;
    for (unsigned i = 0; region && i < region->slot_high; i++) {
        if ((load(&region->slots[i].state) & 3) == VGPU_SLOT_LIVE)
            bytes += load(&region->slots[i].usage[device].bytes);
    }
    return bytes;
}

const struct vgpu_slot *bed_region_slot(pid_t pid)
{
    struct vgpu_region *region = bed_region();
    for (unsigned i = 0; region && i < region->slot_high; i++) {
        uint64_t word = load(&region->slots[i].state);
        if ((word & 3) == VGPU_SLOT_LIVE && (pid_t)((uint32_t)word >> 2) == pid)
            return &region->slots[i];
    }
    return NULL;
}

/* Ends the process: the test cannot go on. */
__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
    _exit(1);
}

static struct sim_usage card(unsigned index)
{
    struct sim_usage usage = {0};
    if (sim_attach() != 0)
        give_up("no simulated machine");
    sim_device_usage(index, &usage);
    return usage;
}

uint64_t bed_card_bytes(unsigned index)
{
    return card(index).used_bytes;
}

uint64_t bed_card_free(unsigned index)
{
    return card(index).free_bytes;
}

pid_t bed_fork(void (*body)(void *argument), void *argument)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        give_up("cannot fork: %s", strerror(errno));
    if (pid == 0) {
        body(argument);
        _exit(0);
    }
    return pid;
}

bool bed_ended_well(pid_t pid)
{
    int status = -1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void bed_sleep_ms(unsigned milliseconds)
{
    const struct timespec pause = {milliseconds / 1000, (milliseconds % 1000) * 1000000l};
    nanosleep(&pause, NULL);
}

static void *find(const char *soname, const char *name)
{
    void *library = dlopen(soname, RTLD_NOW);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function && !(library && getenv("VGPU_TEST_DRIVER")))
        give_up("%s: %s", name, library ? "not there" : dlerror());
    return function;
}

void *bed_cuda(const char *name)
{
    return find("libcuda.so.1", name);
}

void *bed_nvml(const char *name)
{
    return find("libnvidia-ml.so.1", name);
}

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS)
        give_up("%s answers %d", call, (int)result);
}

void bed_context(int ordinal)
{
    CUcontext context;
    must(CU(cuInit)(0), "cuInit");
    must(CU(cuDevicePrimaryCtxRetain)(&context, ordinal), "cuDevicePrimaryCtxRetain");
    must(CU(cuCtxSetCurrent)(context), "cuCtxSetCurrent");
}
