/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares our CUDA types and values with the toolkit's: prints each difference, exit status 1 on
 * any. Build: cc -std=c11 -Wall -Wextra -Isrc -I<toolkit>/include abi_cuda_layout.c
 *        abi_cuda_layout_ours.c abi_cuda_layout_toolkit.c; only where the toolkit is installed.
 */
#include "abi_cuda_layout.h"

#include <stdio.h>

int main(void)
{
    size_t differences = 0;

    if (layout_ours_count != layout_toolkit_count) {
        printf("Bail out! tables of %zu and %zu rows\n", layout_ours_count, layout_toolkit_count);
        return 1;
    }
    printf("1..1\n");
    for (size_t i = 0; i < layout_ours_count; i++) {
        const struct layout_row *ours = &layout_ours[i];
        const struct layout_row *theirs = &layout_toolkit[i];

        if (ours->size == theirs->size && ours->offset == theirs->offset &&
            ours->number == theirs->number)
            continue;
        printf(
            "# %s: size %zu, offset %zu, value %lld; the toolkit has size %zu, offset %zu, value "
            "%lld\n",
            ours->name, ours->size, ours->offset, ours->number, theirs->size, theirs->offset,
            theirs->number);
        differences++;
    }
    printf("%s 1 - our CUDA layouts equal the toolkit's (%zu rows, %zu differences)\n",
        differences == 0 ? "ok" : "not ok", layout_ours_count, differences);
    return differences == 0 ? 0 : 1;
}
