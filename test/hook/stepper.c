/* SPDX-License-Identifier: Apache-2.0 */
/* Stepping by SIGTRAP: the trap flag inside the library; where it calls out, breakpoints at the
 * return address and at the doors. */
#include "stepper.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BREAKPOINTS_MAX 64
#define TRAP_FLAG 0x100
#define INT3 0xcc

struct library {
    uintptr_t base, text, text_end, region, region_end;
    char path[4096];
};

static struct library library;

#ifdef __x86_64__

#include <ucontext.h>

struct breakpoint {
    uintptr_t at;
    bool is_door; /* stays; others are return addresses */
    unsigned char byte;
};

static struct {
    enum { OFF, OUTSIDE, STEPPING, WAITING, STEPPING_OVER } mode;
    struct stepper_trace *trace;
    struct breakpoint breakpoints[BREAKPOINTS_MAX];
    unsigned count;
    unsigned left; /* times that the wanted instruction is still passed by */
} stepper;

static bool in_text(uintptr_t at)
{
    return at >= library.text && at < library.text_end;
}

static void plant_all(void)
{
    for (unsigned i = 0; i < stepper.count; i++) {
        stepper.breakpoints[i].byte = *(unsigned char *)stepper.breakpoints[i].at;
        *(volatile unsigned char *)stepper.breakpoints[i].at = INT3;
    }
}

static void lift_all(void)
{
    for (unsigned i = 0; i < stepper.count; i++)
        *(volatile unsigned char *)stepper.breakpoints[i].at = stepper.breakpoints[i].byte;
}

static void add_breakpoint(uintptr_t at, bool is_door)
{
    for (unsigned i = 0; i < stepper.count; i++) {
        if (stepper.breakpoints[i].at == at)
            return;
    }
    if (stepper.count == BREAKPOINTS_MAX)
        _exit(100);
    stepper.breakpoints[stepper.count++] = (struct breakpoint){.at = at, .is_door = is_door};
}

static void remove_return(uintptr_t at)
{
    for (unsigned i = 0; i < stepper.count; i++) {
        if (stepper.breakpoints[i].at == at && !stepper.breakpoints[i].is_door) {
            stepper.breakpoints[i] = stepper.breakpoints[--stepper.count];
            return;
        }
    }
}

static void note(uintptr_t at)
{
    if (stepper.trace->count < STEPPER_STEPS_MAX)
        stepper.trace->steps[stepper.trace->count++] = at;
}

static void go_outside(uintptr_t stack)
{
    uintptr_t back = *(uintptr_t *)stack;
    if (in_text(back))
        add_breakpoint(back, false);
    plant_all();
    stepper.mode = OUTSIDE;
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    greg_t *at = &registers[REG_RIP], *flags = &registers[REG_EFL];
    (void)number;
    (void)info;
    switch (stepper.mode) {
    case STEPPING:
        if (in_text((uintptr_t)*at)) {
            note((uintptr_t)*at);
        } else {
            go_outside((uintptr_t)registers[REG_RSP]);
            *flags &= ~TRAP_FLAG;
        }
        break;
    case OUTSIDE:
        *at -= 1;
        lift_all();
        remove_return((uintptr_t)*at);
        note((uintptr_t)*at);
        *flags |= TRAP_FLAG;
        stepper.mode = STEPPING;
        break;
    case WAITING:
        *at -= 1;
        if (--stepper.left == 0)
            syscall(SYS_kill, getpid(), SIGKILL);
        lift_all();
        *flags |= TRAP_FLAG;
        stepper.mode = STEPPING_OVER;
        break;
    case STEPPING_OVER:
        *flags &= ~TRAP_FLAG;
        plant_all();
        stepper.mode = WAITING;
        break;
    default:
        *flags &= ~TRAP_FLAG;
    }
}

static void begin(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGTRAP, &action, NULL);
    if (mprotect((void *)library.text, library.text_end - library.text,
            PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        _exit(101);
    stepper.count = 0;
}

void stepper_record(void *const doors[], struct stepper_trace *trace)
{
    begin();
    trace->count = 0;
    stepper.trace = trace;
    for (; *doors; doors++)
        add_breakpoint((uintptr_t)*doors, true);
    stepper.mode = OUTSIDE;
    plant_all();
}

void stepper_kill_at(uintptr_t step, unsigned occurrence)
{
    begin();
    add_breakpoint(step, true);
    stepper.left = occurrence;
    stepper.mode = WAITING;
    plant_all();
}

void stepper_stop(void)
{
    if (stepper.mode == OUTSIDE || stepper.mode == WAITING)
        lift_all();
    stepper.mode = OFF;
}

#else

void stepper_record(void *const doors[], struct stepper_trace *trace)
{
    (void)doors;
    (void)trace;
}

void stepper_kill_at(uintptr_t step, unsigned occurrence)
{
    (void)step;
    (void)occurrence;
}

void stepper_stop(void)
{
}

#endif

static int find_library(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    const char *slash = strrchr(info->dlpi_name, '/');
    if (!slash || strcmp(slash, "/libvgpu.so") != 0)
        return 0;
    library.base = info->dlpi_addr;
    strncpy(library.path, info->dlpi_name, sizeof(library.path) - 1);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && header->p_flags & PF_X) {
            library.text = (library.base + header->p_vaddr) / 4096 * 4096;
            library.text_end =
                (library.base + header->p_vaddr + header->p_memsz + 4095) / 4096 * 4096;
        }
    }
    return 1;
}

/* A static function comes behind its file's symbol; the others keep their area's name. */
static bool is_region_symbol(const char *file, const char *name)
{
    static const char *const areas[] = {"account", "region", "slot", "file_lock"};
    for (unsigned i = 0; i < sizeof(areas) / sizeof(areas[0]); i++) {
        size_t length = strlen(areas[i]);
        if (!strncmp(name, areas[i], length) && name[length] == '_')
            return true;
        if (!strncmp(file, areas[i], length) && !strcmp(file + length, ".c"))
            return true;
    }
    return false;
}

static void find_region(const char *file)
{
    const ElfW(Ehdr) *header = (const void *)file;
    const ElfW(Shdr) *sections = (const void *)(file + header->e_shoff);
    for (int s = 0; s < header->e_shnum; s++) {
        const ElfW(Sym) *symbols = (const void *)(file + sections[s].sh_offset);
        const char *names, *source = "";
        if (sections[s].sh_type != SHT_SYMTAB)
            continue;
        names = file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof(*symbols); i++) {
            uintptr_t start = library.base + symbols[i].st_value;
            if ((symbols[i].st_info & 15) == STT_FILE)
                source = names + symbols[i].st_name;
            if ((symbols[i].st_info & 15) != STT_FUNC || !symbols[i].st_size ||
                !is_region_symbol(source, names + symbols[i].st_name))
                continue;
            if (!library.region || start < library.region)
                library.region = start;
            if (start + symbols[i].st_size > library.region_end)
                library.region_end = start + symbols[i].st_size;
        }
    }
}

const char *stepper_prepare(void)
{
    struct stat status;
#ifndef __x86_64__
    return "single steps need x86-64's trap flag";
#endif
    if (!dl_iterate_phdr(find_library, NULL))
        return "libvgpu.so is not loaded";
    int fd = open(library.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0)
        return "libvgpu.so cannot be read";
    char *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED)
        return "libvgpu.so cannot be read";
    find_region(file);
    munmap(file, (size_t)status.st_size);
    return library.region ? NULL : "libvgpu.so has no symbols";
}

bool stepper_is_region(uintptr_t step)
{
    return step >= library.region && step < library.region_end;
}
