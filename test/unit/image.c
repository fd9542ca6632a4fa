/* SPDX-License-Identifier: Apache-2.0 */
/* What a module's image says that it takes. */
#include "hook/image.h"

#include "check.h"

#include <elf.h>

TEST("global and constant arrays of PTX are counted with all their dimensions")
{
    CHECK_EQ(image_device_bytes(".version 6.4\n.global .align 4 .b8 a[1024];\n"), 1024);
    CHECK_EQ(image_device_bytes(".version 6.4\n.visible .global .f64 a[3][5];\n"), 120);
    CHECK_EQ(image_device_bytes(".version 6.4\n.global .u32 one;\n.const .b16 c[2];"), 8);
    CHECK_EQ(image_device_bytes("// a comment\n.global .b8 a[536870912];"), 536870912);
    CHECK_EQ(image_device_bytes(".version 6.4\n.global .b8 t[4] = {1, 2, 3, 4};"), 4);
}

TEST("instructions on global memory are no declarations")
{
    CHECK_EQ(image_device_bytes(".version 6.4\n.entry k(){\n ld.global.u32 %r1, [%rd1];\n}\n"), 0);
    CHECK_EQ(image_device_bytes(".version 6.4\n cvta.to.global.u64 %rd1, %rd2;\n"), 0);
}

TEST("an array too large to count is as large as can be")
{
    CHECK_EQ(image_device_bytes(".global .b64 a[18446744073709551615];"), UINT64_MAX);
    CHECK_EQ(image_device_bytes(".global .b64 a[99999999999999999999999];"), UINT64_MAX);
}

TEST("a cubin's allocated sections are counted")
{
    struct {
        Elf64_Ehdr header;
        Elf64_Shdr sections[3];
    } cubin = {.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
                   .e_shoff = sizeof(Elf64_Ehdr),
                   .e_shentsize = sizeof(Elf64_Shdr),
                   .e_shnum = 3},
        .sections = {{.sh_size = 7}, {.sh_flags = SHF_ALLOC, .sh_size = 100},
            {.sh_flags = SHF_ALLOC | SHF_WRITE, .sh_type = SHT_NOBITS, .sh_size = 1 << 20}}};
    CHECK_EQ(image_device_bytes(&cubin), 100 + (1 << 20));
}

TEST("a cubin whose sections lie beyond its memory is not judged, and harms nothing")
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = 40};
    char *image = pages + page - sizeof(header) - sizeof(Elf64_Shdr);
    const uint64_t offsets[] = {sizeof(header), page, 1ull << 40, UINT64_MAX - 100, 1ull << 63};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        header.e_shoff = offsets[i];
        memcpy(image, &header, sizeof(header));
        errno = 0;
        CHECK_EQ(image_device_bytes(image), 0);
        CHECK_EQ(errno, 0);
    }
    memcpy(pages + page - 8, ELFMAG "\2\1\1", 8); /* the header itself is cut off */
    CHECK_EQ(image_device_bytes(pages + page - 8), 0);
}

TEST("a cubin's sections too large to add up are as large as can be")
{
    struct {
        Elf64_Ehdr header;
        Elf64_Shdr sections[40];
    } cubin = {.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
                   .e_shoff = sizeof(Elf64_Ehdr),
                   .e_shentsize = sizeof(Elf64_Shdr),
                   .e_shnum = 40},
        .sections = {[1] = {.sh_flags = SHF_ALLOC, .sh_size = UINT64_MAX},
            [39] = {.sh_flags = SHF_ALLOC, .sh_size = 4096}}};
    CHECK_EQ(image_device_bytes(&cubin), UINT64_MAX);
}

TEST("anything else is not judged")
{
    static const unsigned fat[] = {0xba55ed50, 0, 0, 0};
    CHECK_EQ(image_device_bytes(fat), 0);
    CHECK_EQ(image_device_bytes(".global .b8 cut[12"), 12);
    CHECK_EQ(image_device_bytes(""), 0);
    CHECK_EQ(image_device_bytes((const void *)0), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
