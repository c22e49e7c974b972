/* Blocks of the KV pool on their way to another process: they are gathered from its memory, and
 * summed. These kernels run beside those of a step, on a few multiprocessors. */
#include "kernels/cuda/device/ptx.cuh"

/* Grid: [blocks]. A block copies a piece of CUDA_PIECE_BYTES at a time. Pieces are counted through
 * all moves. */
CUDA_KERNEL(gather_moves, gather_parameters, CUDA_GATHER_THREADS, 1)
{
    constexpr uint32_t LOADS = CUDA_PIECE_BYTES / 16 / CUDA_GATHER_THREADS;
    uint32_t at = 0;
    for (uint32_t piece = blockIdx.x; piece < p.pieces; piece += gridDim.x) {
        while (at + 1 < p.count && p.moves[at + 1].first_piece <= piece)
            at++;
        uint64_t begin = uint64_t(piece - p.moves[at].first_piece) * CUDA_PIECE_BYTES;
        uint64_t left = uint64_t(p.moves[at].units) * 16 - begin;
        const uint8_t *source = p.source + p.moves[at].source + begin;
        uint8_t *target = p.target + p.moves[at].target + begin;
        uint4 v[LOADS];
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            uint32_t byte = (threadIdx.x + i * CUDA_GATHER_THREADS) * 16;
            if (byte < left)
                v[i] = load_streamed(reinterpret_cast<const uint4 *>(source + byte));
        }
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            uint32_t byte = (threadIdx.x + i * CUDA_GATHER_THREADS) * 16;
            if (byte < left)
                store_streamed(reinterpret_cast<uint4 *>(target + byte), v[i]);
        }
    }
}

/* --- CRC32C --- */

/* Polynomials over GF(2), reflected: bit 31 is x^0. Returns a b modulo Castagnoli's. */
INLINE uint32_t crc_product(uint32_t a, uint32_t b)
{
    uint32_t sum = 0;
    for (uint32_t bit = 0; bit < 32; bit++) {
        sum ^= a & (0x80000000u >> bit) ? b : 0;
        b = b >> 1 ^ (b & 1 ? CUDA_CRC_POLYNOMIAL : 0);
    }
    return sum;
}

/* Grid: [blocks]. A warp sums a run at a time, 128 bytes a row, a word a lane. Words of a lane are
 * 1024 bits apart: a table of the products with x^1024 leads from one to the next. Each lane then
 * puts its sum at its place, and the lanes add up. A run that is no multiple of 128 bytes begins
 * with zeros, which change nothing. */
CUDA_KERNEL(block_sums, block_sums_parameters, CUDA_ROW_THREADS, 1)
{
    uint32_t *ahead = shared_pointer<uint32_t>(shared_base(), 1024);
    uint32_t lane = threadIdx.x % 32, warps = CUDA_ROW_THREADS / 32;
    for (uint32_t i = threadIdx.x; i < 1024; i += CUDA_ROW_THREADS)
        ahead[i] = crc_product(p.row_power, i % 256 << 8 * (i / 256));
    block_barrier();
    uint32_t rows = (p.run_bytes + 127) / 128, pad = rows * 32 - p.run_bytes / 4;
    for (uint32_t run = blockIdx.x * warps + threadIdx.x / 32; run < p.count * p.runs;
         run += gridDim.x * warps) {
        const uint8_t *block = p.pool + p.blocks[run / p.runs] * p.block_bytes;
        const uint32_t *words =
            reinterpret_cast<const uint32_t *>(block + uint64_t(run % p.runs) * p.run_bytes);
        uint32_t sum = 0;
#pragma unroll 8
        for (uint32_t row = 0; row < rows; row++) {
            uint32_t at = row * 32 + lane;
            uint32_t word = at < pad ? 0 : words[at - pad];
            sum = ahead[sum & 255] ^ ahead[256 + (sum >> 8 & 255)] ^
                  ahead[512 + (sum >> 16 & 255)] ^ ahead[768 + (sum >> 24)] ^ word;
        }
        sum = crc_product(p.lane_power[lane], sum);
        for (uint32_t mask = 16; mask > 0; mask /= 2)
            sum ^= shuffle_xor(sum, mask);
        if (lane == 0)
            p.sums[run] = ~(sum ^ p.initial);
    }
}
