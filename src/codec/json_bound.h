/* SPDX-License-Identifier: Apache-2.0 */
/* How much a text can become as JSON values, before it is read: an empty object of three bytes
 * takes some hundred bytes of memory. Pure. */
#ifndef VGPU_CODEC_JSON_BOUND_H
#define VGPU_CODEC_JSON_BOUND_H

#include <stddef.h>

/* Values of one request. A Pod as large as the API server keeps has fewer, beside 65,536 names. */
#define JSON_BOUND_VALUES_MAX 262144

/* At least as many values as any reader makes of the text, before it refuses or accepts it. */
size_t json_bound_values(const char *text, size_t bytes);

#endif
