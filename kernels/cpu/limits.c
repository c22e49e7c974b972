#include "kernels/cpu/limits.h"

#include "kernels/backend.h"
#include "kernels/cpu/inner/amx.h"
#include "kernels/cpu/inner/quantized.h"
#include "kernels/cpu/isa.h"

#include <time.h>

#define LOOPS            4000000
#define TRIALS           5
#define INSTRUCTIONS     24 /* instructions of a loop */
#define TILE_LOOPS       8  /* loops of the other instructions for one of tiles */
#define CACHE_LINE_BYTES 64

struct limits_instruction {
    const char *name;
    double operations; /* operations of one instruction (or pair of instructions) */
    void (*run)(uint64_t loops);
};

#if defined(__x86_64__)

/* Twelve independent chains cover the latency; the operands are zero. */
#define TWELVE(ONE)                                                                                \
    ONE(0) ONE(1) ONE(2) ONE(3) ONE(4) ONE(5) ONE(6) ONE(7) ONE(8) ONE(9) ONE(10) ONE(11)
#define CLEAR(I)    "vxorps %%xmm" #I ", %%xmm" #I ", %%xmm" #I "\n"
#define CLEAR128(I) "xorps %%xmm" #I ", %%xmm" #I "\n"
#define FMA512(I)   "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #I "\n"
#define FMA256(I)   "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #I "\n"
#define BF16(I)     "vdpbf16ps %%zmm12, %%zmm13, %%zmm" #I "\n"
#define VNNI(I)     "vpdpbusd %%zmm12, %%zmm13, %%zmm" #I "\n"
#define MADD512(I)  "vpmaddwd %%zmm12, %%zmm13, %%zmm14\nvpaddd %%zmm14, %%zmm" #I ", %%zmm" #I "\n"
#define MADD256(I)  "vpmaddwd %%ymm12, %%ymm13, %%ymm14\nvpaddd %%ymm14, %%ymm" #I ", %%ymm" #I "\n"
#define MADDUB256(I)                                                                               \
    "vpmaddubsw %%ymm12, %%ymm13, %%ymm14\nvpaddw %%ymm14, %%ymm" #I ", %%ymm" #I "\n"
#define MUL128(I)  "movaps %%xmm13, %%xmm14\nmulps %%xmm12, %%xmm14\naddps %%xmm14, %%xmm" #I "\n"
#define MADD128(I) "movdqa %%xmm13, %%xmm14\npmaddwd %%xmm12, %%xmm14\npaddd %%xmm14, %%xmm" #I "\n"

#define RUN(NAME, CLEAR, INSTRUCTION, END)                                                         \
    static void NAME(uint64_t loops)                                                               \
    {                                                                                              \
        __asm__ volatile(TWELVE(CLEAR) CLEAR(12)                                                   \
                             CLEAR(13) "mov %0, %%rcx\n1:\n" TWELVE(INSTRUCTION)                   \
                                 TWELVE(INSTRUCTION) "dec %%rcx\njnz 1b\n" END ::"r"(loops)        \
                         : "cc", "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",    \
                           "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14");   \
    }

RUN(run_fma512, CLEAR, FMA512, "vzeroupper\n")
RUN(run_fma256, CLEAR, FMA256, "vzeroupper\n")
RUN(run_mul128, CLEAR128, MUL128, "")
RUN(run_bf16, CLEAR, BF16, "vzeroupper\n")
RUN(run_vnni, CLEAR, VNNI, "vzeroupper\n")
RUN(run_madd512, CLEAR, MADD512, "vzeroupper\n")
RUN(run_madd256, CLEAR, MADD256, "vzeroupper\n")
RUN(run_maddub256, CLEAR, MADDUB256, "vzeroupper\n")
RUN(run_madd128, CLEAR128, MADD128, "")

