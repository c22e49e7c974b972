/* The building blocks of the kernels: a function for each PTX instruction, and no policy. The
 * emulator has the same functions (tests/cuda/emulate/device.h); kernels use these and no others.
 *
 * Compiled without contraction (-fmad=false): what is written as a product and a sum stays one, so
 * all kernels round alike, on the CPU too. Addresses of shared memory are 32 bits. */
#ifndef BATON_KERNELS_CUDA_DEVICE_PTX_CUH
#define BATON_KERNELS_CUDA_DEVICE_PTX_CUH

#include "kernels/cuda/parameters.h"

#ifndef CUDA_EMULATED
#include <cuda_bf16.h>

#define CUDA_KERNEL(NAME, PARAMETERS, THREADS, BLOCKS)                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                  \
        NAME(const __grid_constant__ PARAMETERS p)
/* Bodies of kernels for sm_90a are empty in other images, which never launch them. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CUDA_HAS_SM90 1
#else
#define CUDA_HAS_SM90 0
#endif

#define INLINE __device__ __forceinline__

/* --- shared memory and barriers --- */

extern __shared__ __align__(1024) uint8_t dynamic_shared[];

INLINE uint32_t shared_base()
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared));
}
template <class T> INLINE T *shared_pointer(uint32_t address, uint32_t)
{
    return reinterpret_cast<T *>(dynamic_shared + (address - shared_base()));
}
INLINE uint4 load_shared(uint32_t address)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}
INLINE void store_shared(uint32_t address, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}
INLINE void block_barrier()
{
    __syncthreads();
}
INLINE void named_barrier(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
INLINE void warp_barrier()
{
    __syncwarp();
}
INLINE void mbarrier_init(uint32_t address, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals)
                 : "memory");
}
/* Shows new barriers to asynchronous copies; a block_barrier follows. */
INLINE void mbarrier_init_fence()
{
#if CUDA_HAS_SM90
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
#endif
}
INLINE void mbarrier_arrive(uint32_t address)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}
/* Arrives, and lets the phase wait for `bytes` more. */
INLINE void mbarrier_arrive_expect(uint32_t address, uint32_t bytes)
{
#if CUDA_HAS_SM90
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes)
                 : "memory");
#endif
}
INLINE bool mbarrier_try(uint32_t address, uint32_t parity)
{
    uint32_t done = 1;
#if CUDA_HAS_SM90
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(address), "r"(parity)
                 : "memory");
#endif
    return done;
}
INLINE void trap()
{
    __trap();
}
/* Waits until the phase of this parity is over. A wait of seconds is a mistake: it ends the
 * launch with an error instead of hanging. */
INLINE void mbarrier_wait(uint32_t address, uint32_t parity)
{
    if (mbarrier_try(address, parity))
        return;
    long long start = clock64();
    while (!mbarrier_try(address, parity))
        if (clock64() - start > (1ll << 34))
            trap();
}
/* --- blocks of a cluster: `rank` is a block's place in it --- */

INLINE uint32_t cluster_rank()
{
    uint32_t rank = 0;
#if CUDA_HAS_SM90
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}
/* All threads of all its blocks meet; whole warps call it. Memory is seen as behind a barrier. */
INLINE void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
/* Arrives at the mbarrier at this address of another block, or of its own. It releases no stores to
 * that block: those would take a fence of the whole device. */
INLINE void mbarrier_arrive_at(uint32_t address, uint32_t rank)
{
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(address),
                 "r"(rank)
                 : "memory");
}
/* bulk_load to the same place of each block with a bit in `ranks`, and to its mbarrier. */
INLINE void bulk_load_to(uint32_t ranks, uint32_t target, const void *source, uint32_t bytes,
                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(target),
                 "l"(source), "r"(bytes), "r"(barrier), "h"(uint16_t(ranks))
                 : "memory");
}

/* Registers of a thread of the warp group; their sum over the block stays the launch's. */
template <int N> INLINE void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> INLINE void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* --- copies --- */

