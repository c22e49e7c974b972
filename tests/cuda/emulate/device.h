/* kernels/cuda/device/ptx.cuh on the CPU: the same functions, run by the emulator. Compiled ahead
 * of each kernel source (-include), with CUDA_EMULATED. */
#ifndef BATON_TESTS_CUDA_EMULATE_DEVICE_H
#define BATON_TESTS_CUDA_EMULATE_DEVICE_H

#include "kernels/cpu/e4m3.h"
#include "tests/cuda/emulate/state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#define __device__
#define __forceinline__ inline
#define __restrict__

#define threadIdx (emulated::emu.current->thread)
#define blockIdx  (emulated::here().at)
#define gridDim   (emulated::emu.grid)

/* Defines a kernel, and makes its name known. */
#define CUDA_KERNEL(NAME, PARAMETERS, THREADS, BLOCKS)                                             \
    static void NAME(const PARAMETERS &p);                                                         \
    static emulated::registration known_##NAME(#NAME, sizeof(PARAMETERS), [](const void *bytes) {  \
        NAME(*static_cast<const PARAMETERS *>(bytes));                                             \
    });                                                                                            \
    static void NAME(const PARAMETERS &p)
#define CUDA_HAS_SM90 1

using std::max;
using std::min;

struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
struct uint2 {
    uint32_t x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y)
{
    return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

/* --- shared memory and barriers --- */

inline uint32_t shared_base()
{
    return emulated::SHARED_BASE;
}
template <class T> T *shared_pointer(uint32_t address, uint32_t count)
{
    return reinterpret_cast<T *>(emulated::shared_at(address, uint32_t(count * sizeof(T))));
}
inline uint4 load_shared(uint32_t address)
{
    uint4 v;
    memcpy(&v, emulated::shared_at(address, 16), 16);
    return v;
}
inline void store_shared(uint32_t address, uint4 v)
{
    memcpy(emulated::shared_at(address, 16), &v, 16);
}
inline void block_barrier()
{
    emulated::meet(emulated::here().named[0], emulated::emu.threads, true, "block_barrier");
}
inline void named_barrier(uint32_t id, uint32_t threads)
{
    if (id == 0 || id > 15 || threads % 32)
        emulated::fail("named barrier %u of %u threads", id, threads);
    emulated::meet(emulated::here().named[id], threads, true, "named_barrier");
}
inline void warp_barrier()
{
    emulated::gather("warp_barrier", nullptr, [](emulated::warp &) {});
}
inline void mbarrier_init(uint32_t address, uint32_t arrivals)
{
    emulated::mbarrier_at(address) = {
        int32_t(arrivals), int32_t(arrivals), 0, 0, true, emulated::emu.cluster.generation};
}
inline void mbarrier_init_fence()
{
}
inline void mbarrier_arrive(uint32_t address)
{
    emulated::arrive(emulated::mbarrier_at(address));
}
inline void mbarrier_arrive_expect(uint32_t address, uint32_t bytes)
{
    emulated::mbarrier &b = emulated::mbarrier_at(address);
    b.bytes += int32_t(bytes);
    emulated::arrive(b);
}
inline void mbarrier_wait(uint32_t address, uint32_t parity)
{
    emulated::mbarrier &b = emulated::mbarrier_at(address);
    if (!b.is_set_up)
        emulated::fail("a wait at an mbarrier before its set-up");
    emulated::wait_while(&b.phase, parity, "an mbarrier");
}
inline uint32_t cluster_rank()
{
    return emulated::emu.current->block;
}
inline void cluster_barrier()
{
    emulated::meet(emulated::emu.cluster, emulated::emu.threads * emulated::emu.cluster_size, true,
                   "cluster_barrier");
}
inline void mbarrier_arrive_at(uint32_t address, uint32_t rank)
{
    emulated::arrive(emulated::mbarrier_of(address, rank));
}
template <int N> void give_registers()
{
}
template <int N> void take_registers()
{
}

/* --- copies --- */

/* Copies to several blocks land one by one. */
inline void bulk_load_to(uint32_t ranks, uint32_t target, const void *source, uint32_t bytes,
                         uint32_t barrier)
{
    if ((target | bytes | uint32_t(reinterpret_cast<uintptr_t>(source))) & 15)
        emulated::fail("a bulk copy isn't on 16 bytes");
    if (!ranks)
        emulated::fail("a bulk copy to no block");
    for (uint32_t rank = 0; ranks >> rank; rank++) {
        if (!(ranks >> rank & 1))
            continue;
        emulated::mbarrier *b = &emulated::mbarrier_of(barrier, rank);
        uint8_t *to = emulated::shared_at(target, bytes, int(rank));
        emulated::emu.bulk.push_back({[=] {
            if (!emulated::is_running(rank))
                return emulated::note("a copy lands in a block that has ended");
            if (!b->is_set_up)
                return emulated::note("a copy ends at an mbarrier before its set-up");
            memcpy(to, source, bytes);
            b->bytes -= int32_t(bytes);
            emulated::settle(*b);
        }});
    }
}
inline void bulk_load(uint32_t target, const void *source, uint32_t bytes, uint32_t barrier)
{
    bulk_load_to(1u << cluster_rank(), target, source, bytes, barrier);
}
inline uint4 load_streamed(const uint4 *at)
{
    if (reinterpret_cast<uintptr_t>(at) & 15)
        emulated::fail("a load of 16 bytes isn't on 16 bytes");
    return *at;
}
inline void store_streamed(uint4 *at, uint4 value)
{
    if (reinterpret_cast<uintptr_t>(at) & 15)
        emulated::fail("a store of 16 bytes isn't on 16 bytes");
    *at = value;
}
/* Copies 16 bytes, or writes zeros. */
inline void copy_async(uint32_t target, const void *source, bool is_real, uint32_t bytes = 16)
{
    if ((target | uint32_t(reinterpret_cast<uintptr_t>(source))) & (bytes - 1))
        emulated::fail("cp.async isn't on %u bytes", bytes);
    emulated::fiber *f = emulated::emu.current;
    emulated::copy copy = {f->copy_group, bytes, emulated::shared_at(target, bytes), source,
                           is_real};
    if (emulated::draw(2))
        emulated::land(copy);
    else
        f->copies.push_back(copy);
}
inline void copy_async_word(uint32_t target, const void *source, bool is_real)
{
    copy_async(target, source, is_real, 4);
}
inline void copy_async_commit()
{
    emulated::emu.current->copy_group++;
}
template <int PENDING> void copy_async_wait()
{
    emulated::fiber *f = emulated::emu.current;
    size_t i = 0;
    for (; i < f->copies.size() && f->copies[i].group + PENDING < f->copy_group; i++)
        emulated::land(f->copies[i]);
    f->copies.erase(f->copies.begin(), f->copies.begin() + ptrdiff_t(i));
}
inline void fence_async_shared()
{
}

/* --- numbers --- */

inline float bf16_to_float(uint32_t bits)
{
    uint32_t wide = bits << 16;
    float f;
    memcpy(&f, &wide, 4);
    return f;
}
/* To nearest, ties to even; a NaN stays one. */
inline uint32_t float_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value)
        return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline uint32_t pack_bf16(float low, float high)
{
    return float_to_bf16(low) | float_to_bf16(high) << 16;
}
inline uint32_t pack_e4m3(float low, float high)
{
    return e4m3_round(low) | uint32_t(e4m3_round(high)) << 8;
}
inline float __int_as_float(int x)
{
    float f;
    memcpy(&f, &x, 4);
    return f;
}
inline int __float_as_int(float x)
{
    int i;
    memcpy(&i, &x, 4);
    return i;
}
inline uint32_t __float_as_uint(float x)
{
    return uint32_t(__float_as_int(x));
}
inline float __uint_as_float(uint32_t x)
{
    return __int_as_float(int(x));
}
inline double __longlong_as_double(long long x)
{
    double d;
    memcpy(&d, &x, 8);
    return d;
}
inline int __float2int_rn(float x)
{
    return int(rintf(x));
}
inline float exp2_fast(float x)
{
    return exp2f(x);
}
/* --- a warp together --- */