/* A product of tiles takes as long as some thirty of the other instructions. */
#define RUN_TILES(NAME, DOT)                                                                       \
    static void NAME(uint64_t loops)                                                               \
    {                                                                                              \
        amx_begin();                                                                               \
        TILE_ZERO(6);                                                                              \
        TILE_ZERO(7);                                                                              \
        for (uint64_t i = 0; i < loops / TILE_LOOPS; i++) {                                        \
            DOT(0, 6, 7);                                                                          \
            DOT(1, 6, 7);                                                                          \
            DOT(2, 6, 7);                                                                          \
            DOT(3, 6, 7);                                                                          \
            DOT(4, 6, 7);                                                                          \
            DOT(5, 6, 7);                                                                          \
        }                                                                                          \
        amx_end();                                                                                 \
    }

RUN_TILES(run_tiles_bf16, TILE_DOT_BF16)
RUN_TILES(run_tiles_int8, TILE_DOT_S8_U8)

static const struct limits_instruction fma512 = {"vfmadd231ps zmm", 2 * 16, run_fma512};
static const struct limits_instruction fma256 = {"vfmadd231ps ymm", 2 * 8, run_fma256};
static const struct limits_instruction mul128 = {"mulps xmm", 2 * 4, run_mul128};
static const struct limits_instruction bf16 = {"vdpbf16ps zmm", 2 * 32, run_bf16};
static const struct limits_instruction vnni = {"vpdpbusd zmm", 2 * 64, run_vnni};
/* Six products replace the 24 instructions of a loop, and there are fewer loops. */
#define TILES_OPERATIONS(K) (2.0 * AMX_ROWS * 16 * (K)*6 / INSTRUCTIONS / TILE_LOOPS)
static const struct limits_instruction tiles_bf16 = {"tdpbf16ps", TILES_OPERATIONS(32),
                                                     run_tiles_bf16};
static const struct limits_instruction tiles_int8 = {"tdpbsud", TILES_OPERATIONS(64),
                                                     run_tiles_int8};
static const struct limits_instruction madd512 = {"vpmaddwd zmm", 2 * 32, run_madd512};
static const struct limits_instruction madd256 = {"vpmaddwd ymm", 2 * 16, run_madd256};
static const struct limits_instruction maddub256 = {"vpmaddubsw ymm", 2 * 32, run_maddub256};
static const struct limits_instruction madd128 = {"pmaddwd xmm", 2 * 8, run_madd128};

const struct limits_instruction *limits_linear(const struct inner *inner)
{
    return inner == &inner_amx          ? &tiles_bf16
           : inner == &inner_avx512bf16 ? &bf16
           : inner == &inner_avx512     ? &fma512
           : inner == &inner_avx2       ? &fma256
                                        : &mul128;
}

const struct limits_instruction *limits_quantized(const struct quantized_inner *inner, bool int4)
{
    return inner == &quantized_amx          ? &tiles_int8
           : inner == &quantized_avx512vnni ? &vnni
           : inner == &quantized_avx512     ? &madd512
           : inner == &quantized_avx2       ? (int4 ? &maddub256 : &madd256)
                                            : &madd128;
}

