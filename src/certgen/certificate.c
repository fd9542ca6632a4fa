/* SPDX-License-Identifier: Apache-2.0 */
#include "certgen/certificate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKEW_S 3600
#define SERIAL_BYTES 16
#define KEY_ID_BYTES 20 /* SHA-1 of the key, as RFC 5280, section 4.2.1.2 has it */
#define NAME_BYTES_MAX 253
#define LABEL_BYTES_MAX 63
#define CHAIN_MAX 8

struct signer {
    gnutls_x509_crt_t certificate;
    gnutls_x509_privkey_t key;
};

static void signer_finish(struct signer *signer)
{
    if (signer->certificate)
        gnutls_x509_crt_deinit(signer->certificate);
    if (signer->key)
        gnutls_x509_privkey_deinit(signer->key);
}

static void wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void certificate_finish(struct certificate *certificate)
{
    free(certificate->ca);
    free(certificate->chain);
    wipe(certificate->key);
    *certificate = (struct certificate){.ca = NULL};
}

static int refused(const char *what, int result, struct error *error)
{
    return error_set(error, result == GNUTLS_E_MEMORY_ERROR ? ENOMEM : EIO, "%s: %s", what,
        gnutls_strerror(result));
}

/* ---- Names ---- */

static bool is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_address(const char *name, unsigned char bytes[16], size_t *ret_size)
{
    if (inet_pton(AF_INET, name, bytes) == 1)
        *ret_size = 4;
    else if (inet_pton(AF_INET6, name, bytes) == 1)
        *ret_size = 16;
    else
        return false;
    return true;
}

int certificate_check_name(const char *name)
{
    unsigned char bytes[16];
    size_t size, label = 0;
    if (is_address(name, bytes, &size))
        return 0;
    if (!strncmp(name, "*.", 2))
        name += 2;
    if (!*name || strlen(name) > NAME_BYTES_MAX)
        return -EINVAL;
    for (const char *at = name;; at++) {
        if (!*at || *at == '.') {
            if (!label || label > LABEL_BYTES_MAX || at[-1] == '-')
                return -EINVAL;
            if (!*at)
                return 0;
            label = 0;
        } else if (is_letter_or_digit(*at) || (*at == '-' && label)) {
            label++;
        } else {
            return -EINVAL;
        }
    }
}

static int add_name(gnutls_x509_crt_t certificate, const char *name)
{
    unsigned char bytes[16];
    size_t size;
    if (is_address(name, bytes, &size))
        return gnutls_x509_crt_set_subject_alt_name(
            certificate, GNUTLS_SAN_IPADDRESS, bytes, (unsigned)size, GNUTLS_FSAN_APPEND);
    return gnutls_x509_crt_set_subject_alt_name(
        certificate, GNUTLS_SAN_DNSNAME, name, (unsigned)strlen(name), GNUTLS_FSAN_APPEND);
}

/* ---- Making ---- */

static int make_key(gnutls_x509_privkey_t *ret_key)
{
    gnutls_x509_privkey_t key;
    int result = gnutls_x509_privkey_init(&key);
    if (result)
        return result;
    result = gnutls_x509_privkey_generate(
        key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    if (result)
        gnutls_x509_privkey_deinit(key);
    else
        *ret_key = key;
    return result;
}

static int set_serial(gnutls_x509_crt_t certificate)
{
    unsigned char serial[SERIAL_BYTES];
    int result = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof(serial));
    serial[0] = (serial[0] & 0x7f) | 0x40; /* positive, and of this length */
    return result ? result : gnutls_x509_crt_set_serial(certificate, serial, sizeof(serial));
}

/* What all certificates have. `issuer` is the one that will sign, which may be itself. */
static int fill(const struct signer *made, const struct signer *issuer, const char *common_name,
    time_t now, int64_t seconds)
{
    gnutls_x509_crt_t certificate = made->certificate;
    unsigned char id[KEY_ID_BYTES];
    size_t id_bytes = sizeof(id);
    int result = gnutls_x509_crt_set_version(certificate, 3);
    if (!result)
        result = set_serial(certificate);
    if (!result)
        result = gnutls_x509_crt_set_activation_time(certificate, now - SKEW_S);
    if (!result)
        result = gnutls_x509_crt_set_expiration_time(certificate, now + (time_t)seconds);
    if (!result)
        result = gnutls_x509_crt_set_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0,
            common_name, (unsigned)strlen(common_name));
    if (!result)
        result = gnutls_x509_crt_set_key(certificate, made->key);
    if (!result)
        result = gnutls_x509_privkey_get_key_id(made->key, GNUTLS_KEYID_USE_SHA1, id, &id_bytes);
    if (!result)
        result = gnutls_x509_crt_set_subject_key_id(certificate, id, id_bytes);
    id_bytes = sizeof(id);
    if (!result)
        result = gnutls_x509_privkey_get_key_id(issuer->key, GNUTLS_KEYID_USE_SHA1, id, &id_bytes);
    if (!result)
        result = gnutls_x509_crt_set_authority_key_id(certificate, id, id_bytes);
    return result;
}

