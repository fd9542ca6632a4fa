/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols found without the dynamic linker's own calls, compared with it. */
#include "base/elf.h"

#include "check.h"

#include <dlfcn.h>
#include <sys/ioctl.h>

/* Its address tells where the search begins. */
static const char inside_this_program = 1;

TEST("the C library's functions are found past this program")
{
    static const char *const names[] = {
        "ioctl", "dlsym", "dlvsym", "malloc", "open", "getpid", "write"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *expected = dlsym(RTLD_NEXT, names[i]);
        if (!CHECK(elf_next_function(names[i], &inside_this_program) == expected))
            printf("# %s\n", names[i]);
        CHECK(expected != NULL);
    }
}

TEST("dlsym is found in the C library")
{
    void *(*found)(void *, const char *) =
        (void *(*)(void *, const char *))elf_libc_function("dlsym");
    REQUIRE(found);
    CHECK(found(RTLD_DEFAULT, "getpid") == (void *)getpid);
}

TEST("an indirect function is resolved and can be called")
{
    size_t (*length)(const char *) =
        (size_t(*)(const char *))elf_next_function("strlen", &inside_this_program);
    REQUIRE(length);
    CHECK_EQ(length("twelve bytes"), 12);
}

TEST("a name that nobody defines is not found")
{
    CHECK(elf_next_function("vgpu_no_such_function", &inside_this_program) == NULL);
    CHECK(elf_next_function("", &inside_this_program) == NULL);
    CHECK(elf_libc_function("vgpu_no_such_function") == NULL);
}

TEST("data is no function")
{
    CHECK(elf_next_function("environ", &inside_this_program) == NULL);
    CHECK(elf_next_function("stdout", &inside_this_program) == NULL);
}

TEST("a function of an object before the caller's is not found")
{
    void *inside_libc = (void *)elf_libc_function("getpid");
    REQUIRE(inside_libc);
    CHECK(elf_next_function("getpid", inside_libc) == NULL);
}

TEST("an address in no object finds nothing")
{
    int on_stack = 0;
    CHECK(elf_next_function("getpid", &on_stack) == NULL);
}

TEST("an object that was loaded later is searched too")
{
    static const char *const libraries[] = {"libm.so.6", "libz.so.1", "libresolv.so.2"};
    static const char *const names[] = {"cbrt", "zlibVersion", "ns_name_ntop"};
    bool any = false;
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
        void *expected = library ? dlsym(library, names[i]) : NULL;
        if (!expected)
            continue;
        any = true;
        CHECK(elf_next_function(names[i], &inside_this_program) == expected);
    }
    if (!any)
        SKIP("no further library is installed");
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
