/* SPDX-License-Identifier: Apache-2.0 */
/* YAML as a jansson value, as far as JSON has it. Pure. */
#ifndef VGPU_NODE_YAML_JSON_H
#define VGPU_NODE_YAML_JSON_H

#include "net/error.h"

#include <jansson.h>
#include <stddef.h>

#define YAML_JSON_BYTES_MAX (1 << 20)
#define YAML_JSON_DEPTH_MAX 64
#define YAML_JSON_NODES_MAX 65536 /* aliases count as often as they are used */

/* The first document of the text. Maps, lists and texts; plain scalars become null, true, false or
 * whole numbers where they are spelled so, and are texts otherwise ("1.5" too). Of equal keys the
 * last counts. An empty text is null. NULL and one line where it is malformed or too large. */
json_t *yaml_json_read(const char *what, const char *text, size_t bytes, struct error *error);

#endif
