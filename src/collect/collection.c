/* SPDX-License-Identifier: Apache-2.0 */
#include "collect/collection.h"

#include <stdlib.h>

void collection_free_container(struct collected_container *container)
{
    for (unsigned i = 0; i < container->process_count; i++) {
        free(container->processes[i].command);
        free(container->processes[i].uses);
    }
    free(container->processes);
    free(container->namespaces);
    free(container->devices);
    free(container->path);
    *container = (struct collected_container){0};
}

void collection_free(struct collection *collection)
{
    for (size_t i = 0; i < collection->count; i++)
        collection_free_container(&collection->containers[i]);
    for (size_t i = 0; i < collection->problem_count; i++)
        free(collection->problems[i].path);
    free(collection->containers);
    free(collection->problems);
    *collection = (struct collection){0};
}