static int sign(const struct signer *made, const struct signer *issuer)
{
    return gnutls_x509_crt_sign2(
        made->certificate, issuer->certificate, issuer->key, GNUTLS_DIG_SHA256, 0);
}

static int make_ca(time_t now, int64_t seconds, struct signer *ca)
{
    int result = make_key(&ca->key);
    if (!result)
        result = gnutls_x509_crt_init(&ca->certificate);
    if (!result)
        result = fill(ca, ca, "vgpu-certgen", now, seconds);
    if (!result)
        result = gnutls_x509_crt_set_basic_constraints(ca->certificate, 1, 0);
    if (!result)
        result = gnutls_x509_crt_set_key_usage(
            ca->certificate, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN);
    return result ? result : sign(ca, ca);
}

static int make_server(const struct certificate_names *names, time_t now, int64_t seconds,
    const struct signer *ca, struct signer *server)
{
    int result = make_key(&server->key);
    if (!result)
        result = gnutls_x509_crt_init(&server->certificate);
    /* A common name has at most 64 characters; names are the alternative ones. */
    if (!result)
        result = fill(server, ca, "vgpu-scheduler", now, seconds);
    if (!result)
        result = gnutls_x509_crt_set_basic_constraints(server->certificate, 0, -1);
    if (!result)
        result = gnutls_x509_crt_set_key_usage(server->certificate, GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (!result)
        result =
            gnutls_x509_crt_set_key_purpose_oid(server->certificate, GNUTLS_KP_TLS_WWW_SERVER, 0);
    for (size_t i = 0; i < names->count && !result; i++)
        result = add_name(server->certificate, names->names[i]);
    return result ? result : sign(server, ca);
}

static char *copy_datum(gnutls_datum_t *datum)
{
    char *text = strndup((const char *)datum->data, datum->size);
    explicit_bzero(datum->data, datum->size);
    gnutls_free(datum->data);
    return text;
}

static int write_certificate(gnutls_x509_crt_t certificate, char **ret_text)
{
    gnutls_datum_t datum;
    int result = gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &datum);
    if (result)
        return result;
    *ret_text = copy_datum(&datum);
    return *ret_text ? 0 : GNUTLS_E_MEMORY_ERROR;
}

static int write_key(gnutls_x509_privkey_t key, char **ret_text)
{
    gnutls_datum_t datum;
    int result = gnutls_x509_privkey_export2_pkcs8(
        key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &datum);
    if (result)
        return result;
    *ret_text = copy_datum(&datum);
    return *ret_text ? 0 : GNUTLS_E_MEMORY_ERROR;
}

/* ---- Reading ---- */

/* The certificates of a PEM text; at most `max`. Returns their number, or a GnuTLS error. */
static int read_list(const char *text, gnutls_x509_crt_t *list, unsigned max)
{
    gnutls_datum_t datum = {(unsigned char *)text, (unsigned)strlen(text)};
    unsigned count = max;
    return gnutls_x509_crt_list_import(list, &count, &datum, GNUTLS_X509_FMT_PEM, 0);
}

static void free_list(gnutls_x509_crt_t *list, int count)
{
    for (int i = 0; i < count; i++)
        gnutls_x509_crt_deinit(list[i]);
}

static bool is_valid(gnutls_x509_crt_t certificate, time_t from, time_t to)
{
    return gnutls_x509_crt_get_activation_time(certificate) <= from &&
           gnutls_x509_crt_get_expiration_time(certificate) >= to;
}

/* Appends the first CA of the former bundle that is valid now. One that cannot be read is left out:
 * nothing would trust it either. */
static int append_former(const char *former, time_t now, char **text)
{
    gnutls_x509_crt_t list[CHAIN_MAX];
    int result = 0, count = former ? read_list(former, list, CHAIN_MAX) : 0;
    for (int i = 0; i < count; i++) {
        char *added = NULL, *both = NULL;
        if (!gnutls_x509_crt_get_ca_status(list[i], NULL) || !is_valid(list[i], now, now))
            continue;
        result = write_certificate(list[i], &added);
        if (result)
            break;
        if (asprintf(&both, "%s%s", *text, added) < 0)
            result = GNUTLS_E_MEMORY_ERROR;
        free(added);
        if (result)
            break;
        free(*text);
        *text = both;
        break;
    }
    free_list(list, count);
    return result;
}