/* Reads a line of each quarter in turns, without requests. */
static void read_quarters(const char *p, size_t lines)
{
    size_t quarter = lines / 4 * CACHE_LINE_BYTES;
    for (const char *end = p + quarter; p < end; p += CACHE_LINE_BYTES)
        __asm__ volatile("movups (%0), %%xmm0\nmovups (%0,%1), %%xmm1\n"
                         "movups (%0,%1,2), %%xmm2\nmovups (%2), %%xmm3\n" ::"r"(p),
                         "r"(quarter), "r"(p + 3 * quarter)
                         : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}

#define LINES_IN_TURNS                                                                             \
    "movups (%0), %%xmm0\nmovups 64(%0), %%xmm1\nmovups 128(%0), %%xmm2\nmovups 192(%0), %%xmm3\n"
#define ASK_FAR                                                                                    \
    "prefetcht1 8192(%0)\nprefetcht1 8256(%0)\nprefetcht1 8320(%0)\nprefetcht1 8384(%0)\n"
#define ASK_NEAR                                                                                   \
    "prefetcht0 2048(%0)\nprefetcht0 2112(%0)\nprefetcht0 2176(%0)\nprefetcht0 2240(%0)\n"

/* One load a cache line. `lines`: a multiple of 4. */
static void read_in_order(const char *p, size_t lines)
{
    for (const char *end = p + lines * CACHE_LINE_BYTES; p < end; p += 4 * CACHE_LINE_BYTES)
        __asm__ volatile(ASK_FAR LINES_IN_TURNS ::"r"(p)
                         : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}

static void read_asked_again(const char *p, size_t lines)
{
    for (const char *end = p + lines * CACHE_LINE_BYTES; p < end; p += 4 * CACHE_LINE_BYTES)
        __asm__ volatile(ASK_FAR ASK_NEAR LINES_IN_TURNS ::"r"(p)
                         : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
}

static void read_lines(const char *p, size_t lines, enum limits_way way)
{
    switch (way) {
    case LIMITS_QUARTERS: read_quarters(p, lines); break;
    case LIMITS_ASKED_AGAIN: read_asked_again(p, lines); break;
    default: read_in_order(p, lines); break;
    }
}

#else

const struct limits_instruction *limits_linear(const struct inner *inner)
{
    (void)inner;
    return NULL;
}

const struct limits_instruction *limits_quantized(const struct quantized_inner *inner, bool int4)
{
    (void)inner;
    (void)int4;
    return NULL;
}

static void read_lines(const char *p, size_t lines, enum limits_way way)
{
    (void)way;
    for (size_t i = 0; i < lines; i++)
        (void)*(const volatile char *)(p + i * CACHE_LINE_BYTES);
}

#endif

static uint64_t ran_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* An item is one thread's part. */
struct limits_job {
    const struct limits_instruction *instruction;
    const char *memory;
    enum limits_way way;
    size_t lines; /* lines of a part */
    uint64_t ns[KERNELS_MAX_THREADS];
};

static void compute(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    struct limits_job *job = context;
    for (uint32_t i = first; i < last; i++) {
        uint64_t begun_ns = ran_ns();
        job->instruction->run(LOOPS);
        job->ns[i] = ran_ns() - begun_ns;
    }
}

static void read_part(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    struct limits_job *job = context;
    for (uint32_t i = first; i < last; i++) {
        uint64_t begun_ns = ran_ns();
        read_lines(job->memory + i * job->lines * CACHE_LINE_BYTES, job->lines, job->way);
        job->ns[i] = ran_ns() - begun_ns;
    }
}

double limits_peak(struct pool *pool, uint32_t threads,
                   const struct limits_instruction *instruction, const char **name)
{
    *name = instruction ? instruction->name : "";
    if (!instruction)
        return 0;
    struct limits_job job = {.instruction = instruction};
    pool_run(pool, threads, 1, compute, &job);
    double sum = 0;
    for (uint32_t i = 0; i < threads; i++)
        sum += (double)INSTRUCTIONS * LOOPS * instruction->operations / (double)job.ns[i];
    return sum;
}

static uint64_t read_once(struct pool *pool, uint32_t threads, struct limits_job job)
{
    pool_run(pool, threads, 1, read_part, &job);
    uint64_t slowest_ns = 0;
    for (uint32_t i = 0; i < threads; i++)
        slowest_ns = job.ns[i] > slowest_ns ? job.ns[i] : slowest_ns;
    return slowest_ns;
}

/* Finds the fastest way: the quickest of TRIALS passes of each, in turns. Other programs only make
 * passes longer. */
static enum limits_way find_way(struct pool *pool, uint32_t threads, struct limits_job job)
{
    uint64_t quickest_ns = UINT64_MAX;
    enum limits_way found = LIMITS_IN_ORDER;
    for (int i = 0; i < TRIALS; i++)
        for (job.way = LIMITS_IN_ORDER; job.way < LIMITS_WAYS; job.way++) {
            uint64_t ns = read_once(pool, threads, job);
            if (ns < quickest_ns) {
                quickest_ns = ns;
                found = job.way;
            }
        }
    return found;
}

uint64_t limits_read(struct pool *pool, uint32_t threads, enum limits_way *way, const void *memory,
                     size_t bytes)
{
    struct limits_job job = {.memory = memory, .lines = bytes / CACHE_LINE_BYTES / threads / 4 * 4};
    if (*way == LIMITS_UNKNOWN)
        *way = find_way(pool, threads, job);
    job.way = *way;
    return read_once(pool, threads, job);
}
