/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/work/stream.h"

#include <stdlib.h>

CUresult node_list_add(struct node_list *list, const struct node_list *more)
{
    struct graph_node **nodes =
        realloc(list->nodes, (list->count + more->count + 1) * sizeof *nodes);

    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    list->nodes = nodes;
    for (size_t i = 0; i < more->count; i++) {
        bool known = false;

        for (size_t j = 0; j < list->count; j++)
            known = known || nodes[j] == more->nodes[i];
        if (!known)
            nodes[list->count++] = more->nodes[i];
    }
    return CUDA_SUCCESS;
}

void node_list_finish(struct node_list *list)
{
    free(list->nodes);
    *list = (struct node_list){0};
}
