/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648, section 4), as kubeconfigs and Secrets carry text. Pure. */
#ifndef VGPU_KUBE_BASE64_H
#define VGPU_KUBE_BASE64_H

#include <stddef.h>

/* Decodes the whole text, blanks and line ends between left out, to a text of the heap. Returns 0,
 * -ENOMEM, or -EINVAL: not base64, padding missing, or a NUL byte inside. */
int base64_decode(const char *text, char **ret_text) __attribute__((warn_unused_result));

/* Encodes to a text of the heap, in one line, padded. Returns 0 or -ENOMEM. */
int base64_encode(const char *bytes, size_t size, char **ret_text)
    __attribute__((warn_unused_result));

#endif
