/* SPDX-License-Identifier: Apache-2.0 */
/* Kubernetes quantities ("1500m", "1.5Gi", "12e6") as apimachinery's resource.Quantity reads them:
 * exact down to 10^-9. Pure functions; no allocation. Includes nothing but the C library. */
#ifndef VGPU_KUBE_QUANTITY_H
#define VGPU_KUBE_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

/* What quantity_parse accepts, for messages. */
#define QUANTITY_ACCEPTED                                                                          \
    "a number with an optional suffix n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an "    \
    "exponent"

struct quantity {
    __int128 nano; /* in 10^-9; at most 10^36 (10^27 units) in size, what is more is held as that */
};

/* Reads the whole text. As in resource.ParseQuantity:
 * - digits may be missing on either side of the point, or at all: ".5", "1.", "k" (which is 0);
 * - what is finer than 10^-9 is rounded away from zero;
 * - an amount with a binary suffix is held within 2^63-1.
 * "1E" is 10^18, "1E3" is 10^3. Returns 0, or -EINVAL: not a quantity. */
int quantity_parse(const char *text, struct quantity *ret_quantity)
    __attribute__((warn_unused_result));

/* Whole units, and thousandths, rounded away from zero (Value() and MilliValue() of Go; where those
 * overflow, the result depends on the release). Returns 0, or -ERANGE outside of int64_t. */
int quantity_value(const struct quantity *quantity, int64_t *ret_value)
    __attribute__((warn_unused_result));
int quantity_milli(const struct quantity *quantity, int64_t *ret_milli)
    __attribute__((warn_unused_result));

/* Whether it is a whole number of units. (Go's AsInt64 refuses some that are, as "1000m" and
 * "1.5Gi"; the API server stores those as "1" and "1536Mi".) */
bool quantity_is_integer(const struct quantity *quantity);

/* -1, 0 or 1 as `a` is less than, equal to or more than `b`. */
int quantity_compare(const struct quantity *a, const struct quantity *b);

/* The sum, held within the bounds of struct quantity. */
struct quantity quantity_add(struct quantity a, struct quantity b);

struct quantity quantity_of(int64_t units);

#endif
