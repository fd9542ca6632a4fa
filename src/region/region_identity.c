/* SPDX-License-Identifier: Apache-2.0 */
/* The identity's texts, word by word, each in its order after the state and the count: a reader
 * that finds both unchanged after the last of them has read no half of a new text. */
#include "region/region_identity.h"

#include "base/atomic.h"
#include "base/file.h"
#include "base/text.h"
#include "region/slot.h"

#include <errno.h>
#include <string.h>

enum identity_state { SAID_NOTHING = 0, BEING_WRITTEN = 1, WRITTEN = 2 };

#define TEXT_WORDS                                                                                 \
    ((offsetof(struct vgpu_identity, times) - offsetof(struct vgpu_identity, pod_name)) /          \
        sizeof(uint64_t))

_Static_assert(sizeof(struct region_identity) == TEXT_WORDS * sizeof(uint64_t), "the same texts");
_Static_assert(sizeof(((struct config_identity *)0)->pod_name) ==
                       sizeof(((struct vgpu_identity *)0)->pod_name) &&
                   sizeof(((struct config_identity *)0)->text[0]) ==
                       sizeof(((struct vgpu_identity *)0)->pod_uid),
    "the same bounds");

static bool copy(const struct vgpu_identity *from, struct vgpu_identity *ret_copy)
{
    const uint64_t *words = &from->state + 1;
    uint64_t texts[TEXT_WORDS];
    /* The count first: of a text that is being written while the state is read it is another. */
    uint64_t times = load_acquire(&from->times);
    if (load_acquire(&from->state) != WRITTEN)
        return false;
    for (size_t i = 0; i < TEXT_WORDS; i++)
        texts[i] = load_acquire(&words[i]);
    if (load_acquire(&from->times) != times || load_acquire(&from->state) != WRITTEN)
        return false;
    ret_copy->state = WRITTEN;
    memcpy(ret_copy->pod_name, texts, sizeof(texts));
    return true;
}

/* A text of others, maybe unterminated. */
static void show(char *target, const char *text, size_t size)
{
    text_escape(target, size, text, strnlen(text, size));
}

bool region_identity_read(
    const struct vgpu_identity *identity, struct region_identity *ret_identity)
{
    struct vgpu_identity seen;
    if (!copy(identity, &seen))
        return false;
    show(ret_identity->pod_name, seen.pod_name, sizeof(seen.pod_name));
    show(ret_identity->pod_namespace, seen.pod_namespace, sizeof(seen.pod_namespace));
    show(ret_identity->pod_uid, seen.pod_uid, sizeof(seen.pod_uid));
    show(ret_identity->container_name, seen.container_name, sizeof(seen.container_name));
    return true;
}

void identity_remember(struct region *region)
{
    struct vgpu_identity seen;
    if (copy(&region->shared->identity, &seen) && !load_acquire(&region->lost))
        region->known_identity = seen;
}

static bool from_environment(const struct config *config, struct vgpu_identity *ret_identity)
{
    const struct config_identity *said = &config->identity;
    *ret_identity = (struct vgpu_identity){.state = said->given ? WRITTEN : SAID_NOTHING};
    memcpy(ret_identity->pod_name, said->pod_name, sizeof(ret_identity->pod_name));
    memcpy(ret_identity->pod_namespace, said->text[CONFIG_POD_NAMESPACE],
        sizeof(ret_identity->pod_namespace));
    memcpy(ret_identity->pod_uid, said->text[CONFIG_POD_UID], sizeof(ret_identity->pod_uid));
    memcpy(ret_identity->container_name, said->text[CONFIG_CONTAINER_NAME],
        sizeof(ret_identity->container_name));
    return said->given;
}

static bool is_same(const struct vgpu_identity *one, const struct vgpu_identity *other)
{
    return memcmp(one->pod_name, other->pod_name, TEXT_WORDS * sizeof(uint64_t)) == 0;
}

/* Written into a hole of a full file system, a mapping would raise a signal. */
static bool has_storage(const struct region *region)
{
    const off_t offset = VGPU_REGION_OFFSET + offsetof(struct vgpu_region, identity);
    int error = file_reserve(region->fd, offset, sizeof(struct vgpu_identity));
    return error != -ENOSPC && error != -EDQUOT;
}

/* The lock keeps other writers away; only a process that does not keep to it makes the swap fail.
 */
static void write_texts(struct vgpu_identity *held, const struct vgpu_identity *texts)
{
    uint64_t *to = &held->state + 1;
    const uint64_t *from = &texts->state + 1;
    uint64_t state = load_acquire(&held->state);
    if (!swap_seq_cst(&held->state, state, (uint64_t)BEING_WRITTEN))
        return;
    (void)add_seq_cst(&held->times, (uint64_t)1);
    for (size_t i = 0; i < TEXT_WORDS; i++)
        store_release(&to[i], from[i]);
    (void)swap_seq_cst(&held->state, (uint64_t)BEING_WRITTEN, (uint64_t)WRITTEN);
}

void identity_take(struct region *region)
{
    struct vgpu_identity *held = &region->shared->identity, seen, asked;
    bool said = copy(held, &seen), moved = region->known_identity.state == WRITTEN;
    if (moved)
        asked = region->known_identity;
    else if (!from_environment(region->config, &asked))
        asked.state = SAID_NOTHING;
    bool wanted = asked.state == WRITTEN &&
                  (!said || (!moved && !is_same(&seen, &asked) && !slot_any_live(region)));
    if (wanted && has_storage(region))
        write_texts(held, &asked);
    identity_remember(region);
}