template <class T> T shuffle(T value, uint32_t lane)
{
    struct {
        T value;
        uint32_t lane;
        T result;
    } a = {value, lane, T()};
    typedef decltype(a) arguments;
    emulated::gather("a shuffle", &a, [](emulated::warp &w) {
        for (void *one : w.lane) {
            arguments *to = static_cast<arguments *>(one);
            to->result = static_cast<arguments *>(w.lane[to->lane % 32])->value;
        }
    });
    return a.result;
}
template <class T> T shuffle_xor(T value, uint32_t mask)
{
    return shuffle(value, (threadIdx.x % 32) ^ mask);
}

inline uint32_t vote(bool value)
{
    struct {
        bool value;
        uint32_t result;
    } a = {value, 0};
    typedef decltype(a) arguments;
    emulated::gather("a ballot", &a, [](emulated::warp &w) {
        uint32_t bits = 0;
        for (int l = 0; l < 32; l++)
            bits |= uint32_t(static_cast<arguments *>(w.lane[l])->value) << l;
        for (void *one : w.lane)
            static_cast<arguments *>(one)->result = bits;
    });
    return a.result;
}
inline uint32_t first_bit(uint32_t bits)
{
    return uint32_t(__builtin_ctz(bits));
}
inline uint32_t count_bits(uint32_t bits)
{
    return uint32_t(__builtin_popcount(bits));
}
inline uint32_t transpose_tile(uint32_t words)
{
    struct {
        uint32_t words, result;
    } a = {words, 0};
    typedef decltype(a) arguments;
    emulated::gather("movmatrix", &a, [](emulated::warp &w) {
        for (int l = 0; l < 32; l++) {
            uint32_t result = 0;
            for (int h = 0; h < 2; h++) {
                int row = 2 * (l % 4) + h, column = l / 4;
                uint32_t from = static_cast<arguments *>(w.lane[row * 4 + column / 2])->words;
                result |= (from >> column % 2 * 16 & 0xffff) << 16 * h;
            }
            static_cast<arguments *>(w.lane[l])->result = result;
        }
    });
    return a.result;
}

