#include "kernels/cpu/isa.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const isa_names[] = {"auto", "portable", "avx2", "avx512", "avx512bf16", "amx", NULL};

#if defined(__x86_64__)

bool isa_reports_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool isa_reports_avx512(void)
{
    return isa_reports_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

bool isa_reports_avx512vnni(void)
{
    return isa_reports_avx512() && __builtin_cpu_supports("avx512vnni");
}

bool isa_reports_avx512bf16(void)
{
    return isa_reports_avx512() && __builtin_cpu_supports("avx512bf16");
}

bool isa_prefers_avx512bf16(void)
{
    return isa_reports_avx512bf16() && !__builtin_cpu_is("intel");
}

/* Runs in the child: executes the instruction, writes one byte and exits. Calls async-signal-safe
 * functions only. */
_Noreturn static void try_instruction(int result_fd)
{
    struct rlimit none = {0};
    (void)setrlimit(RLIMIT_CORE, &none);
    signal(SIGILL, SIG_DFL);
    __asm__ volatile("vdpbf16ps %%zmm0, %%zmm0, %%zmm0" ::: "xmm0");
    ssize_t written = write(result_fd, "1", 1);
    _exit(written == 1 ? 0 : 1);
}

bool isa_executes_avx512bf16(void)
{
    int ends[2];
    if (!isa_reports_avx512() || pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0)
        try_instruction(ends[1]);
    close(ends[1]);
    char byte = 0;
    ssize_t got = 0;
    while (child > 0 && (got = read(ends[0], &byte, 1)) < 0 && errno == EINTR)
        ;
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return got == 1 && byte == '1';
}

#define ASK_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM of Linux 5.16 */
#define TILE_DATA      18     /* XFEATURE_XTILEDATA */

bool isa_allows_amx(void)
{
    return isa_reports_avx512bf16() && isa_reports_avx512vnni() &&
           __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
           __builtin_cpu_supports("amx-int8") &&
           syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0;
}

#else

bool isa_reports_avx2(void)
{
    return false;
}

bool isa_reports_avx512(void)
{
    return false;
}

bool isa_reports_avx512vnni(void)
{
    return false;
}

bool isa_reports_avx512bf16(void)
{
    return false;
}

bool isa_prefers_avx512bf16(void)
{
    return false;
}

bool isa_executes_avx512bf16(void)
{
    return false;
}

bool isa_allows_amx(void)
{
    return false;
}

#endif

void isa_choices(const bool here[ISA_AMX + 1], char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s", isa_names[ISA_AUTO]);
    for (int isa = ISA_AMX; isa > ISA_PORTABLE; isa--)
        if (here[isa] && used < size)
            used += (size_t)snprintf(text + used, size - used, ", %s", isa_names[isa]);
    if (used < size)
        snprintf(text + used, size - used, " or %s", isa_names[ISA_PORTABLE]);
}

void isa_choices_here(char *text, size_t size)
{
    bool here[ISA_AMX + 1] = {false};
#if defined(__x86_64__)
    here[ISA_AVX2] = isa_reports_avx2();
    here[ISA_AVX512] = isa_reports_avx512();
    here[ISA_AVX512BF16] = isa_reports_avx512bf16() || isa_executes_avx512bf16();
    here[ISA_AMX] = isa_allows_amx();
#endif
    isa_choices(here, text, size);
}
