/* Asks this CPU for its instruction sets, once per kernels_open. */
#ifndef BATON_KERNELS_CPU_ISA_H
#define BATON_KERNELS_CPU_ISA_H

#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>

bool isa_reports_avx2(void);       /* AVX2 and FMA */
bool isa_reports_avx512(void);     /* F, BW, VL, DQ */
bool isa_reports_avx512vnni(void); /* vpdpbusd, on top of AVX-512 */
bool isa_reports_avx512bf16(void); /* by CPUID, on top of AVX-512 */

/* Returns whether vdpbf16ps is reported and also the faster way: CPUID reports it, and the CPU
 * isn't Intel's. On AMD it does twice the work of an fp32 multiply-add a cycle. On Intel's Sapphire
 * and Emerald Rapids it does half (measured: 86 and 174 GFLOP/s a thread). */
bool isa_prefers_avx512bf16(void);

/* Returns whether the CPU executes vdpbf16ps, even if CPUID doesn't report it (a hypervisor may
 * hide it). Tries the instruction in a child process, so that an illegal instruction does no harm.
 * Costs a fork: at set-up only. */
bool isa_executes_avx512bf16(void);

/* Returns whether tiles and their products of bf16 and int8 (tdpbf16ps, tdpbsud) may run, on top of
 * AVX512-BF16 and VNNI: reported by CPUID and allowed by the kernel. The kernel is asked here, and
 * allows it to all threads of the process. */
bool isa_allows_amx(void);

/* Writes the sets that may be chosen as a part of a sentence: "auto, avx2 or portable". `here`:
 * whether each set of enum isa runs; auto and portable always do. */
void isa_choices(const bool here[ISA_AMX + 1], char *text, size_t size);
/* isa_choices with the sets of this CPU. */
void isa_choices_here(char *text, size_t size);

#endif
