/* What this CPU can do, asked once per kernels_open. */
#ifndef BATON_KERNELS_CPU_ISA_H
#define BATON_KERNELS_CPU_ISA_H

#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>

bool isa_reports_avx2(void);       /* AVX2 and FMA */
bool isa_reports_avx512(void);     /* F, BW, VL, DQ */
bool isa_reports_avx512vnni(void); /* vpdpbusd, on top of AVX-512 */
bool isa_reports_avx512bf16(void); /* by CPUID, on top of AVX-512 */

/* Is vdpbf16ps also the faster way? On AMD it does twice the work of an fp32 multiply-add a cycle;
 * on Intel's Sapphire and Emerald Rapids half of it (measured: 86 and 174 GFLOP/s a thread). By
 * CPUID: reported, and not by Intel. */
bool isa_prefers_avx512bf16(void);

/* Does the CPU execute vdpbf16ps, whatever CPUID says (a hypervisor may hide it)? Tried in a child
 * process, so that an illegal instruction harms nobody. Costs a fork: at set-up only. */
bool isa_executes_avx512bf16(void);

/* Tiles with their products of bf16 and of int8 (tdpbf16ps, tdpbsud), on top of AVX512-BF16 and
 * VNNI: reported, and allowed by the kernel, which is asked once and allows it to all threads of
 * the process. */
bool isa_allows_amx(void);

/* Sets that may be asked for, for a sentence: "auto, avx2 or portable". `here`: by enum isa,
 * whether it runs; auto and portable always do. */
void isa_name_those(const bool here[ISA_AMX + 1], char *text, size_t size);
/* The same of this CPU. */
void isa_name_here(char *text, size_t size);

#endif
