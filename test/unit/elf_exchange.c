/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded library's symbol table, written to while the dynamic linker goes on using it. */
#include "hook/door/elf_exchange.h"

#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LIBRARY "libm.so.6"
#define NAME "cbrt"
#define OTHER "asinh"

static void *open_library(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW);
    if (!library || !dlsym(library, NAME) || !dlsym(library, OTHER))
        SKIP("no " LIBRARY " with " NAME " here");
    return library;
}

static int ours(void)
{
    return 7;
}

static int exchange_to_ours(void *from)
{
    struct elf_exchange row = {NAME, (void *)ours, &from};
    return elf_exchange(from, &row, 1);
}

TEST("the dynamic linker finds what a symbol was exchanged for")
{
    void *library = open_library();
    void *from = dlsym(library, NAME), *other = dlsym(library, OTHER);
    CHECK_EQ(exchange_to_ours(from), 0);
    CHECK(dlsym(library, NAME) == (void *)ours);
    CHECK(dlsym(dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD), NAME) == (void *)ours);
    CHECK(dlsym(library, OTHER) == other);
    CHECK(dlsym(library, "no_such_name") == NULL);
}

TEST("once more changes nothing")
{
    void *library = open_library();
    void *from = dlsym(library, NAME);
    CHECK_EQ(exchange_to_ours(from), 0);
    CHECK_EQ(exchange_to_ours(from), 0);
    CHECK(dlsym(library, NAME) == (void *)ours);
}

TEST("a symbol at another address than it was looked up at stays")
{
    void *library = open_library();
    void *from = dlsym(library, NAME), *wrong = (char *)from + 1, *absent = NULL;
    struct elf_exchange rows[] = {{NAME, (void *)ours, &wrong}, {OTHER, (void *)ours, &absent},
        {"none", (void *)ours, &from}};
    CHECK_EQ(elf_exchange(from, rows, 3), 0);
    CHECK(dlsym(library, NAME) == from);
    CHECK(dlsym(library, OTHER) != (void *)ours);
}

TEST("an address in no object is said to be in none")
{
    int on_stack = 0;
    void *from = &on_stack;
    struct elf_exchange row = {NAME, (void *)ours, &from};
    CHECK_EQ(elf_exchange(&on_stack, &row, 1), -ENOENT);
}

/* False where filters cannot be had here. */
static bool refuse_mprotect(int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

static void check_refused(int error)
{
    void *library = open_library();
    void *from = dlsym(library, NAME);
    if (!refuse_mprotect(error))
        SKIP("system calls cannot be filtered here");
    CHECK_EQ(exchange_to_ours(from), -error);
    CHECK(dlsym(library, NAME) == from);
    CHECK_EQ(exchange_to_ours(from), -error);
}

TEST("where mprotect is refused by EPERM the symbol stays")
{
    check_refused(EPERM);
}

TEST("where mprotect is refused by EACCES the symbol stays")
{
    check_refused(EACCES);
}

TEST("where mprotect is refused by ENOSYS the symbol stays")
{
    check_refused(ENOSYS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