struct emulated_matrices {
    uint32_t *r, address;
    bool transposed;
};
inline void emulated_ldmatrix(emulated::warp &w)
{
    for (int l = 0; l < 32; l++) {
        emulated_matrices *to = static_cast<emulated_matrices *>(w.lane[l]);
        for (int t = 0; t < 4; t++) {
            uint32_t word = 0;
            for (int h = 0; h < 2; h++) {
                int row = to->transposed ? 2 * (l % 4) + h : l / 4;
                int column = to->transposed ? l / 4 : 2 * (l % 4) + h;
                uint32_t at = static_cast<emulated_matrices *>(w.lane[8 * t + row])->address;
                if (at % 16)
                    emulated::fail("ldmatrix isn't on 16 bytes");
                uint16_t v;
                memcpy(&v, emulated::shared_at(at, 16) + column * 2, 2);
                word |= uint32_t(v) << 16 * h;
            }
            to->r[t] = word;
        }
    }
}
inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address)
{
    emulated_matrices a = {r, address, false};
    emulated::gather("ldmatrix", &a, emulated_ldmatrix);
}
inline void ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t address)
{
    emulated_matrices a = {r, address, true};
    emulated::gather("ldmatrix transposed", &a, emulated_ldmatrix);
}

template <class T> struct emulated_product {
    T *d;
    const uint32_t *a;
    uint32_t b[2];
};
/* Element (row, k) of A and (column, k) of B, of fragments with `PER` elements a word. */
inline uint32_t emulated_a_word(const uint32_t *const *a, int row, int pair)
{
    return a[row % 8 * 4 + pair % 4][(pair >= 4) * 2 + (row >= 8)];
}
/* d += A times 8 columns of each of `panels`. Lane l has rows l / 4 and + 8 of A, and columns
 * 2 (l % 4) and + 1 of a panel's results, four a panel. */
