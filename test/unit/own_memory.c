/* SPDX-License-Identifier: Apache-2.0 */
/* Touching what may not be there. */
#include "base/own_memory.h"

#include "check.h"

/* Two pages, of which the second may not be touched. */
static char *map_pages(int protection)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    memset(pages, 'x', 8192);
    REQUIRE(mprotect(pages + 4096, 4096, protection) == 0);
    return pages;
}

TEST("what is there is read and written, on the stack and elsewhere")
{
    char *pages = map_pages(PROT_NONE), here[8] = "", near[8] = "on it";
    CHECK(own_memory_read((uintptr_t)pages + 4088, here, 8));
    CHECK_EQ(memcmp(here, "xxxxxxxx", 8), 0);
    CHECK(own_memory_write((uintptr_t)pages + 4092, "yyyy", 4));
    CHECK_EQ(memcmp(pages + 4088, "xxxxyyyy", 8), 0);
    CHECK(own_memory_read((uintptr_t)near, here, 8));
    CHECK_STR(here, "on it");
    CHECK(own_memory_write((uintptr_t)near, "written", 8));
    CHECK_STR(near, "written");
}

TEST("what is not there is an error, with errno as it was")
{
    char *pages = map_pages(PROT_NONE), here[8];
    errno = EINTR;
    CHECK(!own_memory_read((uintptr_t)pages + 4096, here, 8));
    CHECK(!own_memory_read((uintptr_t)pages + 4092, here, 8));
    CHECK(!own_memory_write((uintptr_t)pages + 4092, here, 8));
    CHECK(!own_memory_read(0, here, 8));
    CHECK(!own_memory_write(0, here, 8));
    CHECK(!own_memory_read(UINT64_MAX - 16, here, 8));
    CHECK_EQ(errno, EINTR);
}

TEST("what may only be read is not written")
{
    char *pages = map_pages(PROT_READ), here[8];
    CHECK(own_memory_read((uintptr_t)pages + 4096, here, 8));
    CHECK(!own_memory_write((uintptr_t)pages + 4096, here, 8));
    CHECK_EQ(pages[4096], 'x');
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
