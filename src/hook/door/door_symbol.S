/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym and dlvsym: door_symbol_answer decides; a name that is not ours goes on to the real function
 * by a jump, so that RTLD_NEXT and RTLD_DEFAULT are resolved from the caller's place. dlopen always
 * goes on by a jump: the caller's RUNPATH counts. */

    .equ RTLD_DEEPBIND, 8

#if defined(__x86_64__)

.macro DOOR name real has_version
    .globl \name
    .type \name, @function
    .balign 16
\name:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    .if !\has_version
    xorl %edx, %edx
    .endif
    call door_symbol_answer
    movq %rdx, %rcx
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rcx, %rcx
    jz 1f
    ret
1:  movq \real(%rip), %rax
    jmp *%rax
    .cfi_endproc
    .size \name, . - \name
.endm

.macro DOOR_OPEN name real
    .globl \name
    .type \name, @function
    .balign 16
\name:
    .cfi_startproc
    endbr64
    movq \real(%rip), %rax
    testq %rax, %rax
    jz 1f
    testl $RTLD_DEEPBIND, %esi
    jnz 1f
    jmp *%rax
1:  pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call door_symbol_before_open
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    movq \real(%rip), %rax
    jmp *%rax
    .cfi_endproc
    .size \name, . - \name
.endm

#elif defined(__aarch64__)

.macro DOOR name real has_version
    .globl \name
    .type \name, %function
    .balign 16
\name:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    .if !\has_version
    mov x2, #0
    .endif
    bl door_symbol_answer
    mov x3, x1
    mov x4, x0
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_def_cfa_offset 0
    cbz x3, 1f
    mov x0, x4
    ret
1:  adrp x16, \real
    ldr x16, [x16, #:lo12:\real]
    br x16
    .cfi_endproc
    .size \name, . - \name
.endm

.macro DOOR_OPEN name real
    .globl \name
    .type \name, %function
    .balign 16
\name:
    .cfi_startproc
    hint #34
    adrp x16, \real
    ldr x16, [x16, #:lo12:\real]
    cbz x16, 1f
    tst w1, #RTLD_DEEPBIND
    b.ne 1f
    br x16
1:  stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    stp x0, x1, [sp, #16]
    bl door_symbol_before_open
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    adrp x16, \real
    ldr x16, [x16, #:lo12:\real]
    br x16
    .cfi_endproc
    .size \name, . - \name
.endm

#else
#error "dlsym's door is written for x86-64 and aarch64"
#endif

    .text
    DOOR door_dlsym door_symbol_next_dlsym 0
    DOOR door_dlvsym door_symbol_next_dlvsym 1
    DOOR_OPEN door_dlopen door_symbol_next_dlopen

/* Exported under glibc's version nodes (doors.map), because libraries that replace dlsym themselves ask
 * dlvsym for a version: where glibc 2.34 moved them into libc it gave them a second one. */
.macro EXPORT_AS door name node
    .globl \door\()_\@
    .type \door\()_\@, STT_FUNC
    .set \door\()_\@, \door
    .symver \door\()_\@, \name\node
.endm

#if defined(__x86_64__)
    EXPORT_AS door_dlsym dlsym @GLIBC_2.2.5
    EXPORT_AS door_dlvsym dlvsym @GLIBC_2.2.5
    EXPORT_AS door_dlopen dlopen @GLIBC_2.2.5
#else
    EXPORT_AS door_dlsym dlsym @GLIBC_2.17
    EXPORT_AS door_dlvsym dlvsym @GLIBC_2.17
    EXPORT_AS door_dlopen dlopen @GLIBC_2.17
#endif
    EXPORT_AS door_dlsym dlsym @@GLIBC_2.34
    EXPORT_AS door_dlvsym dlvsym @@GLIBC_2.34
    EXPORT_AS door_dlopen dlopen @@GLIBC_2.34

    .hidden door_dlsym
    .hidden door_dlvsym
    .hidden door_dlopen

    .section .note.GNU-stack, "", %progbits
