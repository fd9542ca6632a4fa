/* SPDX-License-Identifier: Apache-2.0 */
/* Proof that the scheduler gave a Pod these devices on this node: HMAC-SHA256 with a key that the
 * scheduler and the plugins have from a Secret, in the annotation vgpu.io/proof. A Pod's author may
 * write any annotation, but does not know the key. Pure. */
#ifndef VGPU_CLUSTER_PROOF_H
#define VGPU_CLUSTER_PROOF_H

#include <stdbool.h>
#include <stddef.h>

/* Lower-case hexadecimal digits with the terminator. */
#define PROOF_TEXT_BYTES 65
/* A shorter key could be guessed. */
#define PROOF_KEY_MIN 16

/* Over "vgpu.io/proof/1\n" and, for each of Pod UID, node name and device string,
 * "<length in bytes>:<bytes>\n". `devices` is the value of hami.io/vgpu-devices-allocated, which
 * stays; -to-allocate is erased bit by bit. Returns 0, -EINVAL for a key below PROOF_KEY_MIN bytes,
 * -ENOMEM, or -EIO where the library refuses. */
int proof_make(const void *key, size_t key_size, const char *pod_uid, const char *node,
    const char *devices, char ret_proof[PROOF_TEXT_BYTES]) __attribute__((warn_unused_result));

/* Whether `proof` (NULL: none) is that text. Takes the same time wherever it differs. */
bool proof_check(const void *key, size_t key_size, const char *pod_uid, const char *node,
    const char *devices, const char *proof);

#endif