int certificate_make(const struct certificate_names *names, time_t now, int64_t seconds,
    const char *former, struct certificate *ret_certificate, struct error *error)
{
    struct signer ca = {NULL, NULL}, server = {NULL, NULL};
    struct certificate made = {.ca = NULL};
    int result = make_ca(now, seconds, &ca);
    if (!result)
        result = make_server(names, now, seconds, &ca, &server);
    if (!result)
        result = write_certificate(ca.certificate, &made.ca);
    if (!result)
        result = append_former(former, now, &made.ca);
    if (!result)
        result = write_certificate(server.certificate, &made.chain);
    if (!result)
        result = write_key(server.key, &made.key);
    signer_finish(&ca);
    signer_finish(&server);
    if (!result) {
        *ret_certificate = made;
        return 0;
    }
    certificate_finish(&made);
    return refused("a certificate cannot be made", result, error);
}

/* ---- Checking ---- */

static int check_key(gnutls_x509_crt_t certificate, const char *text, struct error *error)
{
    gnutls_datum_t datum = {(unsigned char *)text, (unsigned)strlen(text)};
    unsigned char ids[2][32];
    size_t sizes[2] = {sizeof(ids[0]), sizeof(ids[1])};
    gnutls_x509_privkey_t key;
    if (gnutls_x509_privkey_init(&key))
        return error_set(error, ENOMEM, "no memory for a key");
    int result = gnutls_x509_privkey_import2(key, &datum, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (!result)
        result = gnutls_x509_privkey_get_key_id(key, GNUTLS_KEYID_USE_SHA256, ids[0], &sizes[0]);
    gnutls_x509_privkey_deinit(key);
    if (result)
        return error_set(error, EINVAL, "its key: %s", gnutls_strerror(result));
    result = gnutls_x509_crt_get_key_id(certificate, GNUTLS_KEYID_USE_SHA256, ids[1], &sizes[1]);
    if (result || sizes[0] != sizes[1] || memcmp(ids[0], ids[1], sizes[0]) != 0)
        return error_set(error, EINVAL, "its key is another one's");
    return 0;
}

static int check_names(
    gnutls_x509_crt_t certificate, const struct certificate_names *names, struct error *error)
{
    for (size_t i = 0; i < names->count; i++)
        if (!gnutls_x509_crt_check_hostname2(certificate, names->names[i], 0))
            return error_set(error, EINVAL, "it is not for %s", names->names[i]);
    return 0;
}

/* Against each CA by itself: times are checked apart, for a CA that was kept may be over. */
static int check_signature(gnutls_x509_crt_t *chain, int count, const char *ca, time_t from,
    time_t to, struct error *error)
{
    gnutls_x509_crt_t cas[CHAIN_MAX];
    int ca_count = read_list(ca, cas, CHAIN_MAX);
    bool is_signed = false;
    for (int i = 0; i < ca_count && !is_signed; i++) {
        unsigned status = 0;
        is_signed = !gnutls_x509_crt_list_verify(chain, count, &cas[i], 1, NULL, 0,
                        GNUTLS_VERIFY_DISABLE_TIME_CHECKS, &status) &&
                    !status && is_valid(cas[i], from, to);
    }
    free_list(cas, ca_count);
    return is_signed ? 0 : error_set(error, EINVAL, "no CA beside it has signed it, and is valid");
}

static bool is_for_servers(gnutls_x509_crt_t certificate)
{
    return gnutls_x509_crt_check_key_purpose(certificate, GNUTLS_KP_TLS_WWW_SERVER, 0);
}

int certificate_check(const struct certificate *certificate, const struct certificate_names *names,
    time_t now, int64_t seconds, struct error *error)
{
    gnutls_x509_crt_t chain[CHAIN_MAX];
    if (!certificate->ca || !certificate->chain || !certificate->key)
        return error_set(error, EINVAL, "it lacks %s",
            !certificate->chain ? "the certificate"
            : !certificate->key ? "the key"
                                : "the CA");
    int count = read_list(certificate->chain, chain, CHAIN_MAX);
    if (count < 1)
        return error_set(
            error, EINVAL, "it cannot be read: %s", count ? gnutls_strerror(count) : "it is empty");
    int result = 0;
    for (int i = 0; i < count && !result; i++)
        if (!is_valid(chain[i], now, now + (time_t)seconds))
            result = error_set(error, EINVAL, "it is not valid for %lld days from now on",
                (long long)(seconds / 86400));
    if (!result && !is_for_servers(chain[0]))
        result = error_set(error, EINVAL, "it is not for servers");
    if (!result)
        result = check_names(chain[0], names, error);
    if (!result)
        result = check_key(chain[0], certificate->key, error);
    if (!result)
        result = check_signature(chain, count, certificate->ca, now, now + (time_t)seconds, error);
    free_list(chain, count);
    return result;
}
