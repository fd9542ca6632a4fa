/* SPDX-License-Identifier: Apache-2.0 */
/* answer: reads one "input" of a behaviour case a line, and writes what src/schedule answers as one
 * line of JSON, with the cluster's usage under "usage". For property.py. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        json_error_t error;
        struct world world = {0};
        json_t *input = json_loads(line, 0, &error), *answer = NULL;
        if (input && world_create(input, &world))
            answer = world_answer(&world, input);
        if (answer)
            json_object_set_new(answer, "usage", world_usage(&world));
        char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
        printf("%s\n", text ? text : "null");
        fflush(stdout);
        free(text);
        json_decref(answer);
        json_decref(input);
        world_destroy(&world);
    }
    free(line);
    return 0;
}