/* A multiple of 16 bytes from global memory; completes on the mbarrier. */
INLINE void bulk_load(uint32_t target, const void *source, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(target),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}
/* 16 bytes that are used once. */
INLINE uint4 load_streamed(const uint4 *at)
{
    return __ldcs(at);
}
INLINE void store_streamed(uint4 *at, uint4 value)
{
    __stcs(at, value);
}
/* Copies 16 bytes, or writes zeros and reads nothing. */
INLINE void copy_async(uint32_t target, const void *source, bool is_real)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
                 "r"(is_real ? 16 : 0)
                 : "memory");
}
/* The same for 4 bytes. */
INLINE void copy_async_word(uint32_t target, const void *source, bool is_real)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source),
                 "r"(is_real ? 4 : 0)
                 : "memory");
}
INLINE void copy_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits for this thread's groups, except the last PENDING. */
template <int PENDING> INLINE void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
/* Ordinary stores to shared memory before it, reads of wgmma behind it (then a barrier). */
INLINE void fence_async_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* --- numbers --- */

INLINE uint32_t pack_bf16(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&v);
}
INLINE uint32_t float_to_bf16(float value)
{
    return pack_bf16(value, 0.0f) & 0xffff;
}
INLINE float bf16_to_float(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}
/* To e4m3, to nearest, at most 448; for sm_90a. */
INLINE uint32_t pack_e4m3(float low, float high)
{
    uint16_t packed = 0;
#if CUDA_HAS_SM90
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
#endif
    return packed;
}
INLINE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* --- a warp together --- */

template <class T> INLINE T shuffle(T value, uint32_t lane)
{
    return __shfl_sync(~0u, value, lane);
}
template <class T> INLINE T shuffle_xor(T value, uint32_t mask)
{
    return __shfl_xor_sync(~0u, value, mask);
}
/* Bit l: lane l's value. */
INLINE uint32_t vote(bool value)
{
    return __ballot_sync(~0u, value);
}
INLINE uint32_t first_bit(uint32_t bits) /* not for 0 */
{
    return __ffs(bits) - 1;
}
INLINE uint32_t count_bits(uint32_t bits)
{
    return __popc(bits);
}
/* Transposes a tile of 8 x 8 16-bit words: lane l gives and gets row l / 4, words 2 (l % 4) and
 * the next. */
INLINE uint32_t transpose_tile(uint32_t words)
{
    uint32_t r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(words));
    return r;
}
/* Four tiles of 8 x 8 16-bit words: lane l gives the address of row l % 8 of tile l / 8, and gets
 * row l / 4, words 2 (l % 4) and the next, of each. */
