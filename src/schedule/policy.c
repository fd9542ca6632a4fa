/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/policy.h"

#include "codec/number.h"

#include <errno.h>
#include <string.h>

const struct policy_weights policy_weights_default = {1, 1, 1};

enum word { BINPACK, SPREAD, NUMA, MUTEX, TOPOLOGY, WORD_COUNT };

static const char *const words[WORD_COUNT] = {
    [BINPACK] = "binpack",
    [SPREAD] = "spread",
    [NUMA] = "numa",
    [MUTEX] = "mutex",
    [TOPOLOGY] = "topology-aware",
};

struct piece {
    const char *text;
    size_t length;
};

/* Takes the next piece up to a comma, without blanks around it; false at the end. */
static bool next_piece(const char **at, struct piece *ret_piece)
{
    if (!*at)
        return false;
    const char *end = strchrnul(*at, ',');
    const char *from = *at + strspn(*at, " \t"), *to = end;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    *ret_piece = (struct piece){from, to > from ? (size_t)(to - from) : 0};
    *at = *end ? end + 1 : NULL;
    return true;
}

static bool is_word(struct piece piece, const char *word)
{
    return strlen(word) == piece.length && !memcmp(piece.text, word, piece.length);
}

struct found {
    unsigned words;            /* a bit a word */
    enum word keys[3];         /* the sort keys as written, each once */
    size_t key_count, written; /* `written`: pieces, known or not */
};

static struct found find_words(const char *text)
{
    struct found found = {0};
    struct piece piece;
    while (next_piece(&text, &piece)) {
        found.written++;
        for (unsigned i = 0; i < WORD_COUNT; i++) {
            if (!is_word(piece, words[i]) || (found.words & (1u << i)))
                continue;
            found.words |= 1u << i;
            if (i <= NUMA)
                found.keys[found.key_count++] = (enum word)i;
        }
    }
    return found;
}

/* The order of a chain; NUMA nodes from the highest. Where devices must be of one NUMA node, that
 * comes first. */
static void order_chain(const struct found *found, bool numa_bind, enum policy_step *steps)
{
    bool grouped = numa_bind && (!found->key_count || found->keys[0] != NUMA);
    if (grouped)
        *steps++ = POLICY_NUMA_HIGH;
    for (size_t i = 0; i < found->key_count; i++)
        if (!(grouped && found->keys[i] == NUMA))
            *steps++ = found->keys[i] == BINPACK  ? POLICY_FULLEST
                       : found->keys[i] == SPREAD ? POLICY_EMPTIEST
                                                  : POLICY_NUMA_HIGH;
    if (!found->key_count)
        *steps++ = POLICY_EMPTIEST;
    *steps = POLICY_END;
}

/* One word: the score first and the NUMA node to break ties, or the other way. */
static void order_word(const struct found *found, bool numa_bind, enum policy_step *steps)
{
    bool binpack = found->words & (1u << BINPACK);
    enum policy_step load = found->words & (1u << MUTEX) ? POLICY_FEWEST_USED
                            : binpack                    ? POLICY_FULLEST
                                                         : POLICY_EMPTIEST;
    enum policy_step numa = numa_bind && binpack ? POLICY_NUMA_LOW : POLICY_NUMA_HIGH;
    steps[0] = numa_bind ? numa : load;
    steps[1] = numa_bind ? load : numa;
    steps[2] = POLICY_END;
}

int policy_parse(const char *text, bool numa_bind, struct policy *ret_policy, struct error *error)
{
    struct found found = find_words(text);
    if (!found.words)
        return error_set(error, EINVAL, "\"%.60s\" is no policy; accepted: " POLICY_ACCEPTED, text);
    struct policy policy = {
        .exclusive = found.words & (1u << MUTEX),
        .topology = found.words & (1u << TOPOLOGY),
    };
    if (found.written > 1 || found.words == 1u << NUMA)
        order_chain(&found, numa_bind, policy.steps);
    else
        order_word(&found, numa_bind, policy.steps);
    *ret_policy = policy;
    return 0;
}

int policy_parse_node(const char *text, enum policy_node *ret_policy, struct error *error)
{
    struct piece piece;
    const char *at = text;
    bool one = next_piece(&at, &piece) && !at;
    if (one && is_word(piece, words[BINPACK]))
        *ret_policy = POLICY_NODE_BINPACK;
    else if (one && is_word(piece, words[SPREAD]))
        *ret_policy = POLICY_NODE_SPREAD;
    else
        return error_set(
            error, EINVAL, "\"%.60s\" is no policy; accepted: " POLICY_NODE_ACCEPTED, text);
    return 0;
}

int policy_parse_weights(const char *text, struct policy_weights *ret_weights, struct error *error)
{
    static const char *const keys[] = {"slot", "core", "memory"};
    int64_t values[] = {-1, -1, -1};
    struct piece piece;
    bool valid = true;
    for (const char *at = text; valid && next_piece(&at, &piece);) {
        const char *sign = memchr(piece.text, '=', piece.length);
        struct piece key = {piece.text, sign ? (size_t)(sign - piece.text) : 0};
        valid = false;
        for (size_t i = 0; sign && i < 3; i++)
            if (is_word(key, keys[i]) && values[i] < 0)
                valid = !number_parse(
                    sign + 1, piece.length - key.length - 1, 0, INT32_MAX, &values[i]);
    }
    if (!valid || values[0] < 0 || values[1] < 0 || values[2] < 0 ||
        !(values[0] || values[1] || values[2]))
        return error_set(error, EINVAL,
            "\"%.60s\" are no weights; accepted: slot=N,core=N,memory=N, each from 0 on and one "
            "above it",
            text);
    *ret_weights =
        (struct policy_weights){(int32_t)values[0], (int32_t)values[1], (int32_t)values[2]};
    return 0;
}
