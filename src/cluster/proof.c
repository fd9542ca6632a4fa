/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/proof.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST_BYTES 32

int proof_make(const void *key, size_t key_size, const char *pod_uid, const char *node,
    const char *devices, char ret_proof[PROOF_TEXT_BYTES])
{
    unsigned char digest[DIGEST_BYTES];
    char *text;
    if (key_size < PROOF_KEY_MIN)
        return -EINVAL;
    int length = asprintf(&text, "vgpu.io/proof/1\n%zu:%s\n%zu:%s\n%zu:%s\n", strlen(pod_uid),
        pod_uid, strlen(node), node, strlen(devices), devices);
    if (length < 0)
        return -ENOMEM;
    int failed = gnutls_hmac_fast(GNUTLS_MAC_SHA256, key, key_size, text, (size_t)length, digest);
    free(text);
    if (failed)
        return -EIO;
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        snprintf(ret_proof + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

bool proof_check(const void *key, size_t key_size, const char *pod_uid, const char *node,
    const char *devices, const char *proof)
{
    char right[PROOF_TEXT_BYTES];
    if (!proof || strlen(proof) != PROOF_TEXT_BYTES - 1 ||
        proof_make(key, key_size, pod_uid, node, devices, right))
        return false;
    return !gnutls_memcmp(right, proof, PROOF_TEXT_BYTES - 1);
}
