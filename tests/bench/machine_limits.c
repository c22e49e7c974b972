#include "tests/bench/machine_limits.h"

#include <time.h>

#define LOOPS 4000000

/* Twelve independent chains cover the latency; the operands are zero. */
#define TWELVE(ONE)                                                                                \
    ONE(0) ONE(1) ONE(2) ONE(3) ONE(4) ONE(5) ONE(6) ONE(7) ONE(8) ONE(9) ONE(10) ONE(11)
#define CLEAR(I)  "vxorps %%xmm" #I ", %%xmm" #I ", %%xmm" #I "\n"
#define FMA512(I) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #I "\n"
#define FMA256(I) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #I "\n"
#define DOT512(I) "vdpbf16ps %%zmm12, %%zmm13, %%zmm" #I "\n"

#define RUN(INSTRUCTION, LOOP_COUNT)                                                               \
    __asm__ volatile(TWELVE(CLEAR) CLEAR(12) CLEAR(13) "mov %0, %%rcx\n1:\n" TWELVE(INSTRUCTION)   \
                         TWELVE(INSTRUCTION) "dec %%rcx\njnz 1b\nvzeroupper\n" ::"r"(LOOP_COUNT)   \
                     : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",      \
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13")

uint64_t limit_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static double gflops(uint64_t begin_ns, double flops_each)
{
    return 24.0 * LOOPS * flops_each / (double)(limit_clock_ns() - begin_ns);
}

double limit_fma_gflops(void)
{
    uint64_t begin = limit_clock_ns();
    RUN(FMA512, (uint64_t)LOOPS);
    return gflops(begin, 2 * 16);
}

double limit_fma256_gflops(void)
{
    uint64_t begin = limit_clock_ns();
    RUN(FMA256, (uint64_t)LOOPS);
    return gflops(begin, 2 * 8);
}

double limit_dot_gflops(void)
{
    uint64_t begin = limit_clock_ns();
    RUN(DOT512, (uint64_t)LOOPS);
    return gflops(begin, 2 * 32);
}

double limit_read_gbs(const void *memory, size_t bytes)
{
    const char *p = memory, *end = p + bytes / 256 * 256;
    uint64_t begin = limit_clock_ns();
    for (; p < end;
         p += 256) /* one load a cache line, asked for ahead: the fastest way to pull it in */
        __asm__ volatile("prefetcht1 8192(%0)\nprefetcht1 8256(%0)\n"
                         "prefetcht1 8320(%0)\nprefetcht1 8384(%0)\n"
                         "movaps (%0), %%xmm0\nmovaps 64(%0), %%xmm1\n"
                         "movaps 128(%0), %%xmm2\nmovaps 192(%0), %%xmm3\n" ::"r"(p)
                         : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
    return (double)bytes / (double)(limit_clock_ns() - begin);
}