inline void emulated_multiply(float *const *d, const float (*rows)[16],
                              const float (*columns)[16][8], int panels)
{
    for (int c = 0; c < panels; c++)
        for (int row = 0; row < 16; row++) {
            float *lanes[4], sums[8];
            for (int j = 0; j < 8; j++) {
                lanes[j / 2] = d[row % 8 * 4 + j / 2] + 4 * c + row / 8 * 2;
                sums[j] = lanes[j / 2][j % 2];
            }
            emulated::tensor_steps(sums, rows[row], columns[c]);
            for (int j = 0; j < 8; j++)
                lanes[j / 2][j % 2] = sums[j];
        }
}
/* A's fragments are words of the lanes. */
inline void emulated_multiply(float *const *d, const uint32_t *const *words,
                              const float (*columns)[16][8], int panels)
{
    float rows[16][16];
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            rows[row][k] = bf16_to_float(emulated_a_word(words, row, k / 2) >> k % 2 * 16 & 0xffff);
    emulated_multiply(d, rows, columns, panels);
}
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    typedef emulated_product<float> arguments;
    arguments mine = {d, a, {b0, b1}};
    emulated::gather("mma", &mine, [](emulated::warp &w) {
        const uint32_t *words[32];
        float *sums[32], columns[1][16][8];
        for (int l = 0; l < 32; l++) {
            arguments *one = static_cast<arguments *>(w.lane[l]);
            words[l] = one->a;
            sums[l] = one->d;
            for (int k = 0; k < 4; k++)
                columns[0][k / 2 * 8 + l % 4 * 2 + k % 2][l / 4] =
                    bf16_to_float(one->b[k / 2] >> k % 2 * 16 & 0xffff);
        }
        emulated_multiply(sums, words, columns, 1);
    });
}
inline void mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    typedef emulated_product<int> arguments;
    arguments mine = {d, a, {b0, b1}};
    emulated::gather("mma of s8", &mine, [](emulated::warp &w) {
        const uint32_t *words[32];
        int rows[16][32], columns[8][32];
        for (int l = 0; l < 32; l++)
            words[l] = static_cast<arguments *>(w.lane[l])->a;
        for (int k = 0; k < 32; k++) {
            for (int row = 0; row < 16; row++)
                rows[row][k] = int8_t(emulated_a_word(words, row, k / 4) >> k % 4 * 8);
            for (int n = 0; n < 8; n++)
                columns[n][k] = int8_t(
                    static_cast<arguments *>(w.lane[n * 4 + k / 4 % 4])->b[k / 16] >> k % 4 * 8);
        }
        for (int l = 0; l < 32; l++)
            for (int i = 0; i < 4; i++)
                for (int k = 0; k < 32; k++)
                    static_cast<arguments *>(w.lane[l])->d[i] +=
                        rows[l / 4 + i / 2 * 8][k] * columns[l % 4 * 2 + i % 2][k];
    });
}

/* --- wgmma: a warp computes its 16 of the 64 rows. A product runs when it is waited for, or at
 * once: it must not be read before, and its operands must stay until then. --- */

