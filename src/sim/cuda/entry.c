/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported functions: each is a label that jumps, arguments untouched, to the body of its
 * row once cuda_entry_begin has let the call pass, or else to a function that returns the error.
 */
#include "sim/cuda/entry.h"

#include <stdlib.h>
#include <string.h>

static CUresult body_absent(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define BODY(name, row_flags)                                                                      \
    extern void own_##name(void) __attribute__((visibility("hidden")));                            \
    __attribute__((used)) struct cuda_entry entry_##name = {                                       \
        #name, (void (*)(void))sim_##name, own_##name, (row_flags), 0, 0};
#define TWIN(name, of, row_flags)                                                                  \
    extern void own_##name(void) __attribute__((visibility("hidden")));                            \
    __attribute__((used)) struct cuda_entry entry_##name = {                                       \
        #name, (void (*)(void))sim_##of, own_##name, (row_flags) | ENTRY_PER_THREAD, 0, 0};
#define ABSENT(name)                                                                               \
    extern void own_##name(void) __attribute__((visibility("hidden")));                            \
    __attribute__((used)) struct cuda_entry entry_##name = {                                       \
        #name, (void (*)(void))body_absent, own_##name, 0, 0, 0};
#include "sim/cuda/entries.def"
#undef BODY
#undef TWIN
#undef ABSENT

/*
 * Each label has a hidden twin, own_X, that no preloaded library can take the place of, and a
 * no-op before it, which gives "other-pointers" a second address that works.
 */
#if defined(__x86_64__)
#define STUB(name)                                                                                 \
    __asm__(".pushsection .text\n"                                                                 \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", @function\n"                                                         \
            ".hidden own_" #name "\n"                                                              \
            ".globl own_" #name "\n"                                                               \
            ".p2align 4\n"                                                                         \
            "    nop\n" #name ":\n"                                                                \
            "own_" #name ":\n"                                                                     \
            "    leaq entry_" #name "(%rip), %rax\n"                                               \
            "    jmp cuda_entry_common\n"                                                          \
            ".size " #name ", . - " #name "\n"                                                     \
            ".popsection\n");
__asm__(".pushsection .text\n"
        ".hidden cuda_entry_common\n"
        ".globl cuda_entry_common\n"
        ".type cuda_entry_common, @function\n"
        "cuda_entry_common:\n"
        "    pushq %rbp\n"
        "    movq %rsp, %rbp\n"
        "    pushq %rdi\n"
        "    pushq %rsi\n"
        "    pushq %rdx\n"
        "    pushq %rcx\n"
        "    pushq %r8\n"
        "    pushq %r9\n"
        "    subq $32, %rsp\n"
        "    movups %xmm0, (%rsp)\n"
        "    movups %xmm1, 16(%rsp)\n"
        "    movq %rax, %rdi\n"
        "    call cuda_entry_begin\n"
        "    movups (%rsp), %xmm0\n"
        "    movups 16(%rsp), %xmm1\n"
        "    addq $32, %rsp\n"
        "    popq %r9\n"
        "    popq %r8\n"
        "    popq %rcx\n"
        "    popq %rdx\n"
        "    popq %rsi\n"
        "    popq %rdi\n"
        "    popq %rbp\n"
        "    jmpq *%rax\n"
        ".size cuda_entry_common, . - cuda_entry_common\n"
        ".popsection\n");
#elif defined(__aarch64__)
#define STUB(name)                                                                                 \
    __asm__(".pushsection .text\n"                                                                 \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", %function\n"                                                         \
            ".hidden own_" #name "\n"                                                              \
            ".globl own_" #name "\n"                                                               \
            ".p2align 4\n"                                                                         \
            "    nop\n" #name ":\n"                                                                \
            "own_" #name ":\n"                                                                     \
            "    adrp x16, entry_" #name "\n"                                                      \
            "    add x16, x16, :lo12:entry_" #name "\n"                                            \
            "    b cuda_entry_common\n"                                                            \
            ".size " #name ", . - " #name "\n"                                                     \
            ".popsection\n");
__asm__(".pushsection .text\n"
        ".hidden cuda_entry_common\n"
        ".globl cuda_entry_common\n"
        ".type cuda_entry_common, %function\n"
        "cuda_entry_common:\n"
        "    stp x29, x30, [sp, #-112]!\n"
        "    mov x29, sp\n"
        "    stp x0, x1, [sp, #16]\n"
        "    stp x2, x3, [sp, #32]\n"
        "    stp x4, x5, [sp, #48]\n"
        "    stp x6, x7, [sp, #64]\n"
        "    stp q0, q1, [sp, #80]\n"
        "    mov x0, x16\n"
        "    bl cuda_entry_begin\n"
        "    mov x16, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x2, x3, [sp, #32]\n"
        "    ldp x4, x5, [sp, #48]\n"
        "    ldp x6, x7, [sp, #64]\n"
        "    ldp q0, q1, [sp, #80]\n"
        "    ldp x29, x30, [sp], #112\n"
        "    br x16\n"
        ".size cuda_entry_common, . - cuda_entry_common\n"
        ".popsection\n");
#else
#error "write the entry stub for this processor"
#endif

#define BODY(name, flags) STUB(name)
#define TWIN(name, of, flags) STUB(name)
#define ABSENT(name) STUB(name)
#include "sim/cuda/entries.def"
#undef BODY
#undef TWIN
#undef ABSENT

#define BODY(name, flags) &entry_##name,
#define TWIN(name, of, flags) &entry_##name,
#define ABSENT(name) &entry_##name,
/* In the order of the list, which is sorted by name. */
static struct cuda_entry *const entries[] = {
#include "sim/cuda/entries.def"
};
#undef BODY
#undef TWIN
#undef ABSENT

static int entry_compare(const void *name, const void *row)
{
    return strcmp(name, (*(struct cuda_entry *const *)row)->name);
}

struct cuda_entry *cuda_entry_find(const char *name)
{
    struct cuda_entry *const *row =
        bsearch(name, entries, sizeof entries / sizeof *entries, sizeof *entries, entry_compare);

    return row ? *row : NULL;
}

/* How often the named function was called in this process: for tests. */
__attribute__((visibility("default"))) unsigned long long vgpu_sim_call_count(const char *name);

unsigned long long vgpu_sim_call_count(const char *name)
{
    const struct cuda_entry *entry = cuda_entry_find(name);

    return entry ? __atomic_load_n(&entry->calls, __ATOMIC_RELAXED) : 0;
}