INLINE void ldmatrix_x4(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
INLINE void ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
/* D[16][8] += A[16][16] * B[8][16]^T. */
INLINE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* D[16][8] += A[16][32] * B[8][32]^T, exact. */
INLINE void mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* --- wgmma --- */

#define R0_3   "%0,%1,%2,%3"
#define R4_7   "%4,%5,%6,%7"
#define R8_15  "%8,%9,%10,%11,%12,%13,%14,%15"
#define R16_31 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define R32_47 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define R48_63 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define R64_95                                                                                     \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86," \
    "%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define R96_127                                                                                    \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,"  \
    "%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define D4(C, I)       C(d[I]), C(d[I + 1]), C(d[I + 2]), C(d[I + 3])
#define D8(C, I)       D4(C, I), D4(C, I + 4)
#define D16(C, I)      D8(C, I), D8(C, I + 8)
#define D32(C, I)      D16(C, I), D16(C, I + 16)
#define D64(C, I)      D32(C, I), D32(C, I + 32)
#define D128(C, I)     D64(C, I), D64(C, I + 64)
#define FLOAT_REGISTER "+f"
#define FLOAT_RESULT   "=f"
#define INT_REGISTER   "+r"

/* D[64][N] += A[64][128 bytes of k / 4] * B[N][...]^T, both from shared memory (wgmma_operand).
 * bf16 adds 16 of k, s8 and e4m3 32; bf16_first, and e4m3 without `add`, begin at zero. Thread t of
 * the warp group, c = t % 4, g = t % 32 / 4, w = t / 32,
 * holds d[4 j + 2 h + e] = D[16 w + 8 h + g][8 j + 2 c + e]: the fragment of mma. */
template <int N> struct wgmma;
#define DEFINE_WGMMA(N, REGISTERS, LIST, A, B, ADD)                                                \
    template <> struct wgmma<N> {                                                                  \
        static INLINE void bf16(float (&d)[N / 2], uint64_t a, uint64_t b)                         \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS    \
                         "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}\n"                                \
                         : LIST(FLOAT_REGISTER, 0)                                                 \
                         : "l"(a), "l"(b));                                                        \
        }                                                                                          \
        static INLINE void bf16_first(float (&d)[N / 2], uint64_t a, uint64_t b)                   \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"                                \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS    \
                         "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}\n"                                \
                         : LIST(FLOAT_RESULT, 0)                                                   \
                         : "l"(a), "l"(b));                                                        \
        }                                                                                          \
        static INLINE void s8(int (&d)[N / 2], uint64_t a, uint64_t b)                             \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" REGISTERS        \
                         "}, %" #A ", %" #B ", p;\n}\n"                                            \
                         : LIST(INT_REGISTER, 0)                                                   \
                         : "l"(a), "l"(b));                                                        \
        }                                                                                          \
        static INLINE void e4m3(float (&d)[N / 2], uint64_t a, uint64_t b, bool add)               \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\n"                        \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" REGISTERS    \
                         "}, %" #A ", %" #B ", p, 1, 1;\n}\n"                                      \
                         : LIST(FLOAT_REGISTER, 0)                                                 \
                         : "l"(a), "l"(b), "r"(int(add)));                                         \
        }                                                                                          \
    };
#if CUDA_HAS_SM90
DEFINE_WGMMA(8, R0_3, D4, 4, 5, 6)
DEFINE_WGMMA(16, R0_3 "," R4_7, D8, 8, 9, 10)
DEFINE_WGMMA(32, R0_3 "," R4_7 "," R8_15, D16, 16, 17, 18)
DEFINE_WGMMA(64, R0_3 "," R4_7 "," R8_15 "," R16_31, D32, 32, 33, 34)
DEFINE_WGMMA(128, R0_3 "," R4_7 "," R8_15 "," R16_31 "," R32_47 "," R48_63, D64, 64, 65, 66)
DEFINE_WGMMA(256, R0_3 "," R4_7 "," R8_15 "," R16_31 "," R32_47 "," R48_63 "," R64_95 "," R96_127,
             D128, 128, 129, 130)
#endif

/* D[64][N] += A[64][16] * B[16][N]: A is the fragment of mma, and N lies side by side in memory
 * (wgmma_values). */
template <int N> struct wgmma_weigh;
#define DEFINE_WGMMA_WEIGH(N, REGISTERS, LIST, A0, A1, A2, A3, B)                                  \
    template <> struct wgmma_weigh<N> {                                                            \
        static INLINE void bf16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b)             \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS    \
                         "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", p, 1, 1, 1;\n}\n"     \
                         : LIST(FLOAT_REGISTER, 0)                                                 \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
        }                                                                                          \
        static INLINE void bf16_first(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b)       \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"                                \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS    \
                         "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", p, 1, 1, 1;\n}\n"     \
                         : LIST(FLOAT_RESULT, 0)                                                   \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
        }                                                                                          \
    };
#if CUDA_HAS_SM90
DEFINE_WGMMA_WEIGH(64, R0_3 "," R4_7 "," R8_15 "," R16_31, D32, 32, 33, 34, 35, 36)
DEFINE_WGMMA_WEIGH(128, R0_3 "," R4_7 "," R8_15 "," R16_31 "," R32_47 "," R48_63, D64, 64, 65, 66,
                   67, 68)
#endif

INLINE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
INLINE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> INLINE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* Accumulators are neither read nor written across this place. */
template <int N> INLINE void fence_registers(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> INLINE void fence_registers(int (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}
/* Describes rows of 128 bytes with the 128-byte swizzle: 16-byte chunk c of row r lies at chunk c ^
 * (r % 8); a tile begins on 1024 bytes. The next 32 bytes of k are 2 further on. */
INLINE uint64_t wgmma_operand(uint32_t address)
{
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

/* Describes [k][64 of n] with the same swizzle; the next 64 of n begin `panel` bytes on, the next
 * 16 of k 128 further on in the description. */
INLINE uint64_t wgmma_values(uint32_t address, uint32_t panel)
{
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) |
           static_cast<uint64_t>(panel >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

/* --- between blocks and kernels --- */

/* The compiler computes what depends on v from here on, not before: fewer registers in loops. */
template <class T> INLINE void opaque(T &v)
{
    asm volatile("" : "+r"(v));
}
template <class T> INLINE void opaque(T *&v)
{
    asm volatile("" : "+l"(v));
}
/* Loads behind this place stay behind it. */
INLINE void memory_order()
{
    asm volatile("" ::: "memory");
}
INLINE void device_fence()
{
    __threadfence();
}
template <class T> INLINE T load_l2(const T *at)
{
    return __ldcg(at);
}
template <class T> INLINE void store_l2(T *at, T value)
{
    __stcg(at, value);
}
INLINE uint32_t atomic_add(uint32_t *at, uint32_t value)
{
    return atomicAdd(at, value);
}
/* Adds without reading back. A kernel adds to each number once, so that order is no question. */
INLINE void global_add(float *at, float value)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory");
}
template <class T> INLINE void shared_atomic_add(T *at, T value)
{
    atomicAdd(at, value);
}
/* Programmatic dependent launch. Without the launch attribute both do nothing. */
INLINE void let_next_kernel_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
INLINE void wait_previous_kernel()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#else
#define INLINE inline
#endif

/* --- of both --- */

/* Bytes of packed weights or inputs: chunk of 16 bytes `chunk` of row `row` of a k block. */
INLINE uint32_t swizzled(uint32_t row, uint32_t chunk)
{
    return row * CUDA_K_BYTES + (chunk ^ (row & 7)) * 16;
}

/* exp by kernels/cpu/exp_fixed.h: the same operations, the same bits. */
INLINE float exp_fixed(float argument)
{
    float x = argument < 88.3f ? argument : 88.3f;
    x = x > -87.0f ? x : -87.0f;
    float shifted = x * 1.44269504088896341f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = (y * (r * r) + r) + 1.0f;
    float power = __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
    return argument < -87.0f ? 0.0f : y * power;
}

/* Sums of a block go over fixed trees: a thread's numbers ascending, a warp's lanes in pairs, then
 * the warps ascending. */
template <class T> struct sum_of {
    INLINE T operator()(T a, T b) const
    {
        return a + b;
    }
};
template <class T> struct most_of {
    INLINE T operator()(T a, T b) const
    {
        return a > b ? a : b;
    }
};
/* Every lane gets the result. */
template <class F> INLINE float over_warp(float value, F join)
{
#pragma unroll
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        value = join(value, shuffle_xor(value, mask));
    return value;
}

/* Every thread of the block gets the result. slots: CUDA_ROW_THREADS / 32 in shared memory. */
template <class T, class F> INLINE T over_block(T value, T *slots, F join)
{
#pragma unroll
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        value = join(value, shuffle_xor(value, mask));
    if (threadIdx.x % 32 == 0)
        slots[threadIdx.x / 32] = value;
    block_barrier();
    value = slots[0];
#pragma unroll
    for (uint32_t w = 1; w < CUDA_ROW_THREADS / 32; w++)
        value = join(value, slots[w]);
    block_barrier();
    return value;
}

#endif
