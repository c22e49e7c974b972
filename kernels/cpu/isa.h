/* What this CPU can do, asked once per kernels_open. */
#ifndef BATON_KERNELS_CPU_ISA_H
#define BATON_KERNELS_CPU_ISA_H

#include <stdbool.h>

bool isa_reports_avx2(void);       /* AVX2 and FMA */
bool isa_reports_avx512(void);     /* F, BW, VL, DQ */
bool isa_reports_avx512bf16(void); /* by CPUID, on top of AVX-512 */

/* Does the CPU execute vdpbf16ps, whatever CPUID says (a hypervisor may hide it)? Tried in a child process, so that an
 * illegal instruction harms nobody. Costs a fork: at set-up only. */
bool isa_executes_avx512bf16(void);

#endif