inline uint32_t emulated_operand(uint64_t descriptor, uint32_t row, uint32_t byte)
{
    uint32_t start = uint32_t(descriptor & 0x3fff) << 4;
    uint32_t stride = uint32_t(descriptor >> 32 & 0x3fff) << 4;
    uint32_t at = start + row / 8 * stride + row % 8 * 128 + byte;
    return at ^ (at >> 7 & 7) << 4; /* the 128-byte swizzle */
}
template <class T> struct emulated_group_product {
    T *d;
    uint64_t a, b;
    int begins;
};
template <int N> void emulated_run_bf16(float *const *d, uint32_t first_row, uint64_t a, uint64_t b)
{
    static float rows[16][16], columns[N / 8][16][8];
    for (uint32_t i = 0; i < 16 + N; i++)
        for (uint32_t half = 0; half < 2; half++) {
            uint64_t operand = i < 16 ? a : b;
            uint32_t n = i - 16, row = i < 16 ? first_row + i : n;
            uint16_t numbers[8];
            memcpy(numbers, emulated::shared_at(emulated_operand(operand, row, 16 * half), 16), 16);
            for (uint32_t k = 0; k < 8; k++)
                (i < 16 ? rows[i][8 * half + k] : columns[n / 8][8 * half + k][n % 8]) =
                    bf16_to_float(numbers[k]);
        }
    emulated_multiply(d, rows, columns, N / 8);
}
template <int N> void emulated_run_s8(int *const *d, uint32_t first_row, uint64_t a, uint64_t b)
{
    static int8_t rows[16][32], columns[N][32];
    for (uint32_t k = 0; k < 32; k++) {
        for (uint32_t r = 0; r < 16; r++)
            rows[r][k] = int8_t(*emulated::shared_at(emulated_operand(a, first_row + r, k), 1));
        for (uint32_t n = 0; n < N; n++)
            columns[n][k] = int8_t(*emulated::shared_at(emulated_operand(b, n, k), 1));
    }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < N / 2; i++)
            for (int k = 0; k < 32; k++)
                d[l][i] +=
                    rows[l / 4 + (i & 2) * 4][k] * columns[i / 4 * 8 + l % 4 * 2 + (i & 1)][k];
}
template <int N, bool ADD>
void emulated_run_e4m3(float *const *d, uint32_t first_row, uint64_t a, uint64_t b)
{
    static e4m3_terms rows[16], columns[N];
    uint8_t codes[E4M3_STEP];
    for (uint32_t i = 0; i < 16 + N; i++) {
        bool is_row = i < 16;
        for (uint32_t k = 0; k < E4M3_STEP; k++)
            codes[k] = *emulated::shared_at(
                emulated_operand(is_row ? a : b, is_row ? first_row + i : i - 16, k), 1);
        e4m3_read(codes, E4M3_STEP, is_row ? &rows[i] : &columns[i - 16]);
    }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < N / 2; i++)
            d[l][i] = e4m3_step(ADD ? d[l][i] : 0.0f, &rows[l / 4 + (i & 2) * 4],
                                &columns[i / 4 * 8 + l % 4 * 2 + (i & 1)]);
}
/* begins: numbers of each lane that become zeros first. */
template <class T, void RUN(T *const *, uint32_t, uint64_t, uint64_t)>
void emulated_queue(const char *name, T *d, uint64_t a, uint64_t b, int begins = 0)
{
    typedef emulated_group_product<T> arguments;
    arguments mine = {d, a, b, begins};
    emulated::gather(name, &mine, [](emulated::warp &w) {
        arguments *first = static_cast<arguments *>(w.lane[0]);
        uint32_t row = threadIdx.x % 128 / 32 * 16;
        uint64_t operand_a = first->a, operand_b = first->b;
        std::array<T *, 32> results;
        for (int l = 0; l < 32; l++) {
            arguments *one = static_cast<arguments *>(w.lane[l]);
            if (one->a != operand_a || one->b != operand_b)
                emulated::fail("lanes give wgmma different descriptors");
            results[l] = one->d;
        }
        int zeros = first->begins;
        auto run = [=] {
            for (T *one : results)
                std::fill(one, one + zeros, T(0));
            RUN(results.data(), row, operand_a, operand_b);
        };
        if (w.products.empty() && emulated::draw(2))
            run();
        else
            w.products.push_back({w.group, run});
    });
}
template <int N> struct wgmma {
    static void bf16(float (&d)[N / 2], uint64_t a, uint64_t b)
    {
        emulated_queue<float, emulated_run_bf16<N>>("wgmma", d, a, b);
    }
    static void bf16_first(float (&d)[N / 2], uint64_t a, uint64_t b)
    {
        emulated_queue<float, emulated_run_bf16<N>>("wgmma", d, a, b, N / 2);
    }
    static void s8(int (&d)[N / 2], uint64_t a, uint64_t b)
    {
        emulated_queue<int, emulated_run_s8<N>>("wgmma of s8", d, a, b);
    }
    static void e4m3(float (&d)[N / 2], uint64_t a, uint64_t b, bool add)
    {
        if (add)
            emulated_queue<float, emulated_run_e4m3<N, true>>("wgmma of e4m3", d, a, b);
        else
            emulated_queue<float, emulated_run_e4m3<N, false>>("wgmma of e4m3", d, a, b);
    }
};
struct emulated_weighing {
    float *d;
    const uint32_t *a;
    uint64_t b;
    int begins;
};
template <int N>
void emulated_run_weighing(float *const *d, const uint32_t *const *words, uint64_t b)
{
    static float columns[N / 8][16][8];
    uint32_t start = uint32_t(b & 0x3fff) << 4, panel = uint32_t(b >> 16 & 0x3fff) << 4;
    uint32_t stride = uint32_t(b >> 32 & 0x3fff) << 4;
    for (uint32_t k = 0; k < 16; k++)
        for (uint32_t n = 0; n < N; n += 8) {
            uint32_t at = start + n / 64 * panel + n % 64 * 2 + k / 8 * stride + k % 8 * 128;
            uint16_t numbers[8];
            memcpy(numbers, emulated::shared_at(at ^ (at >> 7 & 7) << 4, 16), 16);
            for (uint32_t i = 0; i < 8; i++)
                columns[n / 8][k][i] = bf16_to_float(numbers[i]);
        }
    emulated_multiply(d, words, columns, N / 8);
}
template <int N> struct wgmma_weigh {
    static void bf16(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b)
    {
        queue({d, a, b, 0});
    }
    static void bf16_first(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b)
    {
        queue({d, a, b, N / 2});
    }

  private:
    static void queue(emulated_weighing mine)
    {
        emulated::gather("wgmma of registers", &mine, [](emulated::warp &w) {
            uint64_t operand = static_cast<emulated_weighing *>(w.lane[0])->b;
            std::array<float *, 32> results;
            std::array<const uint32_t *, 32> words;
            for (int l = 0; l < 32; l++) {
                emulated_weighing *one = static_cast<emulated_weighing *>(w.lane[l]);
                if (one->b != operand)
                    emulated::fail("lanes give wgmma different descriptors");
                results[l] = one->d;
                words[l] = one->a;
            }
            int zeros = static_cast<emulated_weighing *>(w.lane[0])->begins;
            auto run = [=] {
                for (float *one : results)
                    std::fill(one, one + zeros, 0.0f);
                emulated_run_weighing<N>(results.data(), words.data(), operand);
            };
            if (w.products.empty() && emulated::draw(2))
                run();
            else
                w.products.push_back({w.group, run});
        });
    }
};
inline uint64_t wgmma_values(uint32_t address, uint32_t panel)
{
    return uint64_t((address & 0x3ffff) >> 4) | uint64_t(panel >> 4) << 16 | 64ull << 32 |
           1ull << 62;
}
inline void wgmma_fence()
{
}
inline void wgmma_commit()
{
    emulated::gather("wgmma_commit", nullptr, [](emulated::warp &w) { w.group++; });
}
template <int PENDING> void wgmma_wait()
{
    emulated::gather("wgmma_wait", nullptr,
                     [](emulated::warp &w) { emulated::run_products(w, PENDING); });
}
template <class T, int N> void fence_registers(T (&)[N])
{
}
inline uint64_t wgmma_operand(uint32_t address)
{
    return uint64_t((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

/* --- between blocks and kernels --- */

template <class T> void opaque(T &)
{
}
inline void memory_order()
{
}
inline void device_fence()
{
}
template <class T> T load_l2(const T *at)
{
    return *at;
}
template <class T> void store_l2(T *at, T value)
{
    *at = value;
}
inline uint32_t atomic_add(uint32_t *at, uint32_t value)
{
    uint32_t old = *at;
    *at += value;
    return old;
}
inline void global_add(float *at, float value)
{
    *at += value;
}
inline uint32_t shared_atomic_add(uint32_t *at, uint32_t value)
{
    return atomic_add(at, value);
}
inline void shared_atomic_add(double *at, double value)
{
    *at += value;
}
inline void let_next_kernel_start()
{
    emulated::here().lets_next = true;
}
inline void wait_previous_kernel()
{
    emulated::wait_for_kernel_ahead();
}
inline void trap()
{
    emulated::fail("trap");
}

#endif
