/* SPDX-License-Identifier: Apache-2.0 */
/* The stubs of door_hold.c. The n-th jumps to the function of door_hold_targets[n], with registers and
 * stack as they are, once no halt lasts. */

    .equ STUBS, 1024 /* DOOR_HOLD_STUBS */

    .text
    .hidden door_hold_targets
    .hidden halt_lasts
    .hidden halt_wait_slow

#if defined(__x86_64__)

    .type door_hold_common, @function
    .balign 16
door_hold_common:
    .cfi_startproc
    cmpl $0, halt_lasts(%rip)
    jne 2f
1:  leaq door_hold_targets(%rip), %r10
    movq (%r10,%r11,8), %r10
    jmp *%r10
2:  pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    pushq %rcx
    .cfi_adjust_cfa_offset 8
    pushq %r8
    .cfi_adjust_cfa_offset 8
    pushq %r9
    .cfi_adjust_cfa_offset 8
    pushq %r11
    .cfi_adjust_cfa_offset 8
    subq $32, %rsp
    .cfi_adjust_cfa_offset 32
    movups %xmm0, (%rsp)
    movups %xmm1, 16(%rsp)
    call halt_wait_slow
    movups (%rsp), %xmm0
    movups 16(%rsp), %xmm1
    addq $32, %rsp
    .cfi_adjust_cfa_offset -32
    popq %r11
    .cfi_adjust_cfa_offset -8
    popq %r9
    .cfi_adjust_cfa_offset -8
    popq %r8
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp 1b
    .cfi_endproc
    .size door_hold_common, . - door_hold_common

    .globl door_hold_stubs
    .hidden door_hold_stubs
    .type door_hold_stubs, @function
    .balign 16
door_hold_stubs:
    .set number, 0
    .rept STUBS
    .balign 16
    endbr64
    movl $number, %r11d
    jmp door_hold_common
    .set number, number + 1
    .endr
    .balign 16
    .size door_hold_stubs, . - door_hold_stubs

#elif defined(__aarch64__)

    .type door_hold_common, %function
    .balign 16
door_hold_common:
    .cfi_startproc
    adrp x17, halt_lasts
    ldr w17, [x17, #:lo12:halt_lasts]
    cbnz w17, 2f
1:  adrp x17, door_hold_targets
    add x17, x17, #:lo12:door_hold_targets
    ldr x16, [x17, x16, lsl #3]
    br x16
2:  stp x29, x30, [sp, #-144]!
    .cfi_def_cfa_offset 144
    .cfi_offset x29, -144
    .cfi_offset x30, -136
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    stp x8, x16, [sp, #80]
    stp q0, q1, [sp, #96]
    bl halt_wait_slow
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldp x8, x16, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp x29, x30, [sp], #144
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    b 1b
    .cfi_endproc
    .size door_hold_common, . - door_hold_common

    .globl door_hold_stubs
    .hidden door_hold_stubs
    .type door_hold_stubs, %function
    .balign 16
door_hold_stubs:
    .set number, 0
    .rept STUBS
    .balign 16
    hint #34
    mov x16, #number
    b door_hold_common
    .set number, number + 1
    .endr
    .balign 16
    .size door_hold_stubs, . - door_hold_stubs

#else
#error "the stubs are written for x86-64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits
