/* SPDX-License-Identifier: Apache-2.0 */
/* A container's region file with anybody's bytes, as vgpu-monitor reads it and writes its words: no
 * count is followed beyond what there is, a UUID is fit to be a label, the file's size stays, and
 * the label that is made of any text can be read back. */
#include "net/exposition.h"
#include "node/monitor/hami_region.h"
#include "vgpu/region.h"

#include "fuzz.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define V0_BYTES 1197897
#define V1_BYTES 2008953
#define LONG_BYTES 2008985
#define PATCHES 24

static const off_t sizes[] = {V0_BYTES, V1_BYTES, LONG_BYTES, (off_t)VGPU_REGION_FILE_BYTES,
    V0_BYTES - 1, 12, 0, V1_BYTES - 2};

/* Near what is read: the head, the first slots, the words behind them. */
static off_t place(struct fuzz_input *input, off_t size)
{
    static const off_t bases[] = {0, 48, 56, 64, 88, 1592, 1600, 1848, 1856, 1888, 1197880, 2008896,
        2008928, (off_t)VGPU_REGION_OFFSET};
    unsigned choice = fuzz_byte(input);
    off_t base =
        choice < sizeof(bases) / sizeof(bases[0]) ? bases[choice] : (off_t)fuzz_number(input, 3);
    off_t at = base + (off_t)fuzz_byte(input);
    return size ? at % size : 0;
}

static void fill(int fd, struct fuzz_input *input, off_t size)
{
    static const int32_t head[] = {19920718, 1, 2};
    static const uint64_t magic = VGPU_REGION_MAGIC;
    unsigned how = fuzz_byte(input);
    if (how & 1)
        (void)!pwrite(fd, head, sizeof(head), 0);
    if (how & 2 && size >= (off_t)VGPU_REGION_FILE_BYTES)
        (void)!pwrite(fd, &magic, sizeof(magic), VGPU_REGION_OFFSET);
    for (unsigned i = 0; i < PATCHES && input->left; i++) {
        off_t at = place(input, size);
        size_t bytes = fuzz_byte(input);
        bytes = bytes < input->left ? bytes : input->left;
        (void)!pwrite(fd, input->at, bytes, at);
        input->at += bytes;
        input->left -= bytes;
    }
    if (ftruncate(fd, size) != 0)
        abort();
}

static void check_uuid(const char uuid[HAMI_REGION_UUID_BYTES])
{
    FUZZ_CHECK(memchr(uuid, '\0', HAMI_REGION_UUID_BYTES));
    for (const char *at = uuid; *at; at++)
        FUZZ_CHECK(*at > ' ' && *at <= '~');
}

static void check_labels(const char *value)
{
    struct exposition_labels labels = {.length = 0};
    struct exposition exposition = {.bytes = 0};
    exposition_label(&labels, "a", value);
    FUZZ_CHECK(strlen(labels.text) == labels.length && !strchr(labels.text, '\n'));
    const char *at = labels.text + 3;
    while (!labels.cut && *at && *at != '"')
        at += *at == '\\' ? 2 : 1;
    FUZZ_CHECK(labels.cut || (at[0] == '"' && !at[1]));
    exposition_family(&exposition, "name", "gauge", "text");
    exposition_sample(&exposition, labels.text, "b=\"c\"", 1);
    FUZZ_CHECK(strlen(exposition.text) == exposition.bytes);
    exposition_free(&exposition);
}

static void look(int fd, enum hami_region_kind kind, off_t size)
{
    struct hami_region region;
    struct hami_region_words words;
    struct stat status;
    if (hami_region_read(fd, kind, &region) == 0) {
        FUZZ_CHECK(region.device_count <= HAMI_REGION_DEVICES);
        for (unsigned d = 0; d < region.device_count; d++)
            check_uuid(region.devices[d].uuid);
    }
    if (hami_region_read_words(fd, kind, &words) == 0) {
        FUZZ_CHECK(words.device_count <= HAMI_REGION_DEVICES);
        for (unsigned d = 0; d < words.device_count; d++)
            check_uuid(words.uuids[d]);
        int one = hami_region_write_switch(fd, kind, words.utilization_switch, 1);
        int other = hami_region_write_recent(fd, kind, words.recent_kernel, -1);
        /* Of a file that ends within the structure nothing is written. */
        bool says_one = words.utilization_switch == 1, says_other = words.recent_kernel == -1;
        FUZZ_CHECK(one == 0 || one == -EIO);
        FUZZ_CHECK(other == 0 || other == -EIO);
        FUZZ_CHECK(hami_region_read_words(fd, kind, &words) == 0);
        FUZZ_CHECK((words.utilization_switch == 1) == (one == 0 || says_one));
        FUZZ_CHECK((words.recent_kernel == -1) == (other == 0 || says_other));
    }
    FUZZ_CHECK(fstat(fd, &status) == 0 && status.st_size == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    char *text = fuzz_text(data, size);
    check_labels(text);
    free(text);
    off_t bytes = sizes[fuzz_byte(&input) % (sizeof(sizes) / sizeof(sizes[0]))];
    int fd = memfd_create("region", MFD_CLOEXEC);
    if (fd < 0)
        abort();
    fill(fd, &input, bytes);
    int kind = hami_region_kind(fd);
    if (kind > 0)
        look(fd, (enum hami_region_kind)kind, bytes);
    /* As one that was shortened since it was looked at. */
    for (int other = HAMI_REGION_V0; other <= HAMI_REGION_V1_LONG && kind < 0; other++)
        look(fd, (enum hami_region_kind)other, bytes);
    close(fd);
    return 0;
}
